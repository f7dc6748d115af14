"""Numbers to mantissas and back at the border of a session, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import Events, IntArray
from binpoint.runtime.tensors import mantissa_dtype

FloatArray = NDArray[np.floating[Any]]


def quantize(values: FloatArray, exponent: int, bits: int) -> tuple[IntArray, Events]:
    """Mantissas of values at an exponent: half-even of x * 2^-e, saturated to the width.

    Args:
        values: finite numbers of any shape.
        exponent: e, the exponent of the result.
        bits: the width of the mantissas.

    Returns:
        The mantissas in the smallest type that holds them, and how many saturated or became 0.
    """
    least, greatest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    # float64 holds any float32 times a power of two; where a float64 overflows it saturates as well. rint rounds half
    # to even.
    with np.errstate(over="ignore"):
        scaled = np.rint(np.ldexp(values.astype(np.float64), -exponent))
    limited = np.minimum(np.maximum(scaled, least), greatest)
    saturated = int(np.count_nonzero(limited != scaled))
    underflowed = int(np.count_nonzero(values)) - int(np.count_nonzero(scaled))
    return limited.astype(mantissa_dtype(bits)), Events(values.size, saturated, underflowed)


def dequantize(mantissas: IntArray, exponent: int) -> NDArray[np.float64]:
    """The values n * 2^e, exact in float64 for mantissas of up to 32 bits."""
    return np.ldexp(mantissas.astype(np.float64), exponent)

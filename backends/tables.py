"""Tables of the functions that have no exact fixed-point form: sigmoid, its derivative, the exponential of softmax.

A table has one entry a mantissa, with 30 fraction bits unless it says otherwise. The host makes it from float64
when an exponent changes; every backend reads the same table, so results agree bit for bit.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

FRACTION_BITS = 30
"""Fraction bits of the entries of sigmoid and softmax: the accumulator's exponent is -30."""

MAXIMUM_BITS = 16
"""Widest mantissas that a table is made for: 65,536 entries."""


@lru_cache(maxsize=64)
def sigmoid_table(bits: int, exponent: int) -> NDArray[np.int64]:
    """1 / (1 + e^-x) for each mantissa n of `bits` bits, x = n * 2^exponent; entry n + 2^(bits - 1).

    Rounded half-even to 30 fraction bits. The array is read-only.
    """
    half = 1 << (_checked(bits) - 1)
    x = np.ldexp(np.arange(-half, half, dtype=np.float64), exponent)
    decay = np.exp(-np.abs(x))  # never overflows
    return _fixed(np.where(x >= 0, 1.0, decay) / (1.0 + decay))


@lru_cache(maxsize=64)
def sigmoid_gradient_table(bits: int, exponent: int, fraction_bits: int) -> NDArray[np.int64]:
    """y * (1 - y) for each mantissa n of `bits` bits, y = n * 2^exponent brought into [0, 1]; entry n + 2^(bits - 1).

    Rounded half-even to `fraction_bits` fraction bits. The array is read-only.
    """
    half = 1 << (_checked(bits) - 1)
    y = np.clip(np.ldexp(np.arange(-half, half, dtype=np.float64), exponent), 0.0, 1.0)
    return _fixed(y * (1.0 - y), fraction_bits)


@lru_cache(maxsize=64)
def exponential_table(bits: int, exponent: int) -> NDArray[np.int64]:
    """e^-x for each distance d of two mantissas of `bits` bits, x = d * 2^exponent; entry d, 0 <= d < 2^bits.

    Rounded half-even to 30 fraction bits. The array is read-only.
    """
    distances = np.arange(1 << _checked(bits), dtype=np.float64)
    return _fixed(np.exp(-np.ldexp(distances, exponent)))


def _checked(bits: int) -> int:
    if not 1 <= bits <= MAXIMUM_BITS:
        raise ValueError(f"a table of {bits}-bit mantissas: 1 to {MAXIMUM_BITS} bits are possible")
    return bits


def _fixed(values: NDArray[np.float64], fraction_bits: int = FRACTION_BITS) -> NDArray[np.int64]:
    table = np.rint(np.ldexp(values, fraction_bits)).astype(np.int64)
    table.setflags(write=False)
    return table

"""Numbers to feature maps of blocks and back, at the border of a session.

The host converts a network's inputs: it has all of a block's numbers, so it analyses them, whatever the PEs do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.blocks import ExponentGrid, block_size, grid_shape, spread
from binpoint.backends.kernel import Events, IntArray, TensorSpec
from binpoint.runtime.tensors import mantissa_dtype
from binpoint.support.numeric import Measure

FloatArray = NDArray[np.floating[Any]]
Numbers = NDArray[np.float64]


def choose_exponents(
    values: FloatArray, tensor: TensorSpec, candidates: Sequence[int], measure: Measure
) -> ExponentGrid:
    """The exponent of each block: the candidate that loses least, the finest of equals.

    Args:
        values: (N, C, H, W).
        tensor: the map that they become.
        candidates: exponents, the coarsest first.
        measure: what a candidate loses. Errors are summed in float64.
    """
    exact = values.astype(np.float64)
    losses = np.stack([_block_sums(_losses(exact, each, tensor.bits, measure), tensor) for each in candidates])
    # The last of equals is the finest.
    chosen = len(candidates) - 1 - losses[::-1].argmin(axis=0)
    exponents: ExponentGrid = np.asarray(candidates, np.int32)[chosen]
    return exponents


def count_overflows(values: FloatArray, candidates: Sequence[int], bits: int) -> IntArray:
    """(N, candidates): how many numbers of each image would leave the range."""
    exact = values.astype(np.float64).reshape(len(values), -1)
    outside = [_losses(exact, each, bits, Measure.OVERFLOWS).sum(axis=1) for each in candidates]
    return np.stack(outside, axis=1).astype(np.int64)


def quantize_blocks(values: FloatArray, exponents: ExponentGrid, tensor: TensorSpec) -> tuple[IntArray, Events]:
    """Mantissas at each block's exponent: half-even, saturated; and how many saturated or became 0."""
    exact = values.astype(np.float64)
    rounded = _scaled(exact, spread(exponents, tensor))
    least, greatest = _range(tensor.bits)
    saturated = int(np.count_nonzero((rounded < least) | (rounded > greatest)))
    underflowed = int(np.count_nonzero((rounded == 0) & (exact != 0)))
    mantissas = np.clip(rounded, least, greatest).astype(mantissa_dtype(tensor.bits))
    return mantissas, Events(values.size, saturated, underflowed)


def dequantize_blocks(mantissas: IntArray, exponents: ExponentGrid, tensor: TensorSpec) -> Numbers:
    """The values n * 2^e, each with its block's exponent."""
    return np.ldexp(mantissas.astype(np.float64), spread(exponents, tensor))


def _losses(values: Numbers, exponent: int, bits: int, measure: Measure) -> Numbers:
    """What each number loses at one exponent."""
    least, greatest = _range(bits)
    rounded = _scaled(values, np.int32(exponent))
    if measure is Measure.OVERFLOWS:
        return ((rounded < least) | (rounded > greatest)).astype(np.float64)
    errors = np.abs(values - np.ldexp(np.clip(rounded, least, greatest), exponent))
    return errors if measure is Measure.ABSOLUTE_ERROR else errors**2


def _scaled(values: Numbers, exponents: IntArray | np.int32) -> Numbers:
    """x * 2^-e, rounded half-even; a power of two beyond float64 saturates as well."""
    with np.errstate(over="ignore"):
        return np.rint(np.ldexp(values, -exponents))


def _block_sums(values: Numbers, tensor: TensorSpec) -> Numbers:
    """(N, G, rows, columns) sums over blocks."""
    height, width = block_size(tensor)
    rows = np.add.reduceat(values, np.arange(0, tensor.height, height), axis=2)
    sums = np.add.reduceat(rows, np.arange(0, tensor.width, width), axis=3)
    if grid_shape(tensor)[0] < tensor.channels:
        sums = sums.sum(axis=1, keepdims=True)
    return np.asarray(sums, np.float64)


def _range(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1

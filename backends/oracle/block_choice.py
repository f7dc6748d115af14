"""From results to the exponents of blocks: realignment, analysis, choice and prediction, for all blocks at once.

JP7819764B2 figs. 6, 9 and 11 to 13. `blocks.analyze`, `choose` and `predict` say the same for one block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.blocks import BlockExponents, block_size, spread
from binpoint.backends.kernel import KernelSpec, TensorSpec
from binpoint.backends.oracle.activation import spare_bits
from binpoint.backends.oracle.exact import INT64_LIMIT, Integers, magnitude
from binpoint.backends.oracle.fixed_point import saturate
from binpoint.backends.oracle.positions import Values, aligned, quantize_each
from binpoint.support.numeric import BlockMethod, BlockPolicy, Measure, Neighbour, Selection

OFFSETS = {
    Neighbour.UPPER_LEFT: (-1, -1),
    Neighbour.UPPER: (-1, 0),
    Neighbour.UPPER_RIGHT: (-1, 1),
    Neighbour.LEFT: (0, -1),
}
"""(rows, columns) from a block to its neighbour."""

ABSOLUTE, SQUARED = 1, 2
"""The power of an error that a measure adds up. MSE, RMSE and SNR order candidates as the squared error does."""

Random = NDArray[np.uint64] | None


def realign(spec: KernelSpec, found: Values) -> Values:
    """All results of a block of one channel at one exponent, (N, C, H, W); registers saturate."""
    by = (spec.blocks or BlockPolicy()).selection
    choose = np.maximum if by is Selection.INTEGER else np.minimum
    positions = np.broadcast_to(found.exponents, found.values.shape)
    moved, target = found.values, positions
    if not (found.exponents == found.exponents.flat[0]).all():
        height, width = block_size(spec.output)
        rows, columns = _starts(spec.output)
        grid = choose.reduceat(choose.reduceat(positions, rows, axis=2), columns, axis=3)
        target = grid.repeat(height, axis=2)[:, :, : spec.output.height].repeat(width, axis=3)[..., : spec.output.width]
        moved = aligned(found.values, positions, target)
    bits = spec.accumulator.bits + spare_bits(spec)
    if magnitude(moved) < 1 << (bits - 1):
        return Values(moved, target, found.overflowed)
    # Also where nothing moved: a leaky slope above 1 leaves the registers.
    values, outside = saturate(moved, bits)
    return Values(values, target, found.overflowed | outside)


def losses(
    spec: KernelSpec, results: Values, candidates: tuple[int, ...], random: Random, measure: Measure
) -> Integers:
    """What each block loses at each candidate, (N, G, rows, columns, candidates).

    Overflows are counted. Errors are exact sums in units of 2^u or, squared, 2^(2u) with u = `error_unit`.
    """
    found = [_loss(spec, results, candidate, candidates, random, measure) for candidate in candidates]
    return np.stack([per_block(each, spec.output) for each in found], axis=-1)


def error_unit(results: Values, candidates: tuple[int, ...]) -> int:
    """The exponent of the finest bit of any result or candidate."""
    return min(int(results.exponents.min()), *candidates)


def per_block(elements: Integers, tensor: TensorSpec) -> Integers:
    """Sums over the blocks of (N, C, H, W): (N, G, rows, columns)."""
    rows, columns = _starts(tensor)
    sums = np.add.reduceat(np.add.reduceat(elements, rows, axis=2), columns, axis=3)
    return sums if tensor.granularity.per_channel else np.asarray(sums.sum(axis=1, keepdims=True))


def decide(spec: KernelSpec, lost: Integers, exponents: BlockExponents, unit: int) -> NDArray[np.int32]:
    """The exponent of each block, (N, G, rows, columns), from what the blocks lose."""
    policy = spec.blocks or BlockPolicy()
    candidates = np.array(exponents.candidates, np.int32)
    if policy.method is BlockMethod.ANALYSE:
        return candidates[_finest_least(lost)]
    sums, counts = _neighbours(lost, policy)
    power = {Measure.OVERFLOWS: 0, Measure.ABSOLUTE_ERROR: ABSOLUTE}.get(policy.measure, SQUARED)
    # sum * 2^(unit * power) / count <= threshold, without a fraction
    limit, scale = policy.threshold.numerator, policy.threshold.denominator
    exponent = unit * power
    sums_scaled = sums.astype(object) * (scale << max(0, exponent)) if exponent or scale != 1 else sums
    tolerated = np.asarray(sums_scaled <= counts.astype(object) * (limit << max(0, -exponent)), dtype=np.bool_)
    finest_tolerated = len(candidates) - 1 - np.argmax(tolerated[..., ::-1], axis=-1)
    index = np.where(tolerated.any(axis=-1), finest_tolerated, _finest_least(sums))
    return np.where(counts[..., 0] > 0, candidates[index], np.int32(exponents.default))


def quantize_blocks(
    spec: KernelSpec, results: Values, grid: NDArray[np.int32], random: Random
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Mantissas at the exponents of a grid, and which of them saturated."""
    shifts = spread(grid, spec.output).astype(np.int64) - results.exponents
    return quantize_each(results.values, shifts, spec.output.bits, spec.rounding, random)


def _loss(
    spec: KernelSpec,
    results: Values,
    candidate: int,
    candidates: tuple[int, ...],
    random: Random,
    measure: Measure,
) -> Integers:
    shifts = candidate - results.exponents
    mantissas, outside = quantize_each(results.values, shifts, spec.output.bits, spec.rounding, random)
    if measure is Measure.OVERFLOWS:
        return outside.astype(np.int64)
    unit = error_unit(results, candidates)
    own = int(results.exponents.max()) - unit
    bound = (magnitude(results.values) << own) + (1 << (spec.output.bits + candidate - unit))
    elements = results.values[0].size
    wide: Any = np.int64 if bound * bound * elements < INT64_LIMIT and own < 63 else object
    lefts = (results.exponents - unit).astype(wide)
    errors = (results.values.astype(wide) << lefts) - (mantissas.astype(wide) << (candidate - unit))
    return np.asarray(abs(errors) if measure is Measure.ABSOLUTE_ERROR else errors * errors)


def _finest_least(lost: Integers) -> NDArray[np.int64]:
    """The index of the smallest loss along the last axis, the last one (finest candidate) of equals."""
    return np.asarray(lost.shape[-1] - 1 - np.argmin(lost[..., ::-1], axis=-1))


def _neighbours(lost: Integers, policy: BlockPolicy) -> tuple[Integers, NDArray[np.int64]]:
    """The losses of each block's neighbours added up, and how many neighbours there are, both with a last axis."""
    sums, counts = np.zeros_like(lost), np.zeros((*lost.shape[:-1], 1), np.int64)
    rows, columns = lost.shape[2:4]
    for neighbour in policy.neighbours:
        down, right = OFFSETS[neighbour]
        own = slice(max(0, -down), rows), slice(max(0, -right), columns - max(0, right))
        other = slice(0, rows + down), slice(max(0, right), columns + min(0, right))
        sums[:, :, *own] += lost[:, :, *other]
        counts[:, :, *own] += 1
    return sums, counts


def _starts(tensor: TensorSpec) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where blocks begin: rows and columns."""
    height, width = block_size(tensor)
    return np.arange(0, tensor.height, height), np.arange(0, tensor.width, width)

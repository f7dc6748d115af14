"""Exponents of spatial blocks: analysis, choice, prediction, alignment (SEMANTICS section 7).

The functions speak of *positions* as JP7819764B2 does: N fraction bits, the last bit is worth 2^-N, so a
position is the negated exponent and a finer one is larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.oracle.exact import Integers
from binpoint.backends.oracle.fixed_point import quantize
from binpoint.support.numeric import DEFAULT_THRESHOLD, Measure, Rounding, Selection


def analyze(
    values: Integers,
    position: int,
    candidates: Sequence[int],
    bits: int,
    rounding: Rounding,
    measure: Measure = Measure.OVERFLOWS,
    random: NDArray[np.uint64] | None = None,
) -> list[Fraction]:
    """What the block of accumulators `values` at `position` loses at each candidate, exactly.

    Overflows are a count; errors are sums of real values: |x - q|, else (x - q)^2, by which MSE, RMSE and SNR order
    the candidates of a block. `random` has a number a value, for stochastic rounding.
    """
    return [_loss(values, position, candidate, bits, rounding, measure, random) for candidate in candidates]


def choose(losses: Sequence[Fraction], candidates: Sequence[int]) -> int:
    """The candidate with the smallest loss, the finest of equals (embodiment 1)."""
    return min(zip(losses, candidates, strict=True), key=lambda pair: (pair[0], -pair[1]))[1]


def predict(
    neighbours: Sequence[Sequence[Fraction | int]],
    candidates: Sequence[int],
    default: int,
    threshold: Fraction | int = DEFAULT_THRESHOLD,
) -> int:
    """The position of a block before its results are known, from its neighbours' losses (embodiment 2).

    `neighbours` holds one row of losses by candidate for each analysed neighbour. The finest candidate whose
    mean loss is at most `threshold`; if there is none, the one with the least mean, the finest of equals. A
    block without analysed neighbours takes `default`.
    """
    if not neighbours:
        return default
    means = [sum(column, Fraction(0)) / len(neighbours) for column in zip(*neighbours, strict=True)]
    tolerated = [candidate for mean, candidate in zip(means, candidates, strict=True) if mean <= threshold]
    return max(tolerated) if tolerated else choose(means, candidates)


def align_positions(values: Sequence[int], positions: Sequence[int], selection: Selection) -> tuple[list[int], int]:
    """Values of mixed positions brought to one: the aligned values and their position.

    Right shifts are floor, as a barrel shifter does them.
    """
    target = min(positions) if selection is Selection.INTEGER else max(positions)
    pairs = zip(values, positions, strict=True)
    return [
        value << (target - position) if target >= position else value >> (position - target)
        for value, position in pairs
    ], target


def _loss(
    values: Integers,
    position: int,
    candidate: int,
    bits: int,
    rounding: Rounding,
    measure: Measure,
    random: NDArray[np.uint64] | None,
) -> Fraction:
    mantissas, overflowed = quantize(values, position - candidate, bits, rounding, random)
    if measure is Measure.OVERFLOWS:
        return Fraction(int(np.count_nonzero(overflowed)))
    errors = _errors(values, position, mantissas, candidate)
    return sum((abs(error) if measure is Measure.ABSOLUTE_ERROR else error * error for error in errors), Fraction(0))


def _errors(values: Integers, position: int, mantissas: NDArray[np.int64], candidate: int) -> list[Fraction]:
    unit, candidate_unit = Fraction(2) ** -position, Fraction(2) ** -candidate
    pairs = zip(values.flat, mantissas.flat, strict=True)
    return [int(value) * unit - int(mantissa) * candidate_unit for value, mantissa in pairs]

"""Integers whose exponents differ from element to element: alignment and quantisation, in the order of a PE.

The barrel shifters of JP7819764B2 fig. 8: left shifts are exact, right shifts floor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import Accumulator, BoolArray
from binpoint.backends.oracle.exact import Integers, holder, magnitude
from binpoint.backends.oracle.fixed_point import quantize, saturate, wrap
from binpoint.support.numeric import Rounding, Selection

Exponents = NDArray[np.int64]


@dataclass(frozen=True)
class Values:
    """Results of a PE: integers and their exponents, (N, C, H, W) or what broadcasts to it, and what overflowed."""

    values: Integers
    exponents: Exponents
    overflowed: BoolArray


class RunningSum:
    """The RAM of a filter processing unit (JP7819764B2 fig. 7), one for each result: a sum and its exponent.

    Exponents are those of the input's elements: a weight's exponent is the same for all addends of a result, so it
    does not matter to the alignment.

    Args:
        shape: of the sums, (N, C, H, W).
        groups: channels of the exponents: 1 where all sums of a pixel see the same ones.
    """

    def __init__(self, shape: tuple[int, int, int, int], groups: int, accumulator: Accumulator, by: Selection) -> None:
        self.values: Integers = np.zeros(shape, np.int64)
        self.exponents: Exponents = np.zeros((shape[0], groups, *shape[2:]), np.int64)
        self.started = np.zeros(self.exponents.shape, np.bool_)
        """Where the sum has an exponent: something was added to it."""
        self.overflowed = np.zeros(shape, np.bool_)
        self._accumulator, self._by = accumulator, by

    def add(self, addends: Sequence[tuple[Integers, Exponents, BoolArray]]) -> None:
        """Align addends and the sum to one exponent, add them all, and fit the result into the accumulator.

        An addend is (values, exponents, where there is one); beyond, its values are ignored.
        """
        target = selected([(self.exponents, self.started), *(each[1:] for each in addends)], self._by)
        total = aligned(self.values, np.where(self.started, self.exponents, target), target)
        for values, exponents, present in addends:
            moved = aligned(np.where(present, values, 0), np.where(present, exponents, target), target)
            bound = magnitude(total) + magnitude(moved)
            total = np.asarray(holder(total, bound) + holder(moved, bound))
            self.started = self.started | present
        self.values, outside = fit(total, self._accumulator)
        self.exponents = target
        self.overflowed = self.overflowed | outside


def selected(operands: Sequence[tuple[Exponents, BoolArray]], by: Selection) -> Exponents:
    """The exponent that operands are aligned to: of (exponents, where there is one); 0 where there is none."""
    coarsest = by is Selection.INTEGER
    none = np.iinfo(np.int64).min if coarsest else np.iinfo(np.int64).max
    choose = np.maximum if coarsest else np.minimum
    result: Any = np.int64(none)
    for exponents, present in operands:
        result = choose(result, np.where(present, exponents, none))
    return np.asarray(np.where(result == none, 0, result))


def aligned(values: Integers, exponents: Exponents, target: Exponents) -> Integers:
    """Integers at `exponents` as integers at `target`: left shifts exact, right shifts floor."""
    left = exponents - target
    most = int(left.max(initial=0))
    if most <= 0:
        return np.asarray(values >> np.minimum(-left, 63))
    wide = holder(values, magnitude(values) << most)
    if wide.dtype == object:
        left = left.astype(object)
    return np.asarray(np.where(left >= 0, wide << np.maximum(left, 0), wide >> np.maximum(-left, 0)))


def fit(values: Integers, accumulator: Accumulator) -> tuple[Integers, BoolArray]:
    """Exact integers in the accumulator's width, saturated or wrapped, and where they did not fit."""
    return wrap(values, accumulator.bits) if accumulator.wraps else saturate(values, accumulator.bits)


def quantize_each(
    values: Integers,
    shifts: Exponents,
    bits: int,
    rounding: Rounding,
    random: NDArray[np.uint64] | None = None,
) -> tuple[NDArray[np.int64], BoolArray]:
    """`fixed_point.quantize` with a shift of its own for each element."""
    shifts = np.broadcast_to(shifts, values.shape)
    mantissas, outside = np.empty(values.shape, np.int64), np.empty(values.shape, np.bool_)
    for shift, where in each_value(shifts):
        drawn = None if random is None else random[where]
        mantissas[where], outside[where] = quantize(values[where], shift, bits, rounding, drawn)
    return mantissas, outside


def each_value(numbers: NDArray[np.int64]) -> Iterator[tuple[int, BoolArray | tuple[()]]]:
    """The distinct numbers of an array, and an index of where each of them is."""
    distinct = np.unique(numbers).tolist()
    if len(distinct) == 1:
        yield distinct[0], ()
        return
    for number in distinct:
        yield number, numbers == number

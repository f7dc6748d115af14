"""Winograd's minimal filtering of 3 x 3 kernels, in integers: S. Winograd 1980; A. Lavin, S. Gray, arXiv:1509.09308.

A tile of m x m results is A [(G w G') * (B d B')] A' of its (m + 2) x (m + 2) inputs d, where * is element by element:
(m + 2)^2 products instead of 9 m^2. G has fractions. Its rows are scaled to integers here and the columns of A the
other way, so that the results come out `divisor` times too large. This divides exactly, and as sums in 32 bits are
right modulo 2^32 whatever wraps on the way, results below 2^31 / 2^trailing zeros of the divisor are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from binpoint.backends.kernel import IntArray

KERNEL = 3
"""Taps of a kernel's row and column."""

Matrix = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Transform:
    """F(m x m, 3 x 3). `divisor` is what results are too large by, for both directions together."""

    input: Matrix
    """B: (m + 2) x (m + 2)."""
    filter: Matrix
    """G with scaled rows: (m + 2) x 3."""
    output: Matrix
    """A with scaled columns: m x (m + 2)."""
    divisor: int

    dtype = "int16"
    """Of transformed weights of 8 bits."""

    @property
    def results(self) -> int:
        """m: rows and columns of a tile's results."""
        return len(self.output)

    @property
    def points(self) -> int:
        """m + 2: rows and columns of a tile's inputs."""
        return len(self.input)

    @cached_property
    def largest(self) -> int:
        """The largest magnitude of inputs whose transforms have 16 bits."""
        growth = max(sum(abs(each) for each in row) for row in self.input) ** 2
        return ((1 << 15) - 1) // growth

    @cached_property
    def shift(self) -> int:
        """The power of two in the divisor."""
        return (self.divisor & -self.divisor).bit_length() - 1

    @cached_property
    def inverse(self) -> int:
        """Of the divisor's odd part modulo 2^32, as a signed integer."""
        inverse = pow(self.divisor >> self.shift, -1, 1 << 32)
        return inverse - (1 << 32) if inverse >> 31 else inverse

    @cached_property
    def exact_below(self) -> int:
        """Results below this in magnitude are exact."""
        return 1 << (31 - self.shift)

    def shape(self, packed: tuple[int, ...]) -> tuple[int, ...]:
        """(tiles, points, points, ...) for packed weights (tiles, 3, 3, ...)."""
        return packed[0], self.points, self.points, *packed[3:]

    def apply(self, packed: IntArray, result: IntArray) -> None:
        """Transform packed weights of 8 bits; see `weights.WeightTransform`."""
        for taps, points in zip(packed, result, strict=True):
            for a, row in enumerate(self.filter):
                half = _combination(row, taps)
                for b, column in enumerate(self.filter):
                    _combination(column, half, points[a, b])


def _combination(coefficients: Sequence[int], terms: IntArray, result: IntArray | None = None) -> IntArray:
    """The sum of coefficient * term, in place of a result if there is one."""
    (first, factor), *rest = ((term, factor) for term, factor in zip(terms, coefficients, strict=True) if factor)
    result = np.multiply(first, first.dtype.type(factor), out=result)
    for term, factor in rest:
        if abs(factor) != 1:
            term = term * term.dtype.type(abs(factor))
        (np.add if factor > 0 else np.subtract)(result, term, out=result)
    return result


F2 = Transform(
    input=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    filter=((2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 2)),
    output=((1, 1, 1, 0), (0, 1, -1, -1)),
    divisor=4,
)

F4 = Transform(
    input=(
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    filter=((1, 0, 0), (1, 1, 1), (1, -1, 1), (1, 2, 4), (1, -2, 4), (0, 0, 1)),
    output=((6, -4, -4, 1, 1, 0), (0, -4, 4, 2, -2, 0), (0, -4, -4, 4, 4, 0), (0, -4, 4, 8, -8, 24)),
    divisor=576,
)

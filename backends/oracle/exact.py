"""Integer arrays that never lose a bit: int64 where 64 bits hold every value, Python integers past that.

An `Integers` array has dtype int64, or dtype object with Python integers as elements. NumPy applies the same
operators to both, so the arithmetic of the oracle is written once. The functions here choose the
representation from a bound on the magnitudes; the values are the same either way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[Any]
"""int64, or object with Python integers."""

INT64_LIMIT = 1 << 63
"""Magnitudes below this fit into int64."""

FLOAT64_LIMIT = 1 << 53
"""Sums of integers whose magnitudes add up to at most this are exact in float64, in any order."""


def magnitude(values: Integers) -> int:
    """The largest absolute value, 0 for an empty array."""
    if values.size == 0:
        return 0
    return max(int(values.max()), -int(values.min()))


def holder(values: Integers, bound: int) -> Integers:
    """The same integers in a representation that also holds magnitudes up to `bound`."""
    return values.astype(np.int64 if bound < INT64_LIMIT else object, copy=False)


def add(left: Integers, right: Integers) -> Integers:
    """The exact sum, broadcast."""
    bound = magnitude(left) + magnitude(right)
    return np.asarray(holder(left, bound) + holder(right, bound))


def multiply(values: Integers, factors: Integers) -> Integers:
    """The exact product, broadcast."""
    bound = magnitude(values) * magnitude(factors)
    # The operands too must fit: 0 * 2^70 has a small bound but a wide factor.
    bound = max(bound, magnitude(values), magnitude(factors))
    return np.asarray(holder(values, bound) * holder(factors, bound))


def shift_left(values: Integers, shift: int) -> Integers:
    """values * 2^shift, exact, for shift >= 0."""
    return np.asarray(holder(values, magnitude(values) << shift) << shift)


def matrix_product(left: Integers, right: Integers) -> Integers:
    """The exact product of two matrices.

    Uses float64 where a bound on the sums of magnitudes proves it exact, because BLAS is the fast way to
    multiply integers too; else int64, else Python integers.
    """
    bound = left.shape[1] * magnitude(left) * magnitude(right)
    if bound <= FLOAT64_LIMIT:
        return np.asarray((left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64))
    return np.asarray(holder(left, bound) @ holder(right, bound))

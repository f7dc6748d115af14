"""Exact integers in either representation, and the bounds that choose it."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from binpoint.backends.oracle.exact import add, magnitude, matrix_product, multiply, shift_left

INT64 = st.integers(-(2**63), 2**63 - 1)
VECTOR = st.lists(INT64, min_size=3, max_size=3)


@given(st.lists(INT64))
@example([-(2**63), 2**63 - 1])
@example([])
def test_magnitude(values):
    assert magnitude(np.array(values, dtype=np.int64)) == max(map(abs, values), default=0)


@given(VECTOR, VECTOR, st.integers(0, 90))
@example([2**62, 2**63 - 1, -(2**63)], [2**62, 1, -1], 0)
@example([0, 0, 0], [-(2**63), 2**63 - 1, 0], 90)
def test_operators_lose_nothing(left, right, shift):
    a, b = np.array(left), np.array(right)
    assert add(a, b).tolist() == [x + y for x, y in zip(left, right, strict=True)]
    assert multiply(a, b).tolist() == [x * y for x, y in zip(left, right, strict=True)]
    assert shift_left(a, shift).tolist() == [x << shift for x in left]


def test_a_wide_factor_of_zero_is_no_overflow():
    assert multiply(np.array([0, 0]), np.array([2**70, 1], dtype=object)).tolist() == [0, 0]


def test_results_that_fit_stay_int64():
    assert add(np.array([2**62]), np.array([2**62 - 1])).dtype == np.int64
    assert multiply(np.array([2**31]), np.array([2**31])).dtype == np.int64
    assert add(np.array([2**62]), np.array([2**62])).dtype == object


@pytest.mark.parametrize("bits", [8, 24, 26, 27, 28, 29, 31, 32, 34])
def test_matrix_product_on_each_side_of_its_limits(bits):
    """All factors at the extremes: float64 alone would lose the last bits from 28 bits on."""
    left = np.array([[-(2 ** (bits - 1))] * 4, [2 ** (bits - 1) - 1] * 4, [1, -1, 2 ** (bits - 1) - 1, 0]])
    right = left.T[:, ::-1]
    expected = [[sum(int(a) * int(b) for a, b in zip(row, column, strict=True)) for column in right.T] for row in left]
    assert matrix_product(left, right).tolist() == expected


def test_empty_matrix_product():
    assert matrix_product(np.zeros((0, 3), dtype=np.int64), np.ones((3, 2), dtype=np.int64)).shape == (0, 2)

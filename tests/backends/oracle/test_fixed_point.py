"""Shift, round, saturate against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from binpoint.backends.generator import draw_key, draws
from binpoint.backends.kernel import Draw
from binpoint.backends.oracle.fixed_point import align, quantize, saturate, shift_right, wrap
from binpoint.support.numeric import Rounding

DETERMINISTIC = [rounding for rounding in Rounding if rounding is not Rounding.STOCHASTIC]
INT64 = st.integers(-(2**63), 2**63 - 1)
WIDE = st.integers(-(2**90), 2**90)
HALF = Fraction(1, 2)


def rounded(x: Fraction, rounding: Rounding) -> int:
    """The integer that each rounding name means."""
    if rounding is Rounding.FLOOR:
        return math.floor(x)
    if rounding is Rounding.HALF_UP:
        return math.floor(x + HALF)
    if rounding is Rounding.HALF_EVEN:
        return round(x)
    return math.floor(x + HALF) if x >= 0 else math.ceil(x - HALF)


def integers(values: list[int]) -> np.ndarray:
    """int64 where it holds the values, Python integers otherwise."""
    return np.array(values, dtype=np.int64 if all(-(2**63) <= v < 2**63 for v in values) else object)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        (Rounding.FLOOR, [-3, -2, -1, 0, 1, 2]),
        (Rounding.HALF_UP, [-2, -1, 0, 1, 2, 3]),
        (Rounding.HALF_EVEN, [-2, -2, 0, 0, 2, 2]),
        (Rounding.HALF_AWAY, [-3, -2, -1, 1, 2, 3]),
    ],
)
def test_rounding_of_ties(rounding, expected):
    assert shift_right(np.array([-5, -3, -1, 1, 3, 5]), 1, rounding).tolist() == expected


@given(st.lists(INT64 | WIDE, min_size=1, max_size=8), st.integers(-200, 200), st.integers(1, 64), st.data())
@example([2**63 - 1, -(2**63), -(2**63) + 1, 0, -1, 1], 1, 64, None)
@example([2**63 - 1, -(2**63), 2**62, -(2**62)], 63, 8, None)
@example([2**63 - 1, -(2**63), 2**62, -(2**62)], 64, 8, None)
@example([2**63 - 1, -(2**63), 1, -1, 0], -63, 64, None)
def test_quantize_equals_exact_arithmetic(values, shift, bits, data):
    roundings = DETERMINISTIC if data is None else [data.draw(st.sampled_from(DETERMINISTIC))]
    least, greatest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for rounding in roundings:
        mantissas, overflowed = quantize(integers(values), shift, bits, rounding)
        exact = [rounded(value * Fraction(2) ** -shift, rounding) for value in values]
        assert mantissas.dtype == np.int64
        assert mantissas.tolist() == [min(max(value, least), greatest) for value in exact]
        assert overflowed.tolist() == [not least <= value <= greatest for value in exact]


@given(st.lists(INT64, min_size=1, max_size=8), st.integers(1, 200), st.sampled_from(DETERMINISTIC))
def test_both_representations_agree(values, shift, rounding):
    narrow = shift_right(np.array(values, dtype=np.int64), shift, rounding)
    wide = shift_right(np.array(values, dtype=object), shift, rounding)
    assert narrow.tolist() == wide.tolist()


@given(st.lists(WIDE, min_size=1, max_size=8), st.integers(1, 64))
@example([2**63, -(2**63) - 1, 2**64, 0], 64)
def test_saturate_and_wrap(values, bits):
    least, greatest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    outside = [not least <= value <= greatest for value in values]
    saturated, where_saturated = saturate(integers(values), bits)
    wrapped, where_wrapped = wrap(integers(values), bits)
    assert saturated.tolist() == [min(max(value, least), greatest) for value in values]
    assert where_saturated.tolist() == where_wrapped.tolist() == outside
    for value, result in zip(values, wrapped.tolist(), strict=True):
        assert least <= result <= greatest
        assert (value - result) % 2**bits == 0


@given(
    st.lists(INT64, min_size=1, max_size=8), st.integers(-100, 100), st.integers(-100, 100), st.sampled_from(Rounding)
)
def test_align_never_draws(values, exponent, target, rounding):
    used = Rounding.HALF_EVEN if rounding is Rounding.STOCHASTIC else rounding
    expected = [rounded(value * Fraction(2) ** (exponent - target), used) for value in values]
    assert align(np.array(values), exponent, target, rounding).tolist() == expected


@given(st.lists(INT64 | WIDE, min_size=1, max_size=8), st.integers(1, 200), st.integers(0, 2**64 - 1))
@example([2**63 - 1, -(2**63), -1, 1, 0, 2**62], 64, 0)
@example([2**63 - 1, -(2**63), -1, 1, 0, 2**62], 63, 2**64 - 1)
@example([2**63 - 1, -(2**63), -1, 1, 0, 2**62], 65, 2**62 - 1)
def test_stochastic_rounds_up_below_the_fraction(values, shift, number):
    random = np.full(len(values), number, dtype=np.uint64)
    results = shift_right(integers(values), shift, Rounding.STOCHASTIC, random).tolist()
    for value, result in zip(values, results, strict=True):
        fraction = value % 2**shift * 2**64 // 2**shift
        assert result == (value >> shift) + (number < fraction)


def test_stochastic_is_unbiased_and_leaves_exact_values_alone():
    count = 100_000
    random = draws(draw_key(Draw(seed=1, tensor=2, step=3)), np.arange(count))
    up = shift_right(np.full(count, -11), 3, Rounding.STOCHASTIC, random)  # -1.375 is -2 + 0.625
    assert set(up.tolist()) == {-2, -1}
    assert abs(np.mean(up == -1) - 0.625) < 5 * math.sqrt(0.625 * 0.375 / count)
    assert (shift_right(np.full(count, -16), 3, Rounding.STOCHASTIC, random) == -2).all()


def test_stochastic_needs_random_numbers():
    with pytest.raises(ValueError, match="random"):
        shift_right(np.array([1]), 1, Rounding.STOCHASTIC)


def test_empty_arrays_quantize_to_empty_arrays():
    mantissas, overflowed = quantize(np.zeros((0, 3), dtype=np.int64), 5, 8, Rounding.HALF_EVEN)
    assert mantissas.shape == overflowed.shape == (0, 3)

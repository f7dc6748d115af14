"""Block exponents: analysis, choice, prediction, alignment."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.backends.oracle.blocks import align_positions, analyze, choose, predict
from binpoint.support.numeric import Measure, Rounding, Selection

BLOCKS = st.lists(st.integers(-(2**39), 2**39), min_size=1, max_size=16)
CANDIDATES = st.lists(st.integers(-5, 12), min_size=1, max_size=5, unique=True)
ROUNDINGS = st.sampled_from([rounding for rounding in Rounding if rounding is not Rounding.STOCHASTIC])


@given(BLOCKS, st.integers(-4, 20), CANDIDATES, st.sampled_from([8, 12, 16]))
def test_overflows_are_counted_after_rounding(values, position, candidates, bits):
    greatest = 2 ** (bits - 1) - 1
    expected = []
    for candidate in candidates:
        mantissas = [round(value * Fraction(2) ** (candidate - position)) for value in values]
        expected.append(sum(not -greatest - 1 <= mantissa <= greatest for mantissa in mantissas))
    assert analyze(np.array(values), position, candidates, bits, Rounding.HALF_EVEN) == expected


@given(BLOCKS, st.integers(0, 12), CANDIDATES, ROUNDINGS)
def test_errors_are_exact_and_finer_never_hurts_without_overflow(values, position, candidates, rounding):
    block, finest_first = np.array(values), sorted(candidates, reverse=True)
    absolute = analyze(block, position, finest_first, 64, rounding, Measure.ABSOLUTE_ERROR)
    squared = analyze(block, position, finest_first, 64, rounding, Measure.MSE)
    for candidate, error, square in zip(finest_first, absolute, squared, strict=True):
        unit = Fraction(2) ** -candidate
        assert error < unit * len(values)
        assert square <= unit * error
        assert (error == 0) == (square == 0)
        if candidate >= position:
            assert error == 0
    assert choose(absolute, finest_first) == finest_first[0] or absolute[0] > min(absolute)


def test_squared_error_prefers_coarse_over_one_large_overflow():
    block, candidates = np.array([1000, 3, 3, 3]), [0, 3]
    losses = analyze(block, 0, candidates, 8, Rounding.HALF_EVEN, Measure.MSE)
    assert losses == [(1000 - 127) ** 2, (1000 - Fraction(127, 8)) ** 2]
    assert choose(losses, candidates) == 0


def test_choice_takes_the_finest_of_equals_in_any_order_of_candidates():
    assert choose([Fraction(1), Fraction(1), Fraction(2)], [3, 6, 9]) == 6
    assert choose([Fraction(2), Fraction(1), Fraction(1)], [9, 6, 3]) == 6


@pytest.mark.parametrize(
    ("neighbours", "threshold", "expected"),
    [
        ([], 10, 2),
        ([[0, 0, 10, 16]], 10, 4),
        ([[0, 0, 11, 16]], 10, 2),
        ([[0, 1, 10, 16], [0, 0, 11, 16], [0, 0, 10, 16]], 10, 2),  # mean 31/3 is above 10, exactly
        ([[7, 7, 8, 9]], 3, 2),  # none tolerated: least mean, then finest
    ],
)
def test_prediction(neighbours, threshold, expected):
    assert predict(neighbours, [0, 2, 4, 6], default=2, threshold=threshold) == expected


@given(st.lists(st.tuples(st.integers(-(2**40), 2**40), st.integers(-20, 40)), min_size=1))
def test_alignment(pairs):
    values, positions = [value for value, _ in pairs], [position for _, position in pairs]
    reals = [value * Fraction(2) ** -position for value, position in pairs]
    fine, finest = align_positions(values, positions, Selection.FRACTION)
    assert finest == max(positions)
    assert [value * Fraction(2) ** -finest for value in fine] == reals
    coarse, coarsest = align_positions(values, positions, Selection.INTEGER)
    assert coarsest == min(positions)
    for value, real in zip(coarse, reals, strict=True):
        assert 0 <= real - value * Fraction(2) ** -coarsest < Fraction(2) ** -coarsest

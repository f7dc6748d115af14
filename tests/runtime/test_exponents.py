"""Exponents from statistics, against searches over the definition."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from binpoint.backends.kernel import EMPTY_RECORD, StatisticsRecord
from binpoint.backends.oracle.statistics import record
from binpoint.runtime.exponents import (
    bottom_position,
    chosen_top,
    clamp,
    decide,
    record_of_floats,
    records_of_floats,
    top_position,
)
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import ExponentRule, UpdatePolicy

VALUES = st.lists(st.integers(-(2**39), 2**39 - 1) | st.integers(-70, 70), min_size=1, max_size=40)
SHARES = st.fractions(0, Fraction(1, 2), max_denominator=60)
INFORMED = VALUES.filter(lambda values: any(value not in (0, -1) for value in values))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def policy(rule, r_max=0, r_min=0):
    return UpdatePolicy(rule, Fraction(r_max), Fraction(r_min))


@given(INFORMED, SHARES, st.integers(-40, 40))
def test_top_is_the_smallest_tolerated(values, r_max, exponent):
    seen = record(np.array(values), exponent)
    lowest, highest = min(seen.msb), max(seen.msb)
    tolerated = [
        t
        for t in range(lowest, highest + 1)
        if sum(count for position, count in seen.msb.items() if position > t) <= r_max * len(values)
    ]
    assert chosen_top(policy(ExponentRule.MSB_HISTOGRAM, r_max), seen) == min(tolerated)


@given(INFORMED, SHARES, st.integers(-40, 40))
def test_bottom_is_the_largest_tolerated(values, r_min, exponent):
    seen = record(np.array(values), exponent)
    tolerated = [
        e
        for e in range(min(seen.lsb), max(seen.lsb) + 1)
        if sum(count for position, count in seen.lsb.items() if position < e) <= r_min * len(values)
    ]
    assert bottom_position(seen, r_min) == max(tolerated)


@given(INFORMED, st.integers(-40, 40), st.sampled_from([4, 8, 16]))
def test_msb_max_is_the_finest_exponent_that_holds_every_value(values, exponent, bits):
    chosen = decide(policy(ExponentRule.MSB_MAX), record(np.array(values), exponent), bits, 99)
    reals = [value * Fraction(2) ** exponent for value in values]

    def holds(e):
        return all(-(2 ** (bits - 1)) <= math.floor(real / Fraction(2) ** e) < 2 ** (bits - 1) for real in reals)

    assert holds(chosen)
    assert not holds(chosen - 1)
    assert decide(policy(ExponentRule.MSB_HISTOGRAM), record(np.array(values), exponent), bits, 99) == chosen


@given(INFORMED, st.integers(-40, 40))
def test_lsb_min_keeps_every_bit_that_differs_from_the_sign(values, exponent):
    chosen = decide(policy(ExponentRule.LSB_MIN), record(np.array(values), exponent), 8, 99)

    def repeats_the_sign(value, bits):
        return value % 2**bits == (2**bits - 1 if value < 0 else 0)

    assert all(repeats_the_sign(value, chosen - exponent) for value in values)
    assert not all(repeats_the_sign(value, chosen - exponent + 1) for value in values)


@given(INFORMED, SHARES, SHARES, st.sampled_from([4, 8, 16]))
def test_msb_has_priority_and_lsb_takes_free_headroom(values, r_max, r_min, bits):
    seen = record(np.array(values), 0)
    e_msb = decide(policy(ExponentRule.MSB_HISTOGRAM, r_max), seen, bits, 99)
    e_lsb = bottom_position(seen, r_min)
    assert decide(policy(ExponentRule.MSB_LSB, r_max, r_min), seen, bits, 99) == (e_lsb if e_lsb >= e_msb else e_msb)


@pytest.mark.parametrize(
    ("above", "samples", "expected"),
    [
        (2, 100_000, 4),  # 2 of 100,000 is exactly 0.002 %: tolerated
        (3, 100_000, 9),
        (2, 99_999, 9),  # a float quotient would have to be exact to see this
        (20_000_000_000, 10**15, 4),
        (20_000_000_001, 10**15, 9),
    ],
)
def test_the_share_of_the_figures_is_compared_exactly(above, samples, expected):
    seen = StatisticsRecord({4: samples - above, 9: above}, {0: samples}, 0, samples)
    assert chosen_top(UpdatePolicy(), seen) == expected


def test_samples_without_a_position_count():
    seen = StatisticsRecord({0: 1, 5: 1}, {0: 2}, 98, 100)
    assert chosen_top(policy(ExponentRule.MSB_HISTOGRAM, Fraction(1, 100)), seen) == 0


def test_a_tolerance_above_everything_stops_at_what_occurs():
    seen = StatisticsRecord({3: 1, 5: 1}, {-2: 1, 1: 1}, 98, 100)
    assert top_position(seen, 50) == 3
    assert bottom_position(seen, Fraction(1, 2)) == 1


@pytest.mark.parametrize("rule", ExponentRule)
@pytest.mark.parametrize("empty", [EMPTY_RECORD, StatisticsRecord({}, {}, 7, 7)])
def test_no_information_keeps_the_exponent(rule, empty):
    assert decide(policy(rule), empty, 8, -13) == -13


def test_fixed_never_moves():
    assert decide(policy(ExponentRule.FIXED), StatisticsRecord({40: 1}, {0: 1}, 0, 1), 8, -13) == -13


@given(st.integers(-300, 300))
def test_clamp_reports(exponent):
    clamped, moved = clamp(exponent, (-128, 127))
    assert clamped == sorted((-128, exponent, 127))[1]
    assert moved == (clamped != exponent)


@given(st.lists(FLOATS | st.integers(-1000, 1000).map(float)))
@example([0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308, -1.0, 1.0, -64.0, 64.0, 2.0**-1022])
def test_record_of_floats_equals_exact_fractions(values):
    tops, bottoms = [], []
    for value in (Fraction(value) for value in values):
        if value:
            # The smallest k with -2^(k+1) <= value < 2^(k+1), searched from the bit lengths.
            k = abs(value.numerator).bit_length() - value.denominator.bit_length() - 2
            while not -(Fraction(2) ** (k + 1)) <= value < Fraction(2) ** (k + 1):
                k += 1
            tops.append(k)
            low = (value.numerator & -value.numerator).bit_length() - value.denominator.bit_length()
            bottoms.append(low)
    seen = record_of_floats(np.array(values))
    assert seen.msb == {position: tops.count(position) for position in tops}
    assert seen.lsb == {position: bottoms.count(position) for position in bottoms}
    assert seen.none == len(values) - len(tops)
    assert seen.samples == len(values)


def test_float_trial_agrees_with_the_integer_record():
    """Tops of floats are the positions that the same numbers have as mantissas."""
    integers = np.array([value for value in range(-300, 300) if value not in (0, -1)])
    assert record_of_floats(integers / 16).msb == record(integers, -4).msb
    assert record_of_floats(integers.astype(np.float32)).msb == record(integers, 0).msb


def test_float32_and_shapes():
    values = np.array([[0.1, -0.1], [3.0, 0.0]], dtype=np.float32)
    seen = record_of_floats(values)
    assert seen.msb == {-4: 2, 1: 1}
    assert (seen.none, seen.samples) == (1, 4)
    assert record_of_floats(np.zeros((0, 3))) == EMPTY_RECORD


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_number_are_a_user_error(value):
    with pytest.raises(UserError) as error:
        record_of_floats(np.array([1.0, value]), 'weight "conv1.weight"')
    assert error.value.diagnostics[0].code == "not-finite"
    assert 'weight "conv1.weight"' in str(error.value)


def test_merged_records_decide_as_one():
    rng = np.random.default_rng(4)
    batches = [rng.integers(-(2**20), 2**20, 1000) // 2 ** int(shift) for shift in rng.integers(0, 12, 5)]
    merged = StatisticsRecord({}, {}, 0, 0)
    for batch in batches:
        merged = merged.merge(record(batch, -9))
    whole = record(np.concatenate(batches), -9)
    for rule, share in itertools.product(ExponentRule, (0, Fraction(1, 7))):
        assert decide(policy(rule, share, share), merged, 8, 0) == decide(policy(rule, share, share), whole, 8, 0)


def test_records_of_many_tensors_are_those_of_each() -> None:
    generator = np.random.default_rng(0)
    tensors = {
        "normal": generator.normal(0, 1e-3, (4, 5)),
        "powers": -(2.0 ** np.arange(-30, 30)),
        "zeros": np.array([0.0, -0.0, 3.0]),
        "tiny": np.array([5e-324, 1.0]),
        "empty": np.zeros((0, 3)),
        "narrow": generator.normal(0, 1e5, 7).astype(np.float32),
    }
    assert records_of_floats(tensors) == {name: record_of_floats(values) for name, values in tensors.items()}
    assert records_of_floats({"empty": np.zeros(0)}) == {"empty": EMPTY_RECORD}
    assert records_of_floats({}) == {}


def test_records_of_many_tensors_name_the_one_that_is_not_finite() -> None:
    with pytest.raises(UserError, match='"b" holds a value that is no finite number'):
        records_of_floats({"a": np.ones(3), "b": np.array([1.0, np.inf])})

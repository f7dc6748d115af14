"""Exponents over time: windows, periods, patience and what a decision says of itself."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.backends.kernel import EMPTY_RECORD, StatisticsRecord
from binpoint.runtime.exponents import decide
from binpoint.runtime.policies import ExponentHistory, RecordWindow, Verdict
from binpoint.support.numeric import ExponentRule, TensorPolicy, UpdatePolicy

POSITIONS = st.dictionaries(st.integers(-20, 20), st.integers(1, 10**6), max_size=5)
RECORDS = st.builds(
    lambda msb, none: StatisticsRecord(msb, {}, none, sum(msb.values()) + none), POSITIONS, st.integers(0, 9)
)
UPDATES = st.builds(
    UpdatePolicy,
    st.sampled_from([ExponentRule.MSB_HISTOGRAM, ExponentRule.MSB_MAX, ExponentRule.FIXED]),
    st.just(Fraction(1, 100)),
    period=st.integers(1, 4),
    window=st.none() | st.integers(1, 6),
    confidence=st.sampled_from([None, Fraction(9, 10)]),
    patience=st.integers(1, 4),
    headroom=st.integers(0, 2),
)
BITS = 8


def history(exponent=0, exponent_range=(-128, 127), **update):
    policy = TensorPolicy(UpdatePolicy(ExponentRule.MSB_MAX, **update), exponent_range=exponent_range)
    return ExponentHistory(policy, BITS, exponent)


def seen(top, count=100):
    """A record of values that all have one top bit; msb-max at 8 bits asks for `top - 6`."""
    return StatisticsRecord({top: count}, {top: count}, 0, count)


@given(st.lists(RECORDS), st.integers(1, 5))
def test_a_window_holds_the_sum_of_the_last_records(records, size):
    window = RecordWindow(size)
    for number, record in enumerate(records, 1):
        window.add(record)
        expected = EMPTY_RECORD
        for other in records[max(0, number - size) : number]:
            expected = expected.merge(other)
        assert window.merged() == expected


@given(st.lists(RECORDS | st.none(), max_size=12), UPDATES, st.integers(0, 12))
def test_a_history_restored_from_json_goes_on_alike(records, update, stop):
    policy = TensorPolicy(update, exponent_range=(-15, 10))
    uninterrupted, first = (ExponentHistory(policy, BITS, 0) for _ in range(2))
    whole = [uninterrupted.observe(record) for record in records]
    parts = [first.observe(record) for record in records[:stop]]
    second = ExponentHistory.restore(policy, BITS, json.loads(json.dumps(first.state())))
    assert parts + [second.observe(record) for record in records[stop:]] == whole
    assert second.exponent == uninterrupted.exponent
    assert second.state() == uninterrupted.state()


@given(st.lists(RECORDS, min_size=1, max_size=9), st.integers(1, 3), st.integers(1, 5))
def test_without_patience_a_decision_is_that_of_the_merged_window(records, period, window):
    update = UpdatePolicy(ExponentRule.MSB_HISTOGRAM, Fraction(1, 100), period=period, window=window)
    followed = ExponentHistory(TensorPolicy(update), BITS, 0)
    expected = 0
    for number, record in enumerate(records, 1):
        decision = followed.observe(record)
        assert (decision is None) == (number % period != 0)
        if decision is not None:
            merged = EMPTY_RECORD
            for other in records[max(0, number - window) : number]:
                merged = merged.merge(other)
            expected = decide(update, merged, BITS, expected)
        assert followed.exponent == expected


def test_a_window_remembers_what_one_record_misses():
    followed = history(window=3)
    exponents = []
    for top in (9, 2, 2, 2, 2):
        followed.observe(seen(top))
        exponents.append(followed.exponent)
    assert exponents == [3, 3, 3, -4, -4]


def test_a_window_may_be_longer_than_the_period_and_decides_before_it_is_full():
    followed = history(period=2, window=4)
    decisions = [followed.observe(seen(top)) for top in (9, 2, 2, 2, 2, 2)]
    assert [decision and decision.new for decision in decisions] == [None, 3, None, 3, None, -4]
    assert decisions[1].samples == 200
    assert decisions[3].samples == decisions[5].samples == 400


def test_growth_is_immediate_and_shrinking_waits():
    followed = history(exponent=0, patience=3)
    verdicts = []
    for top in (2, 1, 8, 2, 1, 0, 0):
        decision = followed.observe(seen(top))
        verdicts.append((str(decision.verdict), decision.new, decision.quiet))
    assert verdicts == [
        ("waits", 0, 1),
        ("waits", 0, 2),
        ("grew", 2, 0),
        ("waits", 2, 1),
        ("waits", 2, 2),
        ("shrank", -4, 3),  # the most that one of the three asked for
        ("waits", -4, 1),
    ]


def test_a_decision_for_the_present_exponent_ends_the_quiet():
    followed = history(exponent=0, patience=2)
    for top in (1, 6, 1, 6):
        assert followed.observe(seen(top)).new == 0


def test_decisions_without_information_change_nothing():
    followed = history(exponent=5, patience=2)
    assert followed.observe(seen(3)).verdict is Verdict.WAITS
    for record in (None, EMPTY_RECORD, StatisticsRecord({}, {}, 7, 7)):
        decision = followed.observe(record)
        assert (decision.verdict, decision.old, decision.new) == (Verdict.UNKNOWN, 5, 5)
    assert followed.observe(seen(3)).verdict is Verdict.SHRANK


def test_exponents_stay_in_their_range_and_say_so():
    followed = history(exponent=0, exponent_range=(-2, 3))
    up, again, down = (followed.observe(seen(top)) for top in (30, 30, -30))
    assert (up.new, up.clamped, up.wanted, up.verdict) == (3, True, 24, Verdict.GREW)
    assert (again.new, again.clamped, again.verdict) == (3, True, Verdict.KEPT)
    assert (down.new, down.clamped, down.verdict) == (-2, True, Verdict.SHRANK)


@pytest.mark.parametrize(("rule", "kept"), [(ExponentRule.MSB_MAX, []), (ExponentRule.LSB_MIN, [[4, 100]])])
def test_a_state_holds_what_the_rule_reads(rule, kept):
    followed = ExponentHistory(TensorPolicy(UpdatePolicy(rule, window=2)), BITS, 0)
    followed.observe(StatisticsRecord({9: 100}, {4: 100}, 0, 100))
    (record,) = json.loads(json.dumps(followed.state()))["records"]
    assert record == [[[9, 100]], kept, 0, 100]


def test_fixed_decides_nothing():
    followed = ExponentHistory(TensorPolicy(UpdatePolicy(ExponentRule.FIXED)), BITS, -3)
    assert followed.observe(seen(30)) is None
    assert followed.exponent == -3
    assert followed.state()["records"] == []


def test_a_decision_explains_itself():
    update = UpdatePolicy(ExponentRule.MSB_HISTOGRAM, Fraction(1, 100), window=2)
    followed = ExponentHistory(TensorPolicy(update), BITS, -2)
    record = StatisticsRecord({3: 195, 5: 4, 9: 1}, {0: 200}, 0, 200)
    facts = followed.observe(record).facts()
    assert json.loads(json.dumps(facts)) == {
        "rule": "msb-histogram(r_max = 0.01, window = 2)",
        "old": -2,
        "new": -1,
        "wanted": -1,
        "verdict": "grew",
        "samples": 200,
        "overflowing": 5,
        "tolerated": 2,
        "small_sample": False,
        "quiet": 0,
        "clamped": False,
        "rate": 0.025,
    }


@pytest.mark.parametrize(
    ("confidence", "samples", "expected"),
    [
        (None, 99, 10),  # less than one of 99 samples: nothing is tolerated, one spare bit
        (None, 100, 3),  # one of 100 samples may overflow
        ("0.95", 298, 10),  # 299 samples without overflow would prove 1 % at 95 %
        ("0.95", 299, 9),  # ... but one overflow is one too many
        ("0.95", 473, 3),  # 473 with one overflow prove it
    ],
)
def test_small_samples_get_headroom(confidence, samples, expected):
    confidence = None if confidence is None else Fraction(confidence)
    update = UpdatePolicy(ExponentRule.MSB_HISTOGRAM, Fraction(1, 100), confidence=confidence, headroom=1)
    record = StatisticsRecord({3: samples - 1, 9: 1}, {0: samples}, 0, samples)
    assert decide(update, record, BITS, 0) == expected - (BITS - 2)

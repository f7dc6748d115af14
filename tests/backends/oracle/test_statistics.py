"""Bit positions and records against the definition on Python integers."""

from collections import Counter
from functools import reduce

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from binpoint.backends.kernel import EMPTY_RECORD
from binpoint.backends.oracle.statistics import NO_POSITION, lsb_positions, merge, msb_positions, record

INT64 = st.integers(-(2**63), 2**63 - 1)
WIDE = st.integers(-(2**90), 2**90)
WIDEST = 100


def differing_positions(value: int) -> list[int]:
    """Bits that differ from the sign bit, lowest first, straight from the definition."""
    sign = value >> WIDEST & 1
    return [bit for bit in range(WIDEST) if value >> bit & 1 != sign]


def integers(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64 if all(-(2**63) <= v < 2**63 for v in values) else object)


@pytest.mark.parametrize(
    ("value", "msb"), [(1, 0), (-2, 0), (64, 6), (-64, 5), (-65, 6), (0, NO_POSITION), (-1, NO_POSITION)]
)
def test_positions_of_the_specification(value, msb):
    assert msb_positions(np.array([value])).tolist() == [msb]


@given(st.lists(INT64 | WIDE, min_size=1, max_size=20))
@example([2**63 - 1, -(2**63), -(2**63) + 1, 2**62, -(2**62), -(2**62) - 1, 0, -1])
@example([2**90, -(2**90), 0, -1])
def test_positions_equal_the_definition(values):
    positions = [differing_positions(value) for value in values]
    assert msb_positions(integers(values)).tolist() == [max(each, default=NO_POSITION) for each in positions]
    assert lsb_positions(integers(values)).tolist() == [min(each, default=NO_POSITION) for each in positions]


@given(st.lists(INT64 | WIDE), st.integers(-300, 300))
def test_record_counts_absolute_positions(values, exponent):
    positions = [differing_positions(value) for value in values]
    seen = record(integers(values), exponent)
    assert seen.msb == Counter(max(each) + exponent for each in positions if each)
    assert seen.lsb == Counter(min(each) + exponent for each in positions if each)
    assert seen.none == sum(not each for each in positions)
    assert seen.samples == len(values)
    assert seen.msb_max == max(seen.msb, default=None)
    assert seen.lsb_min == min(seen.lsb, default=None)


@given(st.lists(st.lists(INT64, max_size=6), max_size=5), st.randoms(use_true_random=False))
def test_shards_merge_in_any_order(shards, random):
    whole = record(integers([value for shard in shards for value in shard]), -7)
    records = [record(integers(shard), -7) for shard in shards]
    random.shuffle(records)
    assert merge(records) == whole
    assert reduce(lambda left, right: right.merge(left), records, EMPTY_RECORD) == whole


def test_no_values_have_no_positions():
    seen = record(np.zeros((0, 4, 2), dtype=np.int64), 3)
    assert seen == EMPTY_RECORD
    assert seen.msb_max is None
    assert seen.lsb_min is None


def test_records_do_not_depend_on_the_array_shape():
    values = np.random.default_rng(0).integers(-1000, 1000, (2, 3, 4, 5))
    assert record(values, 1) == record(values.ravel(), 1)

"""When exact operations move blocks whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.support.blocks import (
    ELEMENTS,
    block_count,
    has_one_exponent,
    pool_move,
    reshape_move,
    resize_move,
    strided,
)
from binpoint.support.numeric import Granularity

FOUR = Granularity((4, 4))


@pytest.mark.parametrize(
    ("before", "after", "kernel", "stride", "padding", "expected"),
    [
        ((2, 16, 16), (2, 8, 8), 2, 2, 0, Granularity((2, 2))),
        ((2, 13, 13), (2, 6, 6), 2, 2, 0, Granularity((2, 2))),
        ((2, 16, 16), (2, 16, 16), 1, 1, 0, FOUR),
        ((2, 16, 16), (2, 16, 16), 3, 1, 1, None),
        ((2, 13, 13), (2, 13, 13), 2, 1, 0, None),
        ((2, 15, 15), (2, 5, 5), 3, 3, 0, None),
        ((2, 4, 4), (2, 1, 1), 4, 4, 0, Granularity((1, 1))),
        ((2, 16, 16), (2, 1, 1), 16, 16, 0, None),
    ],
)
def test_pools(before, after, kernel, stride, padding, expected):
    move = pool_move(before, after, (kernel, kernel), (stride, stride), (padding, padding, padding, padding))
    assert move.granularity(FOUR) == expected
    assert move.granularity(Granularity()) == Granularity()
    assert expected is None or move.keeps(FOUR, expected)


def test_resizes():
    assert resize_move((3, 8, 8), (3, 16, 16)).granularity(FOUR) == Granularity((8, 8))
    assert resize_move((3, 8, 8), (3, 16, 24)).granularity(Granularity((2, 1), True)) == Granularity((4, 3), True)
    # 5 rows out of 4 read rows 0, 0, 1, 2, 3: 1-row blocks have no one size.
    assert resize_move((3, 4, 4), (3, 5, 4)).granularity(Granularity((1, 4))) is None
    smaller = resize_move((3, 8, 8), (3, 16, 16))
    assert smaller.keeps(FOUR, Granularity((2, 8)))
    assert not smaller.keeps(FOUR, Granularity((16, 8)))
    assert not smaller.keeps(FOUR, Granularity())
    assert not smaller.keeps(Granularity((4, 4), True), Granularity((8, 8)))
    assert not smaller.keeps(Granularity(), Granularity(None, True))
    assert resize_move((1, 8, 8), (1, 16, 16)).keeps(Granularity((4, 4), True), Granularity((8, 8)))


@given(
    size=st.integers(1, 12),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 4),
    before=st.integers(1, 6),
    after=st.integers(1, 6),
)
def test_blocks_move_whole_where_all_elements_of_one_read_one(size, kernel, stride, before, after):
    kernel = min(kernel, size)
    rows = (size - kernel) // stride + 1
    move = pool_move((1, size, 1), (1, rows, 1), (kernel, 1), (stride, 1), (0, 0, 0, 0))
    read = [{row // before for row in range(index * stride, index * stride + kernel)} for index in range(rows)]
    groups = [set().union(*read[start : start + after]) for start in range(0, rows, after)]
    assert move.keeps(Granularity((before, 1)), Granularity((after, 1))) == all(len(group) == 1 for group in groups)


def test_reshapes_give_elements_exponents_of_their_own():
    assert reshape_move((4, 8, 8)).granularity(FOUR) == ELEMENTS
    assert reshape_move((4, 3, 4)).granularity(FOUR) == Granularity()
    assert reshape_move((4, 3, 4)).granularity(Granularity((4, 4), True)) == ELEMENTS
    assert reshape_move((1, 3, 4)).granularity(Granularity(None, True)) == Granularity()


def test_strides_cut_blocks():
    assert strided(FOUR, (2, 1)) == Granularity((2, 4))
    assert strided(Granularity((1, 3), True), (2, 2)) == Granularity((1, 1), True)
    assert strided(Granularity(), (2, 2)) == Granularity()


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_blocks_are_counted(height, width, rows, columns, per_channel):
    granularity, shape = Granularity((rows, columns), per_channel), (3, height, width)
    channels, ys, xs = np.indices(shape)
    numbers = set(zip((channels * per_channel).flat, (ys // rows).flat, (xs // columns).flat, strict=True))
    assert block_count(granularity, shape) == len(numbers)
    assert has_one_exponent(granularity, shape) == (len(numbers) == 1)

"""How many exponents a PE meets: the numbers of JP7819764B2, and a count by hand for any window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.scheduling.positions import Window, target_positions, window_positions

MAP = (64, 64)
PE_BLOCK = (4, 4)


@pytest.mark.parametrize(
    ("block", "stride", "target", "window"),
    [
        ((4, 4), (1, 1), 9, 4),  # fig. 5A
        ((4, 4), (2, 2), 9, 4),  # fig. 5B
        ((2, 2), (1, 1), 16, 4),  # fig. 5C
        ((1, 1), (1, 1), 36, 9),  # an exponent a pixel, as in floating point
        ((64, 64), (1, 1), 1, 1),
    ],
)
def test_the_figures(block, stride, target, window):
    sliding = Window(MAP, (3, 3), stride, (1, 1))
    assert sliding.target_block(PE_BLOCK) == (6, 6)
    assert target_positions(sliding, block, (6, 6)) == target
    assert window_positions(sliding, block) == window


def met(size, block, first, extent):
    """The blocks along one axis that an interval meets, inside of the map."""
    return len({element // block for element in range(first, first + extent) if 0 <= element < size})


@given(
    size=st.integers(1, 30),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 4),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 3),
    block=st.integers(1, 9),
    pe_block=st.integers(1, 6),
)
def test_counts_are_those_of_every_place(size, kernel, stride, padding, dilation, block, pe_block):
    window = Window((size, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation, 1))
    extent = (kernel - 1) * dilation + 1
    expected = max(met(size, block, first, extent) for first in range(-padding, size + extent, stride))
    assert window_positions(window, (block, 1)) == max(1, expected)
    target = window.target_block((pe_block, 1))
    assert target[0] >= extent
    step = target[0] - extent + 1
    assert step % stride == 0
    expected = max(met(size, block, first, target[0]) for first in range(-padding, size + target[0], step))
    assert target_positions(window, (block, 1), target) == max(1, expected)

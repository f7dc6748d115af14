"""Windows along one axis, against counting them one by one."""

import time

from hypothesis import assume, given
from hypothesis import strategies as st

from binpoint.support.shapes import window_elements, window_output

SIZES = st.integers(1, 12)


@given(SIZES, SIZES, st.integers(1, 5), st.integers(0, 11), st.integers(0, 11), st.integers(1, 3))
def test_window_output(size, kernel, stride, before, after, dilation):
    extent = dilation * (kernel - 1) + 1
    starts = [start for start in range(-before, size + after, stride) if start + extent <= size + after]
    assert max(window_output(size, kernel, stride, before, after, dilation), 0) == len(starts)


@given(SIZES, SIZES, st.integers(1, 5), st.integers(0, 11), st.integers(0, 11))
def test_window_elements(size, kernel, stride, before, after):
    assume(max(before, after) < kernel)
    windows = range(window_output(size, kernel, stride, before, after))
    counts = {
        len(range(max(start, 0), min(start + kernel, size))) for start in (index * stride - before for index in windows)
    }
    assert window_elements(size, kernel, stride, before, after) == counts


def test_a_long_axis_takes_no_time():
    start = time.perf_counter()
    assert window_elements(2**40, 3, 1, 1, 1) == {2, 3}
    assert time.perf_counter() - start < 1

"""Windows by their definition: element (r, s) of window (i, j) is x[i * stride + r * dilation - top, ...]."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from binpoint.backends.windows import combine, fold, gather_nearest, nearest, window_counts, windows

PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(PAIR, PAIR, PAIR, st.tuples(*[st.integers(0, 3)] * 4), st.integers(7, 9), st.integers(7, 9))
def test_windows(kernel, stride, dilation, padding, height, width):
    x = np.arange(1, 2 * 3 * height * width + 1).reshape(2, 3, height, width)
    view = windows(x, kernel, stride, padding, dilation, fill=-7)
    top, left, bottom, right = padding
    assert view.shape[2] == (height + top + bottom - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1
    assert view.shape[3] == (width + left + right - dilation[1] * (kernel[1] - 1) - 1) // stride[1] + 1
    assert view.shape[4:] == kernel
    for i, j, r, s in np.ndindex(view.shape[2:]):
        h, w = i * stride[0] + r * dilation[0] - top, j * stride[1] + s * dilation[1] - left
        inside = 0 <= h < height and 0 <= w < width
        assert (view[:, :, i, j, r, s] == (x[:, :, h, w] if inside else -7)).all()


def test_window_counts_leave_padding_out():
    assert window_counts((4, 3), (3, 3), (1, 2), (1, 1, 1, 1)).tolist() == [[4, 4], [6, 6], [6, 6], [4, 4]]


def test_nearest_up_and_down():
    x = np.array([[[[1, 2, 3]]]])
    assert nearest(x, (2, 6)).tolist() == [[[[1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 3, 3]]]]
    assert nearest(x, (1, 2)).tolist() == [[[[1, 2]]]]
    assert nearest(x, (1, 4)).tolist() == [[[[1, 1, 2, 3]]]]


@given(PAIR, PAIR, PAIR, st.tuples(*[st.integers(0, 3)] * 4), st.integers(7, 9), st.integers(7, 9))
def test_fold_is_the_adjoint_of_windows(kernel, stride, dilation, padding, height, width):
    """<windows(x), y> = <x, fold(y)> for all x and y."""
    rng = np.random.default_rng(height)
    x = rng.integers(-99, 99, (2, 3, height, width))
    view = windows(x, kernel, stride, padding, dilation)
    y = rng.integers(-99, 99, view.shape)
    folded = fold(y, (height, width), stride, padding, dilation)
    assert folded.shape == x.shape
    assert (view * y).sum() == (x * folded).sum()


@given(*[st.integers(1, 6)] * 4)
def test_gather_nearest_is_the_adjoint_of_nearest(height, width, out_h, out_w):
    rng = np.random.default_rng(height)
    x, y = rng.integers(-99, 99, (2, 3, height, width)), rng.integers(-99, 99, (2, 3, out_h, out_w))
    gathered = gather_nearest(y, (height, width))
    assert gathered.shape == x.shape
    assert (nearest(x, (out_h, out_w)) * y).sum() == (x * gathered).sum()


@given(PAIR, PAIR)
def test_combine(kernel, stride):
    view = windows(np.random.default_rng(0).integers(-99, 99, (2, 3, 5, 6)), kernel, stride, (0, 1, 1, 0))
    assert (combine(view, np.add) == view.sum(axis=(4, 5))).all()
    assert (combine(view, np.maximum) == view.max(axis=(4, 5))).all()

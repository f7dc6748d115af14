"""The windows of convolutions and pools, and nearest-neighbour reading: where outputs look in the input."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray


def windows(
    images: NDArray[Any],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int] = (1, 1),
    fill: float = 0,
) -> NDArray[Any]:
    """All windows of (N, C, H, W) images as a view (N, C, H_out, W_out, R, S).

    Padding is (top, left, bottom, right) elements of value `fill`.
    """
    top, left, bottom, right = padding
    padded = np.pad(images, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    extent = tuple(step * (size - 1) + 1 for size, step in zip(kernel, dilation, strict=True))
    every = sliding_window_view(padded, extent, axis=(2, 3))
    return every[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def combine(view: NDArray[Any], operator: np.ufunc) -> NDArray[Any]:
    """The elements of each window combined by np.add or np.maximum: (N, C, H_out, W_out).

    Goes over the taps, which is many times faster than reducing the two short axes.
    """
    combined = view[..., 0, 0].copy()
    for tap in np.ndindex(view.shape[4:]):
        if tap != (0, 0):
            operator(combined, view[..., *tap], out=combined)
    return combined


def window_counts(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int, int, int]
) -> NDArray[np.int64]:
    """How many elements of an H x W map, padding excluded, each window holds: (H_out, W_out)."""
    ones = np.ones((1, 1, *size), dtype=np.int64)
    return np.asarray(combine(windows(ones, kernel, stride, padding), np.add)[0, 0])


def nearest(images: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Nearest neighbour to (height, width): output row i reads row i * H // height, columns alike."""
    rows = np.arange(size[0]) * images.shape[2] // size[0]
    columns = np.arange(size[1]) * images.shape[3] // size[1]
    return images[:, :, rows[:, np.newaxis], columns]

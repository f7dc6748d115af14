"""The windows of convolutions and pools, and nearest-neighbour reading: where outputs look in the input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import DTypeLike, NDArray


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


def fold(
    columns: NDArray[Any],
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int] = (1, 1),
) -> NDArray[Any]:
    """The adjoint of `windows`: elements of windows (N, C, H_out, W_out, R, S) added to where they came from.

    Returns (N, C, H, W) with `size` = (H, W); what belongs to the padding is dropped.
    """
    top, left, bottom, right = padding
    count, channels, height, width = columns.shape[:4]
    padded = np.zeros((count, channels, top + size[0] + bottom, left + size[1] + right), dtype=columns.dtype)
    for r, s in np.ndindex(columns.shape[4:]):
        first_row, first_column = r * dilation[0], s * dilation[1]
        last_row, last_column = first_row + stride[0] * (height - 1), first_column + stride[1] * (width - 1)
        rows = slice(first_row, last_row + 1, stride[0])
        padded[:, :, rows, first_column : last_column + 1 : stride[1]] += columns[..., r, s]
    return padded[:, :, top : top + size[0], left : left + size[1]]


def combine(view: NDArray[Any], operator: np.ufunc) -> NDArray[Any]:
    """The elements of each window combined by np.add or np.maximum: (N, C, H_out, W_out).

    Goes over the taps, which is many times faster than reducing the two short axes.
    """
    combined = view[..., 0, 0].copy()
    for tap in np.ndindex(view.shape[4:]):
        if tap != (0, 0):
            operator(combined, view[..., *tap], out=combined)
    return combined


def first_largest(view: NDArray[Any]) -> Iterator[tuple[tuple[int, int], NDArray[np.bool_]]]:
    """For each tap of the windows, row by row: where it is the first of the largest elements of its window."""
    greatest = combine(view, np.maximum)
    waiting = np.ones(greatest.shape, dtype=np.bool_)
    for r, s in np.ndindex(view.shape[4:]):
        first = waiting & (view[..., r, s] == greatest)
        yield (r, s), first
        waiting &= ~first


def empty_columns(shape: tuple[int, ...], kernel: tuple[int, int], dtype: DTypeLike) -> NDArray[Any]:
    """Uninitialised elements of windows, shape (N, C, H_out, W_out) and then (R, S), each tap contiguous."""
    return np.empty((*kernel, *shape), dtype).transpose(2, 3, 4, 5, 0, 1)


def window_counts(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int, int, int]
) -> NDArray[np.int64]:
    """How many elements of an H x W map, padding excluded, each window holds: (H_out, W_out)."""
    ones = np.ones((1, 1, *size), dtype=np.int64)
    return np.asarray(combine(windows(ones, kernel, stride, padding), np.add)[0, 0])


def nearest(images: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Nearest neighbour to (height, width): output row i reads row i * H // height, columns alike."""
    rows, columns = (_sources(images.shape[axis], size[axis - 2]) for axis in (2, 3))
    return images[:, :, rows[:, np.newaxis], columns]


def gather_nearest(maps: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """The adjoint of `nearest`: each element of the resized maps added to the one of (H, W) = `size` that it reads."""
    rows = np.zeros((*maps.shape[:2], size[0], maps.shape[3]), dtype=maps.dtype)
    for target, source in enumerate(_sources(size[0], maps.shape[2])):
        rows[:, :, source] += maps[:, :, target]
    result = np.zeros((*maps.shape[:2], *size), dtype=maps.dtype)
    for target, source in enumerate(_sources(size[1], maps.shape[3])):
        result[:, :, :, source] += rows[:, :, :, target]
    return result


def _sources(size: int, resized: int) -> NDArray[np.int64]:
    """What each element along one axis of a resized map reads."""
    return np.arange(resized) * size // resized

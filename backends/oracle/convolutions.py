"""Convolutions and their two gradients, exactly, as matrix products."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from binpoint.backends.kernel import Convolution
from binpoint.backends.oracle.exact import Integers, add, holder, magnitude, matrix_product
from binpoint.backends.oracle.part import Channels, Rows
from binpoint.backends.windows import fold, windows

REDUCTION = 128
"""Sums over images add up matrix products over about this many windows: the matrix of windows then stays small."""


def convolution(spec: Convolution, images: Integers, weight: Integers, channels: Channels) -> Integers:
    """y[n, k, h, v] = sum over c, r, s of x[n, c, h * stride + r * dilation - padding, ...] * w[k, c, r, s]."""
    inputs_per_group = images.shape[1] // spec.groups
    results = []
    for group, first, last in _groups_of(spec, weight.shape[0], channels):
        group_images = images[:, group * inputs_per_group : (group + 1) * inputs_per_group]
        results.append(_group_convolution(spec, group_images, weight[first:last]))
    return np.concatenate(results, axis=1)


def data_gradient(
    spec: Convolution, gradient: Integers, weight: Integers, size: tuple[int, int], channels: Channels
) -> Integers:
    """dx of the given input channels, (N, channels, H, W), from dy (N, K, H_out, W_out); `size` is (H, W) of x."""
    outputs_per_group, inputs_per_group = weight.shape[0] // spec.groups, weight.shape[1]
    results = []
    for group, first, last in _groups_of(spec, spec.groups * inputs_per_group, channels):
        outputs = slice(group * outputs_per_group, (group + 1) * outputs_per_group)
        part = slice(first - group * inputs_per_group, last - group * inputs_per_group)
        results.append(_group_data_gradient(spec, gradient[:, outputs], weight[outputs, part], size))
    return np.concatenate(results, axis=1)


def weight_gradient(
    spec: Convolution, images: Integers, gradient: Integers, rows: Rows, channels: Channels
) -> Integers:
    """dw of the given output channels (rows) and input channels within the group, (rows, channels, R, S)."""
    inputs_per_group = images.shape[1] // spec.groups
    results = []
    for group, first, last in _groups_of(spec, gradient.shape[1], rows):
        part = slice(group * inputs_per_group + channels[0], group * inputs_per_group + channels[1])
        results.append(_group_weight_gradient(spec, images[:, part], gradient[:, first:last]))
    return np.concatenate(results)


def _groups_of(spec: Convolution, count: int, part: Channels) -> Iterator[tuple[int, int, int]]:
    """The groups that a range of `count` channels touches: (group, first channel, last channel)."""
    per_group = count // spec.groups
    for group in range(spec.groups):
        first, last = max(part[0], group * per_group), min(part[1], (group + 1) * per_group)
        if first < last:
            yield group, first, last


def _window_rows(spec: Convolution, images: Integers) -> Integers:
    """The windows as a matrix: a row for each (n, h, w) of the output, a column for each (c, r, s)."""
    view = windows(images, spec.kernel, spec.stride, spec.padding, spec.dilation)
    count, inputs, height, width = view.shape[:4]
    return view.transpose(0, 2, 3, 1, 4, 5).reshape(count * height * width, inputs * spec.kernel[0] * spec.kernel[1])


def _pixel_rows(maps: Integers) -> Integers:
    """(N, C, H, W) as a matrix: a row for each (n, h, w), a column for each channel."""
    return maps.transpose(0, 2, 3, 1).reshape(-1, maps.shape[1])


def _group_convolution(spec: Convolution, images: Integers, weight: Integers) -> Integers:
    height, width = windows(images[:1, :1], spec.kernel, spec.stride, spec.padding, spec.dilation).shape[2:4]
    product = matrix_product(_window_rows(spec, images), weight.reshape(len(weight), -1).T)
    return product.reshape(len(images), height, width, len(weight)).transpose(0, 3, 1, 2)


def _group_data_gradient(spec: Convolution, gradient: Integers, weight: Integers, size: tuple[int, int]) -> Integers:
    """What each window's products add to each of its elements, folded back onto the map."""
    count, outputs, height, width = gradient.shape
    product = matrix_product(_pixel_rows(gradient), weight.reshape(outputs, -1))
    columns = product.reshape(count, height, width, weight.shape[1], *spec.kernel).transpose(0, 3, 1, 2, 4, 5)
    columns = holder(columns, magnitude(columns) * spec.kernel[0] * spec.kernel[1])
    return fold(columns, size, spec.stride, spec.padding, spec.dilation)


def _group_weight_gradient(spec: Convolution, images: Integers, gradient: Integers) -> Integers:
    """A matrix product whose reduction runs over all windows, some images at a time."""
    count, outputs, height, width = gradient.shape
    inputs = images.shape[1]
    step = max(1, REDUCTION // (height * width))
    total = np.zeros((outputs, inputs * spec.kernel[0] * spec.kernel[1]), dtype=np.int64)
    for start in range(0, count, step):
        chunk = slice(start, start + step)
        total = add(total, matrix_product(_pixel_rows(gradient[chunk]).T, _window_rows(spec, images[chunk])))
    return total.reshape(outputs, inputs, *spec.kernel)

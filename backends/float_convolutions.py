"""Convolutions and their gradients in floating point, quick enough to train with: windows as columns, and BLAS.

Maps here are (C, N, H, W), channels outermost. The matrix of a layer's windows is then (C * R * S, N * H_out * W_out),
each of the three products is one product of matrices whatever the size of the maps, and nothing is transposed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from binpoint.backends.float_reference import FloatArray
from binpoint.backends.kernel import Convolution
from binpoint.backends.windows import fold
from binpoint.backends.workspace import Workspace

CHUNK_ELEMENTS = 1 << 19
"""Columns are made for as many images at a time as stay near this many elements, which a cache holds."""


def convolve(
    convolution: Convolution, maps: FloatArray, weight: FloatArray, size: tuple[int, int], workspace: Workspace
) -> FloatArray:
    """(K, N, H_out, W_out) from maps (C, N, H, W) and weights (K, C / groups, R, S); `size` is (H_out, W_out)."""
    groups, outputs = convolution.groups, len(weight)
    result = np.empty((outputs, maps.shape[1], *size), maps.dtype)
    rows = weight.reshape(groups, outputs // groups, -1)
    for images, columns in _columns(convolution, maps, size, workspace):
        result[:, images] = (rows @ columns).reshape(outputs, -1, *size)
    return result


def data_gradient(
    convolution: Convolution, gradient: FloatArray, weight: FloatArray, size: tuple[int, int], workspace: Workspace
) -> FloatArray:
    """dx (C, N, H, W) from dy (K, N, H_out, W_out); `size` is (H, W)."""
    groups, (outputs, count, *pixels) = convolution.groups, gradient.shape
    channels = weight.shape[1] * groups
    rows = weight.reshape(groups, outputs // groups, -1).transpose(0, 2, 1)
    result = np.empty((channels, count, *size), gradient.dtype)
    for images in _chunks(count, weight[0].size * groups * pixels[0] * pixels[1]):
        part = gradient[:, images]
        shape = channels, *convolution.kernel, part.shape[1], *pixels
        product = workspace.array("columns", (groups, rows.shape[1], part[0].size))
        np.matmul(rows, part.reshape(groups, outputs // groups, -1), out=product)
        columns = product.reshape(shape).transpose(0, 3, 4, 5, 1, 2)
        result[:, images] = fold(columns, size, convolution.stride, convolution.padding, convolution.dilation)
    return result


def weight_gradient(
    convolution: Convolution, maps: FloatArray, gradient: FloatArray, workspace: Workspace
) -> FloatArray:
    """dw (K, C / groups, R, S) from maps (C, N, H, W) and dy (K, N, H_out, W_out)."""
    groups, (outputs, _, height, width) = convolution.groups, gradient.shape
    inputs = len(maps) // groups
    total = np.zeros((groups, outputs // groups, inputs * convolution.kernel[0] * convolution.kernel[1]), maps.dtype)
    for images, columns in _columns(convolution, maps, (height, width), workspace):
        total += gradient[:, images].reshape(groups, outputs // groups, -1) @ columns.transpose(0, 2, 1)
    return total.reshape(outputs, inputs, *convolution.kernel)


def _columns(
    convolution: Convolution, maps: FloatArray, size: tuple[int, int], workspace: Workspace
) -> Iterator[tuple[slice, FloatArray]]:
    """The windows of some images at a time: (groups, C / groups * R * S, images * H_out * W_out).

    The array holds until the next is made.
    """
    channels, count, height, width = maps.shape
    kernel, stride, dilation = convolution.kernel, convolution.stride, convolution.dilation
    top, left, bottom, right = convolution.padding
    padded = workspace.array("padded", (channels, count, top + height + bottom, left + width + right))
    padded[...] = 0
    padded[:, :, top : top + height, left : left + width] = maps
    for images in _chunks(count, channels * kernel[0] * kernel[1] * size[0] * size[1]):
        part = padded[:, images]
        columns = workspace.array("columns", (channels, *kernel, part.shape[1], *size))
        for r, s in np.ndindex(kernel):
            rows = slice(r * dilation[0], r * dilation[0] + stride[0] * (size[0] - 1) + 1, stride[0])
            first = s * dilation[1]
            columns[:, r, s] = part[:, :, rows, first : first + stride[1] * (size[1] - 1) + 1 : stride[1]]
        yield images, columns.reshape(convolution.groups, channels // convolution.groups * kernel[0] * kernel[1], -1)


def _chunks(images: int, elements_an_image: int) -> Iterator[slice]:
    """The images, as many at a time as the columns' size allows."""
    step = max(1, CHUNK_ELEMENTS // elements_an_image)
    for start in range(0, images, step):
        yield slice(start, min(start + step, images))

"""Pools and their gradients, exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import AveragePool, MaxPool, TensorSpec, reciprocal_constants
from binpoint.backends.oracle.exact import Integers, holder, magnitude, multiply
from binpoint.backends.windows import combine, empty_columns, first_largest, fold, window_counts, windows

PADDING_NEVER_WINS = np.iinfo(np.int64).min
"""What a max pool sees beyond the border."""


def reciprocals(pool: AveragePool, tensor: TensorSpec) -> tuple[NDArray[np.int64], int]:
    """The multiplier of each window of the map `tensor`, (H_out, W_out), and their common number of fraction bits."""
    counts = window_counts((tensor.height, tensor.width), pool.kernel, pool.stride, pool.padding)
    if pool.include_padding:
        counts = np.full_like(counts, pool.kernel[0] * pool.kernel[1])
    divisors, index = np.unique(counts, return_inverse=True)
    multipliers, fraction_bits = reciprocal_constants([int(divisor) for divisor in divisors], pool.constant_bits)
    table = np.array([multipliers[int(divisor)] for divisor in divisors], dtype=np.int64)
    return table[index].reshape(counts.shape), fraction_bits


def average_pool(pool: AveragePool, images: Integers, tensor: TensorSpec) -> Integers:
    """(sum of the window) * reciprocal."""
    sums = combine(windows(images, pool.kernel, pool.stride, pool.padding), np.add)
    return multiply(sums, reciprocals(pool, tensor)[0])


def average_pool_gradient(pool: AveragePool, gradient: Integers, tensor: TensorSpec) -> Integers:
    """dy * reciprocal at each element of the window; windows that overlap add up. `tensor` is the pool's input."""
    scaled = multiply(gradient, reciprocals(pool, tensor)[0])
    scaled = holder(scaled, magnitude(scaled) * pool.kernel[0] * pool.kernel[1])
    columns = np.broadcast_to(scaled[..., np.newaxis, np.newaxis], (*scaled.shape, *pool.kernel))
    return fold(columns, (tensor.height, tensor.width), pool.stride, pool.padding)


def max_pool(pool: MaxPool, images: Integers) -> Integers:
    """The largest mantissa of each window."""
    return combine(windows(images, pool.kernel, pool.stride, pool.padding, fill=PADDING_NEVER_WINS), np.maximum)


def max_pool_gradient(pool: MaxPool, images: Integers, gradient: Integers) -> Integers:
    """dy at the first of the largest elements of its window, row by row; windows that overlap add up."""
    view = windows(images, pool.kernel, pool.stride, pool.padding, fill=PADDING_NEVER_WINS)
    columns = empty_columns(gradient.shape, pool.kernel, gradient.dtype)
    for tap, first in first_largest(view):
        columns[..., *tap] = np.where(first, gradient, 0)
    return fold(columns, images.shape[2:], pool.stride, pool.padding)

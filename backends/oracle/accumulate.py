"""The exact value of each operation before it meets the accumulator's width (SEMANTICS section 2).

Every function takes (N, C, H, W) mantissas, the half-open range of output channels to compute, and returns
exact integers of any size. The exponent that belongs to them is `accumulator_exponent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate as running_sums
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import (
    Accumulator,
    Add,
    AveragePool,
    Concat,
    Convolution,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    Sigmoid,
    Softmax,
    TensorSpec,
    Widen,
    reciprocal_constants,
)
from binpoint.backends.oracle.exact import Integers, add, matrix_product, multiply
from binpoint.backends.oracle.fixed_point import align
from binpoint.backends.tables import FRACTION_BITS, exponential_table, sigmoid_table
from binpoint.backends.windows import combine, window_counts, windows

Channels = tuple[int, int]
"""Output channels, first (inclusive) and last (exclusive)."""


def exact_sum(
    spec: KernelSpec,
    parameters: KernelParameters,
    inputs: Sequence[Integers],
    exponents: KernelExponents,
    channels: Channels,
) -> Integers:
    """The operation's exact result at `accumulator_exponent`, bias excluded."""
    first, last = channels
    match spec.operation:
        case Convolution() as convolution:
            if parameters.weight is None:
                raise ValueError(f"kernel {spec.name}: a convolution needs weights")
            return _convolution(convolution, inputs[0], parameters.weight, channels)
        case AveragePool() as pool:
            return _average_pool(pool, inputs[0][:, first:last], spec.inputs[0])
        case Add():
            aligned = _aligned(spec, [each[:, first:last] for each in inputs], exponents)
            total = aligned[0]
            for each in aligned[1:]:
                total = add(total, each)
            return total
        case Concat():
            return np.concatenate(_aligned(spec, _parts(inputs, channels), exponents), axis=1)
        case Widen():
            return inputs[0][:, first:last]
        case Sigmoid():
            bits = spec.inputs[0].bits
            return np.take(sigmoid_table(bits, exponents.inputs[0]), inputs[0][:, first:last] + (1 << (bits - 1)))
        case Softmax():
            return _softmax(inputs[0], spec.inputs[0].bits, exponents.inputs[0])[:, first:last]
        case _:
            raise ValueError(f"kernel {spec.name}: {type(spec.operation).__name__} does not accumulate")


def accumulator_exponent(spec: KernelSpec, exponents: KernelExponents) -> int:
    """The exponent of `exact_sum`."""
    match spec.operation:
        case Convolution():
            return exponents.inputs[0] + exponents.weight
        case AveragePool() as pool:
            return exponents.inputs[0] - reciprocals(pool, spec.inputs[0])[1]
        case Add() | Concat():
            bits = max(tensor.bits for tensor in spec.inputs)
            return alignment_exponent(exponents.inputs, bits, spec.accumulator)
        case Sigmoid() | Softmax():
            return -FRACTION_BITS
        case _:
            return exponents.inputs[0]


def alignment_exponent(exponents: Sequence[int], bits: int, accumulator: Accumulator) -> int:
    """The exponent at which operands of an add or concat meet.

    The finest of them, unless that would shift the coarsest operand of `bits` bits out of the accumulator:
    room is kept for as many operands as there are and for one bit of rounding.
    """
    carry_bits = (len(exponents) - 1).bit_length()  # ceil(log2(number of operands))
    room = accumulator.bits - bits - carry_bits - 1
    return max(min(exponents), max(exponents) - room)


def reciprocals(pool: AveragePool, tensor: TensorSpec) -> tuple[NDArray[np.int64], int]:
    """The multiplier of each window, (H_out, W_out), and their common number of fraction bits."""
    counts = window_counts((tensor.height, tensor.width), pool.kernel, pool.stride, pool.padding)
    if pool.include_padding:
        counts = np.full_like(counts, pool.kernel[0] * pool.kernel[1])
    divisors, index = np.unique(counts, return_inverse=True)
    multipliers, fraction_bits = reciprocal_constants([int(divisor) for divisor in divisors], pool.constant_bits)
    table = np.array([multipliers[int(divisor)] for divisor in divisors], dtype=np.int64)
    return table[index].reshape(counts.shape), fraction_bits


def _convolution(convolution: Convolution, images: Integers, weight: Integers, channels: Channels) -> Integers:
    """sum over c, r, s of x[n, c, h * stride + r * dilation, ...] * w[k, c, r, s], group by group."""
    groups = convolution.groups
    outputs_per_group, inputs_per_group = weight.shape[0] // groups, images.shape[1] // groups
    results = []
    for group in range(groups):
        first = max(channels[0], group * outputs_per_group)
        last = min(channels[1], (group + 1) * outputs_per_group)
        if first < last:
            group_images = images[:, group * inputs_per_group : (group + 1) * inputs_per_group]
            results.append(_group_convolution(convolution, group_images, weight[first:last]))
    return np.concatenate(results, axis=1)


def _group_convolution(convolution: Convolution, images: Integers, weight: Integers) -> Integers:
    """One group as a matrix product: a row for each window, a column for each output channel."""
    view = windows(images, convolution.kernel, convolution.stride, convolution.padding, convolution.dilation)
    count, _, height, width = view.shape[:4]
    outputs, window = weight.shape[0], weight[0].size
    rows = view.transpose(0, 2, 3, 1, 4, 5).reshape(count * height * width, window)
    product = matrix_product(rows, weight.reshape(outputs, window).T)
    return product.reshape(count, height, width, outputs).transpose(0, 3, 1, 2)


def _average_pool(pool: AveragePool, images: Integers, tensor: TensorSpec) -> Integers:
    multipliers, _ = reciprocals(pool, tensor)
    sums = combine(windows(images, pool.kernel, pool.stride, pool.padding), np.add)
    return multiply(sums, multipliers)


def _aligned(spec: KernelSpec, operands: Sequence[Integers], exponents: KernelExponents) -> list[Integers]:
    target = accumulator_exponent(spec, exponents)
    pairs = zip(operands, exponents.inputs, strict=True)
    return [align(operand, exponent, target, spec.rounding) for operand, exponent in pairs]


def _parts(inputs: Sequence[Integers], channels: Channels) -> list[Integers]:
    """What each input of a concat contributes to the range of output channels; possibly nothing."""
    borders = running_sums((each.shape[1] for each in inputs), initial=0)
    return [
        each[:, max(0, channels[0] - start) : max(0, min(channels[1], end) - start)]
        for each, (start, end) in zip(inputs, pairwise(borders), strict=True)
    ]


def _softmax(images: Integers, bits: int, exponent: int) -> Integers:
    """(E << 30) // sum(E) with E = e^-(max - x), over the channels of each pixel."""
    distances = images.max(axis=1, keepdims=True) - images
    exponentials = exponential_table(bits, exponent)[distances]
    return np.asarray((exponentials << FRACTION_BITS) // exponentials.sum(axis=1, keepdims=True))

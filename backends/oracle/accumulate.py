"""The exact value of each operation before it meets the accumulator's width (SEMANTICS section 2).

Every function takes (N, C, H, W) mantissas, the half-open range of output channels to compute, and returns
exact integers of any size. The exponent that belongs to them is `accumulator_exponent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate as running_sums
from itertools import pairwise

import numpy as np

from binpoint.backends.kernel import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    Sigmoid,
    Softmax,
    Widen,
)
from binpoint.backends.oracle.alignment import aligned, alignment_exponent, total
from binpoint.backends.oracle.convolutions import convolution
from binpoint.backends.oracle.exact import Integers
from binpoint.backends.oracle.gradients import gradient_exponent, gradient_sum
from binpoint.backends.oracle.part import Channels, Rows
from binpoint.backends.oracle.pools import average_pool
from binpoint.backends.oracle.pools import reciprocals as reciprocals
from binpoint.backends.tables import FRACTION_BITS, exponential_table, sigmoid_table


def exact_sum(
    spec: KernelSpec,
    parameters: KernelParameters,
    inputs: Sequence[Integers],
    exponents: KernelExponents,
    channels: Channels,
    rows: Rows | None = None,
) -> Integers:
    """The operation's exact result at `accumulator_exponent`, bias excluded.

    `rows` is for the gradients of parameters, whose rows are output channels: which of them, None for all.
    """
    first, last = channels
    match spec.operation:
        case Convolution() as operation:
            if parameters.weight is None:
                raise ValueError(f"kernel {spec.name}: a convolution needs weights")
            return convolution(operation, inputs[0], parameters.weight, channels)
        case AveragePool() as pool:
            return average_pool(pool, inputs[0][:, first:last], spec.inputs[0])
        case Add():
            return total(_aligned(spec, [each[:, first:last] for each in inputs], exponents))
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
            return gradient_sum(spec, parameters, inputs, exponents, channels, rows)


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
        case Widen():
            return exponents.inputs[0]
        case _:
            return gradient_exponent(spec, exponents)


def _aligned(spec: KernelSpec, operands: Sequence[Integers], exponents: KernelExponents) -> list[Integers]:
    return aligned(operands, exponents.inputs, accumulator_exponent(spec, exponents), spec.rounding)


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

"""The exact values of the gradient operations: those that accumulate, and those that only select mantissas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from binpoint.backends.gradients import (
    AveragePoolGradient,
    BiasGradient,
    ChannelAffine,
    ChannelSlice,
    ClipGradient,
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    LeakyReluGradient,
    MaxPoolGradient,
    ReluGradient,
    ResizeGradient,
    SigmoidGradient,
    sigmoid_gradient_fraction_bits,
)
from binpoint.backends.kernel import KernelExponents, KernelParameters, KernelSpec, TensorSpec
from binpoint.backends.oracle.alignment import aligned, alignment_exponent, total
from binpoint.backends.oracle.convolutions import data_gradient, weight_gradient
from binpoint.backends.oracle.exact import Integers, multiply
from binpoint.backends.oracle.fixed_point import quantize
from binpoint.backends.oracle.part import Channels, Rows
from binpoint.backends.oracle.pools import average_pool_gradient, max_pool_gradient, reciprocals
from binpoint.backends.tables import sigmoid_gradient_table
from binpoint.backends.windows import gather_nearest
from binpoint.support.numeric import FixedConstant, Rounding


def gradient_sum(
    spec: KernelSpec,
    parameters: KernelParameters,
    inputs: Sequence[Integers],
    exponents: KernelExponents,
    channels: Channels,
    rows: Rows | None,
) -> Integers:
    """The exact result of a gradient operation at `gradient_exponent`; see `accumulate.exact_sum`."""
    first, last = channels
    gradient = inputs[-1]
    match spec.operation:
        case ConvolutionDataGradient(convolution):
            size = spec.output.height, spec.output.width
            return data_gradient(convolution, gradient, _weight(spec, parameters), size, channels)
        case ConvolutionWeightGradient(convolution):
            return weight_gradient(convolution, inputs[0], gradient, rows or (0, gradient.shape[1]), channels)
        case BiasGradient():
            first_row, last_row = rows or (0, gradient.shape[1])
            return np.asarray(gradient[:, first_row:last_row].sum(axis=(0, 2, 3))).reshape(-1, 1, 1, 1)
        case MaxPoolGradient(pool):
            return max_pool_gradient(pool, inputs[0][:, first:last], gradient[:, first:last])
        case AveragePoolGradient(pool):
            return average_pool_gradient(pool, gradient[:, first:last], spec.output)
        case ResizeGradient():
            return gather_nearest(gradient[:, first:last], (spec.output.height, spec.output.width))
        case LeakyReluGradient():
            return gradient[:, first:last]  # scaled after the accumulator, as an activation
        case SigmoidGradient():
            bits, fraction_bits = spec.inputs[0].bits, sigmoid_gradient_fraction_bits(spec)
            table = sigmoid_gradient_table(bits, exponents.inputs[0], fraction_bits)
            return multiply(gradient[:, first:last], table[inputs[0][:, first:last] + (1 << (bits - 1))])
        case ChannelAffine():
            return _affine(spec, _weight(spec, parameters), inputs, exponents, channels)
        case _:
            raise ValueError(f"kernel {spec.name}: {type(spec.operation).__name__} does not accumulate")


def gradient_exponent(spec: KernelSpec, exponents: KernelExponents) -> int:
    """The exponent of `gradient_sum`."""
    gradient = exponents.inputs[-1]
    match spec.operation:
        case ConvolutionDataGradient():
            return gradient + exponents.weight
        case ConvolutionWeightGradient():
            return exponents.inputs[0] + gradient
        case AveragePoolGradient(pool):
            return gradient - reciprocals(pool, spec.output)[1]
        case SigmoidGradient():
            return gradient - sigmoid_gradient_fraction_bits(spec)
        case ChannelAffine(weight_bits):
            bits = max(tensor.bits for tensor in spec.inputs) + weight_bits
            products = [exponent + exponents.weight for exponent in exponents.inputs]
            return alignment_exponent(products, bits, spec.accumulator)
        case _:
            return gradient


def move_gradient(
    spec: KernelSpec, inputs: Sequence[Integers], exponents: KernelExponents, channels: Channels
) -> Integers:
    """The operations that let mantissas of dy through, or not, and keep its exponent."""
    first, last = channels
    gradient = inputs[-1]
    match spec.operation:
        case ReluGradient():
            return np.where(inputs[0][:, first:last] > 0, gradient[:, first:last], 0)
        case ClipGradient(limit):
            stored = inputs[0][:, first:last]
            inside = (stored > 0) & (stored < stored_limit(limit, exponents.inputs[0], spec.inputs[0]))
            return np.where(inside, gradient[:, first:last], 0)
        case ChannelSlice(start):
            return gradient[:, start + first : start + last]
        case _:
            raise ValueError(f"kernel {spec.name}: {type(spec.operation).__name__} is not exact")


def stored_limit(limit: FixedConstant, exponent: int, tensor: TensorSpec) -> int:
    """The clip's limit as a mantissa of the output that the forward kernel stores: half-even, saturated."""
    shift = exponent + limit.fraction_bits
    return int(quantize(np.asarray(limit.multiplier), shift, tensor.bits, Rounding.HALF_EVEN)[0])


def _affine(
    spec: KernelSpec, weight: Integers, inputs: Sequence[Integers], exponents: KernelExponents, channels: Channels
) -> Integers:
    """sum_i coefficient_i[c] * x_i; the weight is (inputs, C, 1, 1)."""
    first, last = channels
    products = [
        multiply(each[:, first:last], coefficient[np.newaxis, first:last].astype(np.int64))
        for each, coefficient in zip(inputs, weight, strict=True)
    ]
    product_exponents = [exponent + exponents.weight for exponent in exponents.inputs]
    return total(aligned(products, product_exponents, gradient_exponent(spec, exponents), spec.rounding))


def _weight(spec: KernelSpec, parameters: KernelParameters) -> Integers:
    if parameters.weight is None:
        raise ValueError(f"kernel {spec.name}: {type(spec.operation).__name__} needs weights")
    return parameters.weight

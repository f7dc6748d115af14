"""Bounds on a kernel's values, and the container that they prove sufficient."""

from __future__ import annotations

from math import prod

import numpy as np

from binpoint.backends.gradients import (
    AveragePoolGradient,
    BiasGradient,
    ChannelAffine,
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    MaxPoolGradient,
    ResizeGradient,
    SigmoidGradient,
    sigmoid_gradient_fraction_bits,
)
from binpoint.backends.kernel import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    KernelExponents,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    Sigmoid,
    Softmax,
    TensorSpec,
)
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.oracle.pools import reciprocals
from binpoint.backends.tables import FRACTION_BITS
from binpoint.backends.tensor_expression.plan import Container
from binpoint.backends.tensor_expression.runtime_scalars import (
    ALIGNED,
    alignment_shifts,
    folds,
    leaky_slope,
    slope_integers,
)
from binpoint.backends.tensor_expression.weights import Weight
from binpoint.support.numeric import Rounding

Magnitudes = tuple[int, ...]
"""Bounds on a kernel's weights: one for each input of an affine sum, else one, the sum of |w| over a filter."""


def weight_magnitudes(spec: KernelSpec, weight: Weight) -> Magnitudes:
    """The bounds that a weight reaches, if all taps of its filters are used."""
    absolute = np.abs(weight.mantissas)
    # The least mantissa has no positive counterpart, but it has its magnitude's bits.
    absolute = absolute.view(f"u{absolute.dtype.name}")
    if isinstance(spec.operation, ChannelAffine):
        return tuple(int(each) for each in absolute.max(axis=(1, 2, 3), initial=0))
    outputs, inputs = absolute.shape[:2]
    groups = weight.filters.groups
    filters = absolute.reshape(groups, outputs // groups, inputs, -1)
    sums = filters.sum(axis=(1, 3) if weight.filters.exchanged else (2, 3), dtype=np.int64)
    return (int(sums.max(initial=0)),)


def nominal_magnitudes(spec: KernelSpec) -> Magnitudes:
    """The bounds that widths alone prove: every weight as large as it can be."""
    match spec.operation:
        case Convolution() as convolution:
            terms = spec.inputs[0].channels // convolution.groups * prod(convolution.kernel)
            return (terms << (convolution.weight_bits - 1),)
        case ConvolutionDataGradient(convolution):
            terms = spec.inputs[0].channels // convolution.groups * prod(convolution.kernel)
            return (terms << (convolution.weight_bits - 1),)
        case ChannelAffine(bits):
            return (1 << (bits - 1),) * len(spec.inputs)
        case _:
            return ()


def total_bound(spec: KernelSpec, magnitudes: Magnitudes, exponents: KernelExponents, batch: int = 1) -> int:
    """A bound on the magnitude of every exact result and of every partial sum, bias excluded.

    `batch` counts images; it matters to sums over them.
    """
    widest = max(_largest(tensor) for tensor in spec.inputs)
    gradient = spec.inputs[-1]
    match spec.operation:
        case Convolution() | ConvolutionDataGradient():
            return magnitudes[0] * widest
        case AveragePool() as pool:
            window = pool.kernel[0] * pool.kernel[1]
            return window * widest * int(reciprocals(pool, spec.inputs[0])[0].max())
        case Add() | Concat() | ChannelAffine():
            return _aligned_bound(spec, magnitudes, exponents)
        case Sigmoid() | Softmax():
            return 1 << FRACTION_BITS
        case ConvolutionWeightGradient():
            return batch * gradient.height * gradient.width * prod(map(_largest, spec.inputs))
        case BiasGradient():
            return batch * gradient.height * gradient.width * widest
        case MaxPoolGradient(pool):
            return _windows(pool) * _largest(gradient)
        case AveragePoolGradient(pool):
            return _windows(pool) * widest * int(reciprocals(pool, spec.output)[0].max())
        case ResizeGradient():
            rows, columns = (-(-gradient.height // spec.output.height), -(-gradient.width // spec.output.width))
            return rows * columns * widest
        case SigmoidGradient():
            # y * (1 - y) is at most a quarter.
            return _largest(gradient) << max(sigmoid_gradient_fraction_bits(spec) - 2, 0)
        case _:
            return widest


def choose_container(spec: KernelSpec, total: int, bias: int) -> Container:
    """The narrowest container that holds every value.

    `total` bounds the exact results, `bias` the aligned biases. A result that may leave the accumulator needs WIDE.
    """
    value = total + bias
    if value > mantissa_range(spec.accumulator.bits)[1]:
        return Container.WIDE
    slope = leaky_slope(spec)
    if slope is not None:
        multiplier, fraction_bits = slope_integers(slope)
        value *= max(abs(multiplier), 1 << fraction_bits)
    for container in (Container.INT32, Container.INT64):
        if value < 1 << container.narrow_bits:
            return container
    return Container.WIDE


def may_fold(spec: KernelSpec, value: int, shift: int) -> bool:
    """Whether a leaky ReLU may be folded in INT32 (see `arithmetic.fold_leak`).

    `value` bounds the accumulator with its bias, `shift` is the right shift to the output, the slope's bits excluded.
    """
    if not isinstance(spec.activation, LeakyRelu) or spec.rounding is Rounding.STOCHASTIC or shift < 1:
        return False
    held = value <= mantissa_range(spec.accumulator.bits)[1] and value < 1 << (Container.INT32.narrow_bits - 1)
    return held and folds(spec.activation.slope)


def choose_reduction(spec: KernelSpec, container: Container, total: int) -> str:
    """The dtype of the sum. Aligned operands are shifted by scalars of the container, so they have its dtype."""
    if isinstance(spec.operation, ALIGNED):
        return container.dtype
    return "int32" if total < 1 << 31 else "int64"


def _aligned_bound(spec: KernelSpec, magnitudes: Magnitudes, exponents: KernelExponents) -> int:
    """Of operands, or products with coefficients, before and after they are shifted to the exponent where they meet."""
    factors = magnitudes if isinstance(spec.operation, ChannelAffine) else (1,) * len(spec.inputs)
    largest = [_largest(tensor) * factor for tensor, factor in zip(spec.inputs, factors, strict=True)]
    aligned = [
        value << shift if shift >= 0 else (value >> -shift) + 1
        for value, shift in zip(largest, alignment_shifts(spec, exponents), strict=True)
    ]
    total = max(aligned) if isinstance(spec.operation, Concat) else sum(aligned)
    return max(total, *largest) if isinstance(spec.operation, ChannelAffine) else total


def _windows(pool: MaxPool | AveragePool) -> int:
    """How many windows hold an element, at most."""
    return prod(-(-size // step) for size, step in zip(pool.kernel, pool.stride, strict=True))


def _largest(tensor: TensorSpec) -> int:
    return 1 << (tensor.bits - 1)

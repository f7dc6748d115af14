"""Layers of every kind, small and awkward, and inputs at the ends of their range, for tests of backends."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from binpoint.backends.kernel import (
    Accumulator,
    Activation,
    Add,
    AveragePool,
    Clip,
    Concat,
    Convolution,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    Operation,
    Relu,
    Reshape,
    Resize,
    Sigmoid,
    Softmax,
    TensorSpec,
    Widen,
)
from binpoint.backends.oracle.accumulate import accumulator_exponent
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.support.numeric import Rounding, fixed_constant

DEFAULT_ACCUMULATOR = Accumulator()
LEAKY = LeakyRelu(fixed_constant(Fraction(1, 10), 8))
RELU6 = Clip(fixed_constant(Fraction(6), 8))


def layer(
    operation: Operation,
    inputs: tuple[tuple[int, int, int, int], ...],
    output: tuple[int, int, int, int],
    activation: Activation | None = None,
    accumulator: Accumulator = DEFAULT_ACCUMULATOR,
    rounding: Rounding = Rounding.HALF_EVEN,
) -> KernelSpec:
    """A spec from (C, H, W, bits) of inputs and output."""
    tensors = tuple(TensorSpec(*tensor) for tensor in inputs)
    return KernelSpec("layer", operation, tensors, TensorSpec(*output), activation, accumulator, rounding)


def convolution(
    kernel: tuple[int, int] = (3, 3),
    padding: tuple[int, int, int, int] = (1, 1, 1, 1),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    weight_bits: int = 8,
    bias_bits: int | None = 16,
) -> Convolution:
    """A 3x3 convolution that keeps the size, unless told otherwise."""
    return Convolution(kernel, stride, padding, dilation, groups, weight_bits, bias_bits)


LAYERS = {
    "conv": layer(convolution(), ((20, 5, 7, 8),), (17, 5, 7, 8), Relu()),
    "conv-no-bias": layer(convolution(bias_bits=None), ((4, 4, 4, 8),), (8, 4, 4, 8)),
    "conv-asymmetric": layer(
        convolution((3, 2), (2, 0, 1, 1), (2, 1)), ((3, 6, 5, 8),), (16, 4, 5, 8), None, rounding=Rounding.FLOOR
    ),
    "conv-dilated": layer(
        convolution((2, 3), (0, 2, 0, 2), dilation=(3, 2)), ((9, 6, 5, 8),), (3, 3, 5, 8), rounding=Rounding.HALF_UP
    ),
    "conv-one-channel": layer(convolution((5, 5), (2, 2, 2, 2)), ((1, 7, 7, 8),), (6, 7, 7, 8), RELU6),
    "conv-leaky": layer(convolution(), ((40, 3, 4, 8),), (8, 3, 4, 8), LEAKY),
    "conv-16-bit": layer(convolution(weight_bits=16), ((8, 4, 5, 16),), (16, 4, 5, 16), LEAKY, Accumulator(48)),
    "conv-odd-widths": layer(convolution(weight_bits=3), ((5, 3, 4, 11),), (7, 3, 4, 5), Relu()),
    "conv-stochastic": layer(convolution(), ((4, 3, 4, 8),), (9, 3, 4, 8), Relu(), rounding=Rounding.STOCHASTIC),
    "conv-saturates": layer(convolution(weight_bits=16), ((16, 3, 3, 16),), (8, 3, 3, 16), None, Accumulator(32)),
    "conv-wraps": layer(
        convolution(weight_bits=16), ((16, 3, 3, 16),), (8, 3, 3, 8), LEAKY, Accumulator(33, wraps=True)
    ),
    "conv-64-bit": layer(convolution((1, 1), (0, 0, 0, 0)), ((3, 2, 2, 16),), (3, 2, 2, 8), LEAKY, Accumulator(64)),
    "linear": layer(convolution((1, 1), (0, 0, 0, 0)), ((33, 1, 1, 8),), (10, 1, 1, 8)),
    "linear-16-bit": layer(
        convolution((1, 1), (0, 0, 0, 0), weight_bits=16), ((33, 1, 1, 16),), (18, 1, 1, 16), Relu(), Accumulator(62)
    ),
    "depthwise": layer(convolution(groups=20), ((20, 4, 3, 8),), (20, 4, 3, 8), RELU6),
    "depthwise-multiplier": layer(convolution(groups=5), ((5, 4, 3, 8),), (15, 4, 3, 8), LEAKY),
    "groups": layer(convolution(groups=2), ((6, 3, 3, 8),), (34, 3, 3, 8), Relu(), rounding=Rounding.HALF_AWAY),
    "average-pool": layer(AveragePool((3, 3), (2, 2), (1, 1, 1, 1)), ((17, 5, 6, 8),), (17, 3, 3, 8)),
    "average-pool-padding": layer(
        AveragePool((2, 3), (1, 2), (1, 1, 0, 0), include_padding=True), ((5, 4, 4, 16),), (5, 4, 2, 16), LEAKY
    ),
    "global-average-pool": layer(AveragePool((5, 5), (1, 1)), ((16, 5, 5, 8),), (16, 1, 1, 8), Relu()),
    "max-pool": layer(MaxPool((3, 3), (2, 2), (1, 1, 1, 1)), ((17, 5, 5, 8),), (17, 3, 3, 8)),
    "add": layer(Add(), ((17, 3, 4, 8),) * 2, (17, 3, 4, 8), Relu()),
    "add-mixed": layer(Add(), ((3, 2, 2, 5), (3, 2, 2, 16), (3, 2, 2, 8)), (3, 2, 2, 12), rounding=Rounding.HALF_AWAY),
    "add-narrow": layer(Add(), ((4, 2, 2, 16),) * 4, (4, 2, 2, 16), LEAKY, Accumulator(32), Rounding.STOCHASTIC),
    "concat": layer(Concat(), ((17, 3, 2, 8), (3, 3, 2, 4), (5, 3, 2, 16)), (25, 3, 2, 8), Relu()),
    "relu": layer(Widen(), ((16, 3, 3, 8),), (16, 3, 3, 8), Relu(), rounding=Rounding.HALF_UP),
    "leaky": layer(Widen(), ((9, 3, 3, 16),), (9, 3, 3, 8), LEAKY, rounding=Rounding.FLOOR),
    "sigmoid": layer(Sigmoid(), ((5, 3, 3, 8),), (5, 3, 3, 8)),
    "sigmoid-16-bit": layer(Sigmoid(), ((3, 2, 2, 16),), (3, 2, 2, 16)),
    "softmax": layer(Softmax(), ((17, 2, 2, 8),), (17, 2, 2, 8), rounding=Rounding.STOCHASTIC),
    "softmax-16-bit": layer(Softmax(), ((10, 1, 1, 16),), (10, 1, 1, 16)),
    "resize-up": layer(Resize(), ((17, 3, 2, 8),), (17, 7, 4, 8)),
    "resize-down": layer(Resize(), ((3, 7, 6, 16),), (3, 2, 5, 16)),
    "flatten": layer(Reshape(), ((17, 3, 2, 8),), (102, 1, 1, 8)),
    "reshape": layer(Reshape(), ((12, 3, 2, 16),), (9, 2, 4, 16)),
}
"""Every kind of layer with every rounding and activation, in sizes that divide by nothing."""


def random_parameters(spec: KernelSpec, generator: np.random.Generator) -> KernelParameters:
    """Parameters over the whole range of their widths."""
    operation = spec.operation
    if not isinstance(operation, Convolution):
        return KernelParameters()
    shape = spec.output.channels, spec.inputs[0].channels // operation.groups, *operation.kernel
    weight = mantissas(shape, operation.weight_bits, generator)
    if operation.bias_bits is None:
        return KernelParameters(weight)
    return KernelParameters(weight, mantissas((spec.output.channels,), operation.bias_bits, generator))


def mantissas(shape: tuple[int, ...], bits: int, generator: np.random.Generator) -> np.ndarray:
    """Uniform mantissas."""
    least, greatest = mantissa_range(bits)
    return generator.integers(least, greatest, shape, endpoint=True)


def batches(spec: KernelSpec, generator: np.random.Generator) -> Iterator[list[np.ndarray]]:
    """Inputs of several batch sizes: random, all least, all greatest, least beside greatest, single spikes."""
    shapes = [(tensor.shape, tensor.bits) for tensor in spec.inputs]
    yield [mantissas((3, *shape), bits, generator) for shape, bits in shapes]
    yield [np.full((1, *shape), mantissa_range(bits)[0]) for shape, bits in shapes]
    yield [np.full((2, *shape), mantissa_range(bits)[1]) for shape, bits in shapes]
    yield [generator.choice(mantissa_range(bits), (5, *shape)) for shape, bits in shapes]
    spikes = [np.zeros((2, *shape), np.int64) for shape, _ in shapes]
    for spike, (_, bits) in zip(spikes, shapes, strict=True):
        spike.flat[generator.integers(spike.size)] = generator.choice(mantissa_range(bits))
    yield spikes


def random_exponents(spec: KernelSpec, generator: np.random.Generator, *, far: bool = False) -> KernelExponents:
    """Exponents that bring results into the output's range, or `far` from anything sensible."""

    def near(center: int, distance: int) -> int:
        least, greatest = (-128, 127) if far else (center - distance, center + distance)
        return int(generator.integers(least, greatest, endpoint=True))

    inputs = tuple(near(-4, 3) for _ in spec.inputs)
    weight = near(-7, 1)
    if spec.exact:
        return KernelExponents(inputs, 0)
    accumulator = accumulator_exponent(spec, KernelExponents(inputs, 0, weight))
    return KernelExponents(inputs, near(accumulator + 9, 6), weight, near(accumulator + 4, 10))

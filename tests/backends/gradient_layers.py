"""Gradient operations of every kind, small and awkward, for tests of backends; see `layers`."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from binpoint.backends.gradients import (
    AveragePoolGradient,
    BiasGradient,
    ChannelAffine,
    ChannelSlice,
    ClipGradient,
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    GradientOperation,
    LeakyReluGradient,
    MaxPoolGradient,
    ReluGradient,
    ResizeGradient,
    SigmoidGradient,
)
from binpoint.backends.kernel import Accumulator, AveragePool, Convolution, KernelParameters, KernelSpec, MaxPool, Relu
from binpoint.support.numeric import FixedConstant, Rounding, fixed_constant
from tests.backends.layers import convolution, layer, mantissas

SLOPE = fixed_constant(Fraction(1, 10), 8)
SIX = fixed_constant(Fraction(6), 8)
POOL = MaxPool((2, 2), (2, 2))
OVERLAPPING = MaxPool((3, 2), (2, 1), (1, 1, 1, 0))

GRADIENTS = {
    "data": layer(ConvolutionDataGradient(convolution()), ((17, 5, 7, 8),), (20, 5, 7, 8)),
    "data-stride": layer(
        ConvolutionDataGradient(convolution((3, 3), (1, 0, 1, 2), (2, 3))), ((16, 4, 3, 8),), (9, 8, 8, 8)
    ),
    "data-stochastic": layer(
        ConvolutionDataGradient(convolution(stride=(2, 2))),
        ((8, 3, 4, 8),),
        (17, 6, 7, 8),
        rounding=Rounding.STOCHASTIC,
    ),
    "data-no-taps": layer(
        ConvolutionDataGradient(convolution((1, 1), (0, 0, 0, 0), (3, 2))), ((16, 2, 4, 8),), (16, 5, 7, 8)
    ),
    "data-dilated": layer(
        ConvolutionDataGradient(convolution((2, 3), (0, 4, 0, 4), (1, 2), (3, 2))), ((5, 3, 5, 8),), (8, 6, 5, 8)
    ),
    "data-wide-padding": layer(ConvolutionDataGradient(convolution(padding=(4,) * 4)), ((9, 9, 9, 8),), (16, 3, 3, 8)),
    "data-groups": layer(
        ConvolutionDataGradient(convolution(groups=2, weight_bits=16)), ((32, 3, 4, 8),), (32, 3, 4, 16)
    ),
    "data-depthwise": layer(
        ConvolutionDataGradient(convolution(stride=(2, 2), groups=6)), ((12, 2, 3, 8),), (6, 4, 5, 8)
    ),
    "data-16-bit": layer(ConvolutionDataGradient(convolution(weight_bits=16)), ((16, 4, 5, 16),), (16, 4, 5, 16)),
    "data-linear": layer(
        ConvolutionDataGradient(convolution((1, 1), (0, 0, 0, 0))),
        ((10, 1, 1, 8),),
        (33, 1, 1, 8),
        None,
        Accumulator(20),
    ),
    "weight": layer(ConvolutionWeightGradient(convolution()), ((20, 5, 7, 8), (17, 5, 7, 8)), (20, 3, 3, 16)),
    "weight-stride": layer(
        ConvolutionWeightGradient(convolution((3, 2), (2, 0, 1, 1), (2, 3), (1, 2))),
        ((9, 6, 8, 8), (16, 4, 3, 8)),
        (9, 3, 2, 16),
        rounding=Rounding.FLOOR,
    ),
    "weight-one-channel": layer(
        ConvolutionWeightGradient(convolution((5, 5), (2, 2, 2, 2))), ((1, 7, 7, 8), (6, 7, 7, 8)), (1, 5, 5, 16)
    ),
    "weight-groups": layer(
        ConvolutionWeightGradient(convolution(groups=2)), ((8, 3, 4, 8), (32, 3, 4, 16)), (4, 3, 3, 16)
    ),
    "weight-depthwise": layer(
        ConvolutionWeightGradient(convolution(groups=6)), ((6, 4, 5, 8), (12, 4, 5, 8)), (1, 3, 3, 16)
    ),
    "weight-stochastic": layer(
        ConvolutionWeightGradient(convolution((1, 3), (0, 1, 0, 1))),
        ((20, 2, 3, 8), (18, 2, 3, 8)),
        (20, 1, 3, 8),
        rounding=Rounding.STOCHASTIC,
    ),
    "weight-16-bit": layer(
        ConvolutionWeightGradient(convolution()), ((9, 3, 4, 16), (24, 3, 4, 16)), (9, 3, 3, 16), None, Accumulator(34)
    ),
    "weight-linear": layer(
        ConvolutionWeightGradient(convolution((1, 1), (0, 0, 0, 0))), ((33, 1, 1, 8), (3, 1, 1, 16)), (33, 1, 1, 12)
    ),
    "bias": layer(BiasGradient(), ((17, 3, 4, 8),), (1, 1, 1, 16)),
    "bias-wraps": layer(
        BiasGradient(), ((5, 2, 2, 16),), (1, 1, 1, 8), None, Accumulator(16, wraps=True), Rounding.STOCHASTIC
    ),
    "max-pool": layer(MaxPoolGradient(POOL), ((17, 5, 6, 8), (17, 2, 3, 8)), (17, 5, 6, 8)),
    "max-pool-overlapping": layer(
        MaxPoolGradient(OVERLAPPING), ((5, 5, 6, 16), (5, 3, 6, 8)), (5, 5, 6, 8), rounding=Rounding.HALF_UP
    ),
    "average-pool": layer(
        AveragePoolGradient(AveragePool((3, 3), (2, 2), (1, 1, 1, 1))), ((17, 3, 3, 8),), (17, 5, 6, 8)
    ),
    "average-pool-global": layer(AveragePoolGradient(AveragePool((4, 5), (1, 1))), ((9, 1, 1, 16),), (9, 4, 5, 16)),
    "resize-up": layer(ResizeGradient(), ((17, 7, 4, 8),), (17, 3, 2, 8)),
    "resize-down": layer(ResizeGradient(), ((3, 2, 5, 16),), (3, 7, 6, 8), rounding=Rounding.HALF_AWAY),
    "relu": layer(ReluGradient(), ((17, 3, 2, 8), (17, 3, 2, 16)), (17, 3, 2, 16)),
    "clip": layer(ClipGradient(SIX), ((5, 3, 2, 8), (5, 3, 2, 8)), (5, 3, 2, 8)),
    "leaky": layer(LeakyReluGradient(SLOPE), ((17, 3, 2, 8), (17, 3, 2, 16)), (17, 3, 2, 8)),
    "leaky-wide": layer(
        LeakyReluGradient(FixedConstant(-3, 1)), ((3, 3, 2, 8), (3, 3, 2, 16)), (3, 3, 2, 8), None, Accumulator(12)
    ),
    "sigmoid": layer(SigmoidGradient(), ((9, 3, 2, 8), (9, 3, 2, 16)), (9, 3, 2, 16)),
    "slice": layer(ChannelSlice(5), ((25, 3, 2, 8),), (17, 3, 2, 8)),
    "affine": layer(ChannelAffine(16, 16), ((17, 3, 2, 8),), (17, 3, 2, 8), Relu()),
    "affine-two": layer(
        ChannelAffine(12, 16), ((5, 3, 2, 8), (5, 3, 2, 16)), (5, 3, 2, 8), None, Accumulator(32), Rounding.HALF_UP
    ),
    "affine-far": layer(
        ChannelAffine(16, 16), ((9, 2, 2, 16), (9, 2, 2, 8)), (9, 2, 2, 16), rounding=Rounding.STOCHASTIC
    ),
}
"""Every kind of gradient, in sizes that divide by nothing."""


def kinds() -> set[type[GradientOperation]]:
    """The kinds that are there."""
    return {type(spec.operation) for spec in GRADIENTS.values()}


def gradient_parameters(spec: KernelSpec, generator: np.random.Generator) -> KernelParameters:
    """Parameters over the whole range of their widths."""
    match spec.operation:
        case ConvolutionDataGradient(Convolution() as forward):
            inputs = spec.output.channels // forward.groups
            shape = spec.inputs[0].channels, inputs, *forward.kernel
            return KernelParameters(mantissas(shape, forward.weight_bits, generator))
        case ChannelAffine(weight_bits, bias_bits):
            channels = spec.output.channels
            weight = mantissas((len(spec.inputs), channels, 1, 1), weight_bits, generator)
            return KernelParameters(weight, mantissas((channels,), bias_bits, generator))
        case _:
            return KernelParameters()

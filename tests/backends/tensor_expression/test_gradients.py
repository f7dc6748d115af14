"""Gradient kernels and exact sums against the oracle, bit for bit, on every CPU level."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

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
    SumsSpec,
    result_rows,
)
from binpoint.backends.kernel import (
    Accumulator,
    AveragePool,
    Convolution,
    Draw,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    MaxPool,
    TensorSpec,
)
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.support.numeric import Rounding, fixed_constant

Shape = tuple[int, int, int, int]

SAME = Convolution((3, 3), padding=(1, 1, 1, 1))
STRIDED = Convolution((3, 2), (2, 1), (1, 0, 0, 1))
DILATED = Convolution((2, 3), padding=(1, 2, 1, 2), dilation=(2, 2))
GROUPED = Convolution((3, 3), padding=(1, 1, 1, 1), groups=2)
LINEAR = Convolution((1, 1))
WIDE = Convolution((3, 3), padding=(1, 1, 1, 1), weight_bits=16)


def gradient(
    operation: GradientOperation, inputs: tuple[Shape, ...], output: Shape, rounding: Rounding = Rounding.HALF_EVEN
) -> KernelSpec:
    tensors = tuple(TensorSpec(*tensor) for tensor in inputs)
    return KernelSpec("layer", operation, tensors, TensorSpec(*output), None, Accumulator(48), rounding)


SPECS = {
    "data": gradient(ConvolutionDataGradient(SAME), ((20, 6, 5, 8),), (17, 6, 5, 8)),
    "data-strided": gradient(ConvolutionDataGradient(STRIDED), ((16, 3, 5, 8),), (5, 6, 5, 8), Rounding.HALF_AWAY),
    "data-dilated": gradient(ConvolutionDataGradient(DILATED), ((8, 6, 7, 8),), (16, 6, 7, 8)),
    "data-grouped": gradient(ConvolutionDataGradient(GROUPED), ((6, 4, 4, 8),), (4, 4, 4, 8)),
    "data-linear": gradient(ConvolutionDataGradient(LINEAR), ((10, 1, 1, 8),), (33, 1, 1, 8)),
    "data-16-bit": gradient(ConvolutionDataGradient(WIDE), ((18, 4, 5, 16),), (16, 4, 5, 16)),
    "data-stochastic": gradient(ConvolutionDataGradient(SAME), ((9, 3, 4, 8),), (6, 3, 4, 8), Rounding.STOCHASTIC),
    "weight": gradient(ConvolutionWeightGradient(SAME), ((17, 6, 5, 8), (20, 6, 5, 8)), (17, 3, 3, 16)),
    "weight-strided": gradient(ConvolutionWeightGradient(STRIDED), ((5, 6, 5, 8), (16, 3, 5, 8)), (5, 3, 2, 16)),
    "weight-dilated": gradient(ConvolutionWeightGradient(DILATED), ((16, 6, 7, 8), (8, 6, 7, 8)), (16, 2, 3, 16)),
    "weight-grouped": gradient(ConvolutionWeightGradient(GROUPED), ((4, 4, 4, 8), (6, 4, 4, 8)), (2, 3, 3, 16)),
    "weight-linear": gradient(ConvolutionWeightGradient(LINEAR), ((33, 1, 1, 8), (10, 1, 1, 8)), (33, 1, 1, 16)),
    "weight-16-bit": gradient(ConvolutionWeightGradient(WIDE), ((16, 4, 5, 16), (18, 4, 5, 16)), (16, 3, 3, 16)),
    "weight-one-channel": gradient(ConvolutionWeightGradient(SAME), ((1, 7, 7, 8), (6, 7, 7, 8)), (1, 3, 3, 16)),
    "bias": gradient(BiasGradient(), ((17, 5, 6, 8),), (1, 1, 1, 16)),
    "max-pool": gradient(MaxPoolGradient(MaxPool((2, 2), (2, 2))), ((17, 6, 5, 8), (17, 3, 2, 8)), (17, 6, 5, 8)),
    "max-pool-overlap": gradient(
        MaxPoolGradient(MaxPool((3, 3), (2, 2), (1, 1, 1, 1))), ((5, 5, 5, 8), (5, 3, 3, 8)), (5, 5, 5, 8)
    ),
    "average-pool": gradient(
        AveragePoolGradient(AveragePool((3, 3), (2, 2), (1, 1, 1, 1))), ((17, 3, 3, 8),), (17, 5, 5, 8)
    ),
    "resize": gradient(ResizeGradient(), ((17, 7, 4, 8),), (17, 3, 2, 8)),
    "relu": gradient(ReluGradient(), ((17, 3, 4, 8), (17, 3, 4, 8)), (17, 3, 4, 8)),
    "clip": gradient(ClipGradient(fixed_constant(Fraction(6), 8)), ((9, 3, 4, 8), (9, 3, 4, 8)), (9, 3, 4, 8)),
    "leaky": gradient(
        LeakyReluGradient(fixed_constant(Fraction(1, 10), 8)), ((17, 3, 4, 8), (17, 3, 4, 8)), (17, 3, 4, 8)
    ),
    "sigmoid": gradient(SigmoidGradient(), ((9, 3, 4, 8), (9, 3, 4, 8)), (9, 3, 4, 8)),
    "slice": gradient(ChannelSlice(3), ((25, 3, 4, 8),), (17, 3, 4, 8)),
    "affine": gradient(ChannelAffine(16, 16), ((17, 3, 4, 8),), (17, 3, 4, 8)),
    "affine-two": gradient(ChannelAffine(16, 16), ((17, 3, 4, 8), (17, 3, 4, 8)), (17, 3, 4, 8)),
}


def mantissas(rng: np.random.Generator, shape: tuple[int, ...], bits: int, fill: str) -> IntArray:
    """Random mantissas, all at an end of the range, or a single spike."""
    least, greatest = mantissa_range(bits)
    if fill == "random":
        return rng.integers(least, greatest + 1, shape)
    if fill == "spike":
        spike = np.zeros(shape, np.int64)
        spike[tuple(rng.integers(0, size) for size in shape)] = least
        return spike
    return np.full(shape, least if fill == "least" else greatest, np.int64)


def parameters(rng: np.random.Generator, spec: KernelSpec, fill: str) -> KernelParameters:
    match spec.operation:
        case ConvolutionDataGradient(convolution):
            inputs, outputs = spec.output.channels, spec.inputs[0].channels
            shape = (outputs, inputs // convolution.groups, *convolution.kernel)
            return KernelParameters(mantissas(rng, shape, convolution.weight_bits, fill))
        case ChannelAffine(weight_bits, bias_bits):
            channels = spec.output.channels
            weight = mantissas(rng, (len(spec.inputs), channels, 1, 1), weight_bits, fill)
            return KernelParameters(weight, mantissas(rng, (channels,), bias_bits, fill))
    return KernelParameters()


@pytest.mark.parametrize("level", ["generic", "native"])
@pytest.mark.parametrize("name", SPECS)
def test_gradients_equal_the_oracle(name: str, level: str, request: pytest.FixtureRequest) -> None:
    spec, backend, oracle = SPECS[name], request.getfixturevalue(level), OracleBackend()
    rng = np.random.default_rng(len(name))
    first = parameters(rng, spec, "random")
    compiled, meaning = backend.prepare(spec, first), oracle.prepare(spec, first)
    for step, (fill, images) in enumerate((("random", 3), ("random", 1), ("least", 2), ("greatest", 5), ("spike", 2))):
        bound = parameters(rng, spec, fill)
        compiled.bind(bound)
        meaning.bind(bound)
        inputs = [mantissas(rng, (images, *each.shape), each.bits, fill) for each in spec.inputs]
        output = int(rng.integers(-6, 16))
        exponents = KernelExponents(
            tuple(rng.integers(-4, 4, len(inputs)).tolist()), output, int(rng.integers(-3, 3)), -2
        )
        sample = rng.random((result_rows(spec, images), spec.output.channels)) < 0.4
        draw = Draw(7, 3, step) if spec.rounding is Rounding.STOCHASTIC else None
        results = [
            kernel(
                [side.upload(array, each) for array, each in zip(inputs, spec.inputs, strict=True)],
                exponents,
                sample=sample,
                draw=draw,
            )
            for kernel, side in ((compiled, backend), (meaning, oracle))
        ]
        np.testing.assert_array_equal(backend.download(results[0].output), oracle.download(results[1].output))
        assert results[0].events == results[1].events
        assert results[0].statistics == results[1].statistics


@pytest.mark.parametrize("bits", [8, 16])
def test_sums_are_exact(bits: int, generic: TensorExpressionBackend) -> None:
    spec = SumsSpec("sums", (TensorSpec(17, 5, 6, bits),) * 2, ((1,), (1, 0), (0, 0)))
    oracle, rng = OracleBackend(), np.random.default_rng(bits)
    compiled, meaning = generic.prepare_sums(spec), oracle.prepare_sums(spec)
    for fill, images in (("random", 3), ("least", 4), ("spike", 1)):
        inputs = [mantissas(rng, (images, *each.shape), each.bits, fill) for each in spec.inputs]
        taken = [
            sums([side.upload(array, each) for array, each in zip(inputs, spec.inputs, strict=True)])
            for sums, side in ((compiled, generic), (meaning, oracle))
        ]
        np.testing.assert_array_equal(*taken)

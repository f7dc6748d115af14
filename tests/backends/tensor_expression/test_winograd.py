"""Winograd's convolution equals the oracle bit for bit, and is left where its transform could not be exact."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from binpoint.backends.kernel import (
    Clip,
    Convolution,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    Relu,
    TensorSpec,
)
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.capability import X86_64_V3, Capability, cpu_flags
from binpoint.backends.tensor_expression.threads import use_threads
from binpoint.support.numeric import Rounding, fixed_constant

pytestmark = pytest.mark.skipif(not cpu_flags() >= X86_64_V3, reason="this CPU has no AVX2")

ORACLE = OracleBackend()
LEAKY = LeakyRelu(fixed_constant(Fraction(1, 10), 8))
EXPONENTS = KernelExponents((-5,), 3, -3, -9)

LAYERS = {
    "odd": ((16, 13, 17), 24, (1, 1, 1, 1), None),
    "leaky": ((64, 14, 14), 64, (1, 1, 1, 1), LEAKY),
    "without-padding": ((16, 15, 11), 33, (0, 0, 0, 0), Relu()),
    "uneven-padding": ((40, 12, 30), 64, (0, 2, 1, 0), Clip(fixed_constant(Fraction(6), 8))),
    "many-channels": ((240, 14, 14), 80, (1, 1, 1, 1), LEAKY),
}


@pytest.fixture(scope="module")
def backend(kernel_cache: Path) -> TensorExpressionBackend:
    return TensorExpressionBackend(1, Capability.AVX2, kernel_cache)


def layer(name: str, rounding: Rounding = Rounding.HALF_EVEN) -> KernelSpec:
    (channels, height, width), outputs, padding, activation = LAYERS[name]
    size = height + padding[0] + padding[2] - 2, width + padding[1] + padding[3] - 2
    convolution = Convolution((3, 3), padding=padding, bias_bits=16)
    source, output = TensorSpec(channels, height, width, 8), TensorSpec(outputs, *size, 8)
    return KernelSpec(name, convolution, (source,), output, activation, rounding=rounding)


def parameters(spec: KernelSpec, weight: np.ndarray | None = None) -> KernelParameters:
    generator = np.random.default_rng(spec.output.channels)
    if weight is None:
        weight = generator.integers(-128, 128, (spec.output.channels, spec.inputs[0].channels, 3, 3))
    return KernelParameters(weight, generator.integers(-(2**15), 2**15, spec.output.channels))


def check(backend: TensorExpressionBackend, spec: KernelSpec, bound: KernelParameters, maps: np.ndarray) -> str:
    """All that a call leaves is the oracle's, with statistics and without. Gives the name of the design."""
    kernel, meaning = backend.prepare(spec, bound), ORACLE.prepare(spec, bound)
    some = np.random.default_rng(2).random((len(maps), spec.output.channels)) < 0.3
    for sample in (None, some):
        found = kernel([backend.upload(maps, spec.inputs[0])], EXPONENTS, sample=sample)
        expected = meaning([ORACLE.upload(maps, spec.inputs[0])], EXPONENTS, sample=sample)
        np.testing.assert_array_equal(backend.download(found.output), expected.output.mantissas)
        assert (found.events, found.statistics) == (expected.events, expected.statistics)
    return kernel.design(EXPONENTS)


def fills(shape: tuple[int, ...]) -> list[np.ndarray]:
    """Random mantissas, both ends of the range, signs that alternate as the transforms add up worst, one spike."""
    generator = np.random.default_rng(7)
    rows, columns = np.ogrid[: shape[2], : shape[3]]
    alternating = np.broadcast_to(np.where((rows + columns) % 2, 127, -128), shape)
    spike = np.zeros(shape, np.int64)
    spike.flat[generator.integers(spike.size)] = -128
    return [
        generator.integers(-128, 128, shape),
        np.full(shape, -128),
        np.full(shape, 127),
        alternating,
        spike,
    ]


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer(backend: TensorExpressionBackend, name: str) -> None:
    spec = layer(name)
    bound = parameters(spec)
    designs = {check(backend, spec, bound, maps) for maps in fills((2, *spec.inputs[0].shape))}
    assert len(designs) == 1
    assert designs.pop().startswith("winograd")


@pytest.mark.parametrize("rounding", [each for each in Rounding if each is not Rounding.STOCHASTIC])
def test_roundings(backend: TensorExpressionBackend, rounding: Rounding) -> None:
    spec = layer("odd", rounding)
    check(backend, spec, parameters(spec), fills((1, *spec.inputs[0].shape))[0])


@pytest.mark.parametrize("name", ["leaky", "many-channels"])
def test_extreme_weights(backend: TensorExpressionBackend, name: str) -> None:
    """Whatever the design, sums of products at the ends of their range are exact."""
    spec = layer(name)
    shape = spec.output.channels, spec.inputs[0].channels, 3, 3
    for weight in (np.full(shape, -128), np.full(shape, 127), np.where(np.indices(shape).sum(axis=0) % 2, 127, -128)):
        for maps in fills((1, *spec.inputs[0].shape)):
            check(backend, spec, parameters(spec, weight), maps)


def test_the_larger_transform_needs_small_sums(backend: TensorExpressionBackend) -> None:
    """F(4x4, 3x3) is exact below 2^25: 128 * sum |w| decides, one step beyond is left to another design."""
    spec = layer("many-channels")
    spec = replace(spec, activation=None)
    weight = np.zeros((spec.output.channels, 240, 3, 3), np.int64)
    sums = []
    for total in (2**18 - 1, 2**18):
        weight[0] = 0
        flat = weight[0].reshape(-1)
        flat[: total // 128] = -128
        flat[total // 128 : total // 128 + 1] = -(total % 128)
        sums.append(check(backend, spec, parameters(spec, weight), np.full((1, *spec.inputs[0].shape), -128)))
    assert sums[0] == "winograd4" != sums[1]


def test_bound_weights_decide_each_time(backend: TensorExpressionBackend) -> None:
    """Weights that one transform is exact with, then some that it is not, then the first again."""
    spec = replace(layer("many-channels"), activation=None)
    shape = spec.output.channels, spec.inputs[0].channels, 3, 3
    maps = np.full((1, *spec.inputs[0].shape), -128)
    kernel = backend.prepare(spec, parameters(spec, np.ones(shape, np.int64)))
    for value in (1, -128, 127, 3):
        bound = parameters(spec, np.full(shape, value))
        kernel.bind(bound)
        found = kernel([backend.upload(maps, spec.inputs[0])], EXPONENTS)
        expected = ORACLE.prepare(spec, bound)([ORACLE.upload(maps, spec.inputs[0])], EXPONENTS)
        np.testing.assert_array_equal(backend.download(found.output), expected.output.mantissas)


def test_threads_and_batches(backend: TensorExpressionBackend) -> None:
    spec = layer("leaky")
    bound = parameters(spec)
    try:
        for threads in (1, 2):
            use_threads(threads)
            for images in (1, 3, 17):
                check(backend, spec, bound, np.random.default_rng(images).integers(-128, 128, (images, 64, 14, 14)))
    finally:
        use_threads(None)

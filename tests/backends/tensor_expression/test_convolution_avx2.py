"""The AVX2 convolution equals the oracle bit for bit, for every shape, width, rounding and extreme it claims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from binpoint.backends.kernel import (
    Accumulator,
    Clip,
    Convolution,
    Events,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    Relu,
    TensorSpec,
)
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.tensor_expression import compiler
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.capability import X86_64_V3, Capability, cpu_flags
from binpoint.compiler.layers import window_output
from binpoint.support.numeric import FixedConstant, Rounding

pytestmark = pytest.mark.skipif(not cpu_flags() >= X86_64_V3, reason="this CPU has no AVX2")

ORACLE = OracleBackend()


@dataclass(frozen=True)
class Shape:
    """The sizes of a convolution; `maps` is (C, H, W) of the input."""

    maps: tuple[int, int, int]
    outputs: int
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    batch: int = 2

    def spec(self, bits: tuple[int, int, int] = (8, 8, 8)) -> KernelSpec:
        """A kernel without activation; bits of input, weights and output."""
        channels, height, width = self.maps
        top, left, bottom, right = self.padding
        size = (
            window_output(height, self.kernel[0], self.stride[0], top, bottom, self.dilation[0]),
            window_output(width, self.kernel[1], self.stride[1], left, right, self.dilation[1]),
        )
        convolution = Convolution(
            self.kernel, self.stride, self.padding, self.dilation, self.groups, weight_bits=bits[1], bias_bits=16
        )
        return KernelSpec(
            "layer",
            convolution,
            (TensorSpec(channels, height, width, bits[0]),),
            TensorSpec(self.outputs, *size, bits[2]),
        )


SMALL = Shape((16, 5, 6), 16, (3, 3), padding=(1, 1, 1, 1))

SHAPES = {
    "one": Shape((1, 1, 1), 5),
    "lenet-first": Shape((1, 12, 12), 6, (5, 5), padding=(2, 2, 2, 2), batch=3),
    "lenet-second": Shape((6, 9, 9), 16, (5, 5)),
    "colours-stride-2": Shape((3, 17, 13), 32, (7, 7), (2, 2), (3, 2, 1, 0)),
    "colours": Shape((3, 8, 11), 16, (3, 3), padding=(1, 1, 1, 1)),
    "primes": Shape((16, 13, 17), 24, (3, 3), padding=(1, 1, 1, 1), batch=1),
    "odd-channels": Shape((37, 7, 19), 41),
    "narrow-blocks": Shape((20, 6, 6), 8, (3, 3), padding=(0, 1, 2, 1)),
    "dilated": Shape((5, 11, 10), 16, (3, 3), padding=(2, 2, 2, 2), dilation=(2, 3)),
    "dilated-blocks": Shape((32, 9, 9), 16, (2, 3), dilation=(3, 2)),
    "strides": Shape((8, 11, 12), 16, (3, 2), (3, 2), (1, 0, 2, 1)),
    "stride-past-kernel": Shape((16, 9, 10), 32, (1, 2), (3, 3), (1, 0, 2, 1)),
    "strided-pixels": Shape((16, 9, 9), 32, (1, 1), (2, 2), (1, 1, 0, 0)),
    "row": Shape((4, 1, 40), 16, (1, 3), padding=(0, 1, 0, 1)),
    "column": Shape((7, 40, 1), 16, (3, 1), padding=(1, 0, 1, 0)),
    "groups": Shape((32, 6, 5), 32, (3, 3), padding=(1, 1, 1, 1), groups=2),
    "small-groups": Shape((12, 6, 5), 64, (3, 3), groups=4),
    "all-padding": Shape((16, 2, 2), 16, (1, 1), padding=(2, 2, 2, 2)),
    "whole-map": Shape((16, 5, 5), 120, (5, 5), batch=3),
    "linear": Shape((100, 1, 1), 10, batch=5),
    "linear-three-blocks": Shape((20, 1, 1), 48),
    "linear-wide": Shape((33, 1, 1), 70, batch=1),
    "several-calls": Shape((64, 30, 30), 16, (3, 3), padding=(1, 1, 1, 1), batch=5),
}


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that Winograd's designs would compute faster are left to the direct one."""
    monkeypatch.setattr(compiler, "winograd_designs", lambda plan: [])


@pytest.fixture(scope="module")
def backend(kernel_cache: Path) -> TensorExpressionBackend:
    return TensorExpressionBackend(1, Capability.AVX2, kernel_cache)


def extremes(shape: tuple[int, ...], bits: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Random mantissas, all least, all greatest, and a single spike."""
    least, greatest = mantissa_range(bits)
    yield generator.integers(least, greatest, shape, endpoint=True)
    yield np.full(shape, least)
    yield np.full(shape, greatest)
    spike = np.zeros(shape, np.int64)
    spike.flat[generator.integers(spike.size)] = least
    yield spike


def random_parameters(spec: KernelSpec, seed: int = 0) -> KernelParameters:
    generator = np.random.default_rng(seed)
    convolution = spec.operation
    least, greatest = mantissa_range(convolution.weight_bits)
    shape = (spec.output.channels, spec.inputs[0].channels // convolution.groups, *convolution.kernel)
    weight = generator.integers(least, greatest, shape, endpoint=True)
    return KernelParameters(weight, generator.integers(-3000, 3000, spec.output.channels))


def random_maps(spec: KernelSpec, batch: int, seed: int = 1) -> np.ndarray:
    least, greatest = mantissa_range(spec.inputs[0].bits)
    return np.random.default_rng(seed).integers(least, greatest, (batch, *spec.inputs[0].shape), endpoint=True)


def assert_equals_oracle(
    backend: TensorExpressionBackend,
    spec: KernelSpec,
    parameters: KernelParameters,
    maps: np.ndarray,
    exponents: KernelExponents,
    design: str = "avx2",
    sampled: bool = False,
) -> Events:
    """Output, events and, where sampled, statistics are the oracle's, and the design is the expected one."""
    sample = np.random.default_rng(2).random((len(maps), spec.output.channels)) < 0.3 if sampled else None
    kernel = backend.prepare(spec, parameters)
    result = kernel([backend.upload(maps, spec.inputs[0])], exponents, sample=sample)
    expected = ORACLE.prepare(spec, parameters)([ORACLE.upload(maps, spec.inputs[0])], exponents, sample=sample)
    np.testing.assert_array_equal(backend.download(result.output), ORACLE.download(expected.output))
    assert result.events == expected.events
    assert result.statistics == expected.statistics
    assert kernel.design(exponents, sampled=sampled) == design
    return result.events


def shifted(shift: int) -> KernelExponents:
    """Exponents whose output is `shift` above the accumulator's; the bias is one bit finer than that."""
    return KernelExponents(inputs=(-5,), output=-8 + shift, weight=-3, bias=-9)


def natural_shift(spec: KernelSpec) -> int:
    """A shift that brings random sums about to the output's range, so that some saturate and some do not."""
    convolution = spec.operation
    terms = spec.inputs[0].channels // convolution.groups * convolution.kernel[0] * convolution.kernel[1]
    sum_bits = spec.inputs[0].bits + convolution.weight_bits - 3 + terms.bit_length() // 2
    return max(1, sum_bits - spec.output.bits + 1)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape(backend: TensorExpressionBackend, shape: Shape) -> None:
    spec = shape.spec()
    parameters = random_parameters(spec)
    for maps in extremes((shape.batch, *shape.maps), 8, np.random.default_rng(3)):
        assert_equals_oracle(backend, spec, parameters, maps, shifted(natural_shift(spec)))


@pytest.mark.parametrize("bits", [8, 16])
def test_extreme_weights(backend: TensorExpressionBackend, bits: int) -> None:
    spec = SMALL.spec((bits, bits, bits))
    parameters = random_parameters(spec)
    generator = np.random.default_rng(4)
    assert parameters.weight is not None
    for weight in extremes(parameters.weight.shape, bits, generator):
        # Where all four numbers of a product are -2^15 the instruction wraps: the design leaves that to another.
        wraps = bits == 16 and (weight == -(2**15)).all()
        for maps in extremes((2, *spec.inputs[0].shape), bits, generator):
            assert_equals_oracle(
                backend,
                spec,
                replace(parameters, weight=weight),
                maps,
                shifted(natural_shift(spec)),
                design="generic" if wraps else "avx2",
            )


def test_the_least_weight_beside_another_does_not_wrap(backend: TensorExpressionBackend) -> None:
    spec = SMALL.spec((16, 16, 16))
    parameters = random_parameters(spec)
    assert parameters.weight is not None
    weight = np.full(parameters.weight.shape, -(2**15))
    weight[:, ::2] += 1
    maps = np.full((1, *spec.inputs[0].shape), -(2**15))
    assert_equals_oracle(backend, spec, replace(parameters, weight=weight), maps, shifted(natural_shift(spec)))


@pytest.mark.parametrize("shape", ["lenet-first", "odd-channels", "linear-wide", "small-groups"])
def test_16_bits(backend: TensorExpressionBackend, shape: str) -> None:
    spec = SHAPES[shape].spec((16, 16, 16))
    parameters = random_parameters(spec)
    for maps in extremes((SHAPES[shape].batch, *spec.inputs[0].shape), 16, np.random.default_rng(5)):
        assert_equals_oracle(backend, spec, parameters, maps, shifted(natural_shift(spec)), sampled=True)


@pytest.mark.parametrize("bits", [(8, 16, 8), (16, 8, 16), (12, 5, 9), (2, 3, 4), (16, 16, 8), (8, 8, 16)])
def test_mixed_widths(backend: TensorExpressionBackend, bits: tuple[int, int, int]) -> None:
    spec = SMALL.spec(bits)
    assert_equals_oracle(
        backend, spec, random_parameters(spec), random_maps(spec, 2), shifted(natural_shift(spec)), sampled=True
    )


@pytest.mark.parametrize("rounding", [each for each in Rounding if each is not Rounding.STOCHASTIC])
@pytest.mark.parametrize("bits", [8, 16])
def test_every_rounding_and_shift(backend: TensorExpressionBackend, rounding: Rounding, bits: int) -> None:
    spec = replace(SMALL.spec((bits, bits, bits)), rounding=rounding)
    parameters, maps = random_parameters(spec), random_maps(spec, 1)
    # Small sums too, so that ties and underflow occur at small shifts.
    few = KernelParameters(np.sign(parameters.weight).astype(np.int64), parameters.bias // 1000)
    events = Events(0)
    for shift in (-40, -9, -1, 0, 1, 2, 8, natural_shift(spec), 31, 47, 90):
        events = events.merge(assert_equals_oracle(backend, spec, parameters, maps, shifted(shift)))
        events = events.merge(assert_equals_oracle(backend, spec, few, maps // 64, shifted(shift)))
    assert events.saturated > 0
    assert events.underflowed > 0


@pytest.mark.parametrize(
    "activation",
    [Relu(), Clip(FixedConstant(192, 5)), LeakyRelu(FixedConstant(205, 11)), LeakyRelu(FixedConstant(-3, 1))],
    ids=["relu", "clip", "leaky", "negative-slope"],
)
@pytest.mark.parametrize("bits", [8, 16])
def test_activations_and_statistics(backend: TensorExpressionBackend, activation: Relu, bits: int) -> None:
    spec = replace(SMALL.spec((bits, bits, bits)), activation=activation)
    exponents = shifted(natural_shift(spec))
    assert_equals_oracle(backend, spec, random_parameters(spec), random_maps(spec, 3), exponents, sampled=True)


def test_without_bias(backend: TensorExpressionBackend) -> None:
    spec = SMALL.spec()
    spec = replace(spec, operation=replace(spec.operation, bias_bits=None))
    parameters = replace(random_parameters(spec), bias=None)
    assert_equals_oracle(backend, spec, parameters, random_maps(spec, 2), shifted(9), sampled=True)


@pytest.mark.parametrize("bias_exponent", [-40, 5, 12, 40])
def test_the_bias_moves_against_the_sum(backend: TensorExpressionBackend, bias_exponent: int) -> None:
    spec = SMALL.spec()
    # From a bias that rounds to nothing to one that overflows the accumulator.
    exponents = replace(shifted(8), bias=bias_exponent)
    assert_equals_oracle(backend, spec, random_parameters(spec), random_maps(spec, 2), exponents)


@pytest.mark.parametrize("wraps", [False, True], ids=["saturating", "wrapping"])
@pytest.mark.parametrize("bits", [8, 16])
def test_accumulators_that_overflow(backend: TensorExpressionBackend, bits: int, wraps: bool) -> None:
    spec = SMALL.spec((bits, bits, bits))
    shift = natural_shift(spec)
    # Random sums reach about these widths: some results overflow, some do not.
    for shape, accumulator in ((SMALL, bits + shift), (SHAPES["linear-wide"], 2 * bits)):
        spec = replace(shape.spec((bits, bits, bits)), accumulator=Accumulator(accumulator, wraps), activation=Relu())
        exponents = replace(shifted(shift), bias=-8 + bits)
        maps = random_maps(spec, shape.batch)
        events = assert_equals_oracle(backend, spec, random_parameters(spec), maps, exponents, sampled=True)
        assert 0 < events.accumulator_overflows < events.results


@pytest.mark.parametrize(
    "spec",
    [Shape((16, 4, 4), 3).spec(), Shape((16, 4, 4), 16, groups=2).spec()],
    ids=["three-channels", "half-blocks"],
)
def test_what_the_design_leaves_to_the_portable_one(backend: TensorExpressionBackend, spec: KernelSpec) -> None:
    maps = random_maps(spec, 2)
    assert_equals_oracle(backend, spec, random_parameters(spec), maps, shifted(natural_shift(spec)), "generic")


def test_a_reduction_past_the_split_accumulator(backend: TensorExpressionBackend) -> None:
    longest, too_long = (Shape((channels, 1, 1), 8, batch=1).spec((16, 16, 16)) for channels in (131070, 131072))
    for spec, design in ((longest, "avx2"), (too_long, "generic")):
        parameters = random_parameters(spec)
        weight = np.full_like(parameters.weight, 2**15 - 1)
        spec = replace(spec, accumulator=Accumulator(64))
        for mantissa in (-(2**15), 2**15 - 1):
            maps = np.full((1, *spec.inputs[0].shape), mantissa)
            assert_equals_oracle(backend, spec, replace(parameters, weight=weight), maps, shifted(33), design)


def test_the_result_does_not_depend_on_threads(kernel_cache: Path) -> None:
    spec = SHAPES["several-calls"].spec()
    parameters, maps = random_parameters(spec), random_maps(spec, 3)
    try:
        for threads in (1, 3):
            one = TensorExpressionBackend(threads, Capability.AVX2, kernel_cache)
            assert_equals_oracle(one, spec, parameters, maps, shifted(natural_shift(spec)), sampled=True)
    finally:
        TensorExpressionBackend(None, Capability.AVX2, kernel_cache)

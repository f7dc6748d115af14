"""Gradient kernels equal the oracle bit for bit: outputs, events, statistics; on each CPU level, and as PE programs."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from binpoint.backends.gradients import (
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    GradientOperation,
    result_rows,
)
from binpoint.backends.kernel import (
    Draw,
    Events,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    TensorSpec,
    Tile,
)
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.weight_gradient_tiling import choose_gradient_tiling, exact_steps
from tests.backends.gradient_layers import GRADIENTS, gradient_parameters, kinds
from tests.backends.layers import batches, convolution, layer, mantissas, random_exponents

ORACLE = OracleBackend()

CONVOLUTIONS = [
    name
    for name, spec in GRADIENTS.items()
    if isinstance(spec.operation, ConvolutionDataGradient | ConvolutionWeightGradient)
]


def check(
    backend: TensorExpressionBackend,
    spec: KernelSpec,
    inputs: list[IntArray],
    exponents: KernelExponents,
    parameters: KernelParameters,
    share: float = 0.3,
    draw: Draw | None = None,
) -> Events:
    """One call is the oracle's."""
    rows = result_rows(spec, len(inputs[0]))
    sample = np.random.default_rng(len(spec.inputs)).random((rows, spec.output.channels)) < share
    results = []
    for each in (backend, ORACLE):
        buffers = [each.upload(x, tensor) for x, tensor in zip(inputs, spec.inputs, strict=True)]
        result = each.prepare(spec, parameters)(buffers, exponents, sample=sample, draw=draw)
        assert result.output.batch == rows
        results.append((each.download(result.output), result.events, result.statistics))
    (output, events, statistics), (expected, *others) = results
    np.testing.assert_array_equal(output, expected)
    assert [events, statistics] == others
    return events


@pytest.mark.parametrize("name", GRADIENTS)
def test_every_gradient(generic: TensorExpressionBackend, name: str) -> None:
    check_batches(generic, GRADIENTS[name])


@pytest.mark.parametrize("name", [*CONVOLUTIONS, "max-pool", "affine"])
def test_gradients_on_this_cpu(native: TensorExpressionBackend, name: str) -> None:
    check_batches(native, GRADIENTS[name])


def check_batches(backend: TensorExpressionBackend, spec: KernelSpec) -> None:
    """Random and extreme inputs in batches of several sizes, and masks from sparse ones to full ones."""
    generator = np.random.default_rng(spec.output.channels)
    parameters = gradient_parameters(spec, generator)
    for number, inputs in enumerate(batches(spec, generator)):
        exponents = random_exponents(spec, generator)
        share = (0.05, 0.3, 1.0)[number % 3]
        check(backend, spec, inputs, exponents, parameters, share, Draw(1, number, -number))


@pytest.mark.parametrize("name", GRADIENTS)
def test_tiles(generic: TensorExpressionBackend, name: str) -> None:
    spec = GRADIENTS[name]
    generator = np.random.default_rng(len(name))
    parameters = gradient_parameters(spec, generator)
    program = generic.prepare_pe_program(spec, parameters, 2, 3)
    reference = ORACLE.prepare_pe_program(spec, parameters, 2, 3)
    exponents = random_exponents(spec, generator)
    for inputs in batches(spec, generator):
        rows, channels = result_rows(spec, len(inputs[0])), spec.output.channels
        row, channel = int(generator.integers(rows)), int(generator.integers(channels))
        tile = Tile(row, min(2, rows - row), channel, min(3, channels - channel))
        result = program(inputs, tile, exponents, sampled=True, draw=Draw(1, 2, 3))
        expected = reference(inputs, tile, exponents, sampled=True, draw=Draw(1, 2, 3))
        np.testing.assert_array_equal(result.output, expected.output)
        assert (result.events, result.statistics) == (expected.events, expected.statistics)


def test_every_kind_is_there() -> None:
    assert kinds() == set(get_args(GradientOperation))


def test_designs(native: TensorExpressionBackend) -> None:
    """What this CPU's own designs compute; they leave groups that do not divide, and stochastic data gradients."""
    found = {}
    for name in CONVOLUTIONS:
        spec = GRADIENTS[name]
        kernel = native.prepare(spec, gradient_parameters(spec, np.random.default_rng(0)))
        design = kernel.design(KernelExponents((0, 0), 0), sampled=True)
        found[name] = {design} if isinstance(design, str) else set(design)
    left = {"data-stochastic", "data-depthwise", "weight-depthwise", "weight-linear"}
    assert {name for name, designs in found.items() if designs == {"generic"}} == left
    assert {name for name, designs in found.items() if designs == {"avx2"}} == set(CONVOLUTIONS) - left


@pytest.mark.parametrize(("images_bits", "gradient_bits"), [(8, 8), (16, 8), (8, 16), (12, 5), (16, 16), (11, 14)])
def test_sums_that_only_just_fit(native: TensorExpressionBackend, images_bits: int, gradient_bits: int) -> None:
    """Long sums of the most negative products: registers are emptied before they overflow."""
    spec = layer(
        ConvolutionWeightGradient(convolution((1, 1), (0, 0, 0, 0))),
        ((5, 20, 24, images_bits), (8, 20, 24, gradient_bits)),
        (5, 1, 1, 16),
    )
    tiling = choose_gradient_tiling(spec.operation.convolution, *spec.inputs)
    assert tiling is not None
    assert tiling.split == (images_bits + gradient_bits > 25)
    inputs = [np.full((9, *tensor.shape), -(1 << (tensor.bits - 1))) for tensor in spec.inputs]
    if images_bits + gradient_bits > 20:
        # The whole sum would overflow.
        assert exact_steps(*spec.inputs) < 5 * 20 * 24
    check(native, spec, inputs, KernelExponents((0, 0), 0), KernelParameters())
    # A split sum that wraps in one pair of images must not hide among others that do not.
    inputs[1][::3] = 5
    check(native, spec, inputs, KernelExponents((0, 0), 12), KernelParameters())


def test_sums_of_64_bits(native: TensorExpressionBackend) -> None:
    """A batch whose sums pass int32 has them in int64."""
    spec = layer(
        ConvolutionWeightGradient(convolution((1, 1), (0, 0, 0, 0))), ((1, 64, 64, 8), (8, 64, 64, 8)), (1, 1, 1, 16)
    )
    for images in (31, 33):
        inputs = [np.full((images, *tensor.shape), -128) for tensor in spec.inputs]
        events = check(native, spec, inputs, KernelExponents((0, 0), 17), KernelParameters())
        assert events.saturated == 0


def test_new_weights_compile_nothing(native: TensorExpressionBackend) -> None:
    generator = np.random.default_rng(0)
    for name in ("data", "data-stride", "affine-two"):
        spec = GRADIENTS[name]
        inputs, exponents = next(batches(spec, generator)), random_exponents(spec, generator)
        kernel = native.prepare(spec, gradient_parameters(spec, generator))
        buffers = [native.upload(x, tensor) for x, tensor in zip(inputs, spec.inputs, strict=True)]
        kernel(buffers, exponents)
        generated = native.compiler.generated
        for _ in range(3):
            parameters = gradient_parameters(spec, generator)
            kernel.bind(parameters)
            expected = ORACLE.prepare(spec, parameters)(
                [ORACLE.upload(x, tensor) for x, tensor in zip(inputs, spec.inputs, strict=True)], exponents
            )
            np.testing.assert_array_equal(native.download(kernel(buffers, exponents).output), expected.output.mantissas)
        assert native.compiler.generated == generated


def test_names_do_not_change_the_code(native: TensorExpressionBackend) -> None:
    """Layers of one shape share the sums; all gradients of one width share what comes after."""
    generator = np.random.default_rng(0)
    spec = GRADIENTS["weight"]
    inputs = next(batches(spec, generator))
    check(native, spec, inputs, KernelExponents((0, 0), 4), KernelParameters())
    generated = native.compiler.generated
    twin = replace(spec, name="twin", output=TensorSpec(20, 3, 3, 16))
    check(native, twin, inputs, KernelExponents((0, 0), 7), KernelParameters())
    assert native.compiler.generated == generated


def test_results_do_not_depend_on_threads(native: TensorExpressionBackend) -> None:
    from binpoint.backends.tensor_expression.threads import use_threads

    try:
        for threads in (1, 2):
            use_threads(threads)
            for name in ("data-stride", "weight", "bias", "max-pool-overlapping"):
                spec, generator = GRADIENTS[name], np.random.default_rng(7)
                inputs = [mantissas((11, *tensor.shape), tensor.bits, generator) for tensor in spec.inputs]
                exponents = random_exponents(spec, generator)
                check(native, spec, inputs, exponents, gradient_parameters(spec, generator))
    finally:
        use_threads(None)

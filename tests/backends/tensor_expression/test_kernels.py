"""Kernels of layers equal the oracle bit for bit: outputs, events and statistics, on each CPU level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binpoint.backends.kernel import (
    EMPTY_RECORD,
    BoolArray,
    Convolution,
    Draw,
    KernelExponents,
    KernelParameters,
    KernelSpec,
)
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.tensor_expression import kernels
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.kernels import LayerKernel
from binpoint.support.numeric import Rounding
from tests.backends.layers import LAYERS, batches, mantissas, random_exponents, random_parameters

ORACLE = OracleBackend()

CONVOLUTIONS = [name for name, spec in LAYERS.items() if isinstance(spec.operation, Convolution)]


def check(
    backend: TensorExpressionBackend,
    kernel: LayerKernel,
    parameters: KernelParameters,
    inputs: Sequence[np.ndarray],
    exponents: KernelExponents,
    sample: BoolArray | None = None,
    draw: Draw | None = None,
    first_image: int = 0,
) -> None:
    """Compare one call with the oracle, and that the padding of channel blocks stays zero."""
    spec, keywords = kernel.spec, {"sample": sample, "draw": draw, "first_image": first_image}
    uploaded = [backend.upload(x, tensor) for x, tensor in zip(inputs, spec.inputs, strict=True)]
    result = kernel(uploaded, exponents, **keywords)
    expected = ORACLE.prepare(spec, parameters)(
        [ORACLE.upload(x, tensor) for x, tensor in zip(inputs, spec.inputs, strict=True)], exponents, **keywords
    )
    np.testing.assert_array_equal(backend.download(result.output), ORACLE.download(expected.output))
    assert result.events == expected.events
    assert result.statistics == expected.statistics
    blocked = result.output.blocked
    padding = -spec.output.channels % blocked.shape[-1]
    assert not padding or not blocked[:, -1, :, :, -padding:].any()


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer(generic: TensorExpressionBackend, name: str) -> None:
    check_batches(generic, LAYERS[name])


@pytest.mark.parametrize("name", [*CONVOLUTIONS, "global-average-pool", "concat", "sigmoid"])
def test_layers_on_this_cpu(native: TensorExpressionBackend, name: str) -> None:
    """The code for this CPU's level, where it has one: convolutions have a design of their own, the rest is vectorised
    in another way.
    """
    check_batches(native, LAYERS[name])


def check_batches(backend: TensorExpressionBackend, spec: KernelSpec) -> None:
    """Random and extreme inputs, batches of several sizes, any masks; each with exponents of its own."""
    generator = np.random.default_rng(spec.output.channels)
    parameters = random_parameters(spec, generator)
    kernel = backend.prepare(spec, parameters)
    for number, inputs in enumerate(batches(spec, generator)):
        sample = generator.random((len(inputs[0]), spec.output.channels)) < generator.choice([0.1, 0.5, 1.0])
        draw = Draw(int(generator.integers(1 << 31)), number, -number)
        exponents = random_exponents(spec, generator)
        check(backend, kernel, parameters, inputs, exponents, sample, draw, first_image=7 * number)


@pytest.mark.parametrize("name", ["conv", "conv-16-bit", "conv-wraps", "average-pool", "softmax"])
def test_without_statistics(native: TensorExpressionBackend, name: str) -> None:
    """Kernels that keep no values are other kernels."""
    spec = LAYERS[name]
    generator = np.random.default_rng(5)
    parameters = random_parameters(spec, generator)
    kernel, inputs = native.prepare(spec, parameters), next(batches(spec, generator))
    check(native, kernel, parameters, inputs, random_exponents(spec, generator), draw=Draw(1, 2, 3))


@pytest.mark.parametrize("name", ["conv-no-bias", "conv-64-bit", "add-mixed"])
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_exponents(generic: TensorExpressionBackend, name: str, data: st.DataObject) -> None:
    """Exponent updates, masks and inputs are run-time values: nothing is compiled for them."""
    spec = LAYERS[name]
    exponent = st.integers(-128, 127)
    exponents = KernelExponents(
        data.draw(st.tuples(*[exponent] * len(spec.inputs))), *data.draw(st.tuples(*[exponent] * 3))
    )
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    parameters = random_parameters(spec, np.random.default_rng(1))
    inputs = [mantissas((2, *tensor.shape), tensor.bits, generator) for tensor in spec.inputs]
    sample = generator.random((2, spec.output.channels)) < 0.5
    kernel = generic.prepare(spec, parameters)
    check(generic, kernel, parameters, inputs, exponents, sample, Draw(1, 2, data.draw(st.integers(0, 9))))


def test_an_exponent_update_generates_nothing(generic: TensorExpressionBackend) -> None:
    spec = LAYERS["conv"]
    generator = np.random.default_rng(0)
    parameters = random_parameters(spec, generator)
    kernel, inputs = generic.prepare(spec, parameters), next(batches(spec, generator))
    check(generic, kernel, parameters, inputs, KernelExponents((-4,), 2, -7, -11))
    generated = generic.compiler.generated
    for output in range(-3, 9):
        check(generic, kernel, parameters, inputs, KernelExponents((-4,), output, -7, -11))
    check(
        generic, generic.prepare(replace(spec, name="twin"), parameters), parameters, inputs, KernelExponents((0,), 0)
    )
    assert generic.compiler.generated == generated


def test_batches_in_chunks(generic: TensorExpressionBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks change neither results nor the element numbers of stochastic rounding."""
    monkeypatch.setattr(kernels, "VALUES_BYTES", 1)
    spec = LAYERS["conv-stochastic"]
    generator = np.random.default_rng(3)
    parameters = random_parameters(spec, generator)
    inputs = [mantissas((150, *tensor.shape), tensor.bits, generator) for tensor in spec.inputs]
    sample = generator.random((150, spec.output.channels)) < 0.2
    kernel = generic.prepare(spec, parameters)
    check(generic, kernel, parameters, inputs, random_exponents(spec, generator), sample, Draw(1, 2, 3), 11)


def test_no_images(generic: TensorExpressionBackend) -> None:
    spec = LAYERS["add"]
    inputs = [np.zeros((0, *tensor.shape), np.int64) for tensor in spec.inputs]
    nothing = np.zeros((0, spec.output.channels), np.bool_)
    check(
        generic,
        generic.prepare(spec, KernelParameters()),
        KernelParameters(),
        inputs,
        KernelExponents((0, 0), 0),
        nothing,
    )


def test_a_mask_without_samples_gives_an_empty_record(generic: TensorExpressionBackend) -> None:
    spec = LAYERS["relu"]
    inputs = [generic.upload(np.ones((1, *spec.inputs[0].shape), np.int64), spec.inputs[0])]
    kernel = generic.prepare(spec, KernelParameters())
    nothing = np.zeros((1, spec.output.channels), np.bool_)
    assert kernel(inputs, KernelExponents((0,), 0), sample=nothing).statistics == EMPTY_RECORD
    assert kernel(inputs, KernelExponents((0,), 0)).statistics is None


def test_statistics_that_a_spec_forgoes(generic: TensorExpressionBackend) -> None:
    spec = replace(LAYERS["relu"], statistics=False)
    inputs = [generic.upload(np.ones((1, *spec.inputs[0].shape), np.int64), spec.inputs[0])]
    sample = np.ones((1, spec.output.channels), np.bool_)
    assert generic.prepare(spec, KernelParameters())(inputs, KernelExponents((0,), 0), sample=sample).statistics is None


def test_stochastic_rounding_needs_a_draw(generic: TensorExpressionBackend) -> None:
    spec = replace(LAYERS["relu"], rounding=Rounding.STOCHASTIC)
    inputs = [generic.upload(np.ones((1, *spec.inputs[0].shape), np.int64), spec.inputs[0])]
    with pytest.raises(ValueError, match="draw"):
        generic.prepare(spec, KernelParameters())(inputs, KernelExponents((0,), 0))


@pytest.mark.parametrize(
    "parameters",
    [
        KernelParameters(),
        KernelParameters(np.zeros((17, 20, 3, 3), np.int64)),
        KernelParameters(np.full((17, 20, 3, 3), 128), np.zeros(17, np.int64)),
    ],
    ids=["none", "no bias", "too wide"],
)
def test_wrong_parameters(generic: TensorExpressionBackend, parameters: KernelParameters) -> None:
    with pytest.raises(ValueError, match="kernel layer"):
        generic.prepare(LAYERS["conv"], parameters)


def specs_by_kind() -> set[type]:
    return {type(spec.operation) for spec in LAYERS.values()}


def test_no_kind_of_layer_is_forgotten() -> None:
    from typing import get_args

    from binpoint.backends.kernel import Operation

    assert specs_by_kind() == set(get_args(Operation))
    assert {spec.rounding for spec in LAYERS.values()} == set(Rounding)

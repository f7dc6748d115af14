"""Bounds prove containers: never too narrow, and as narrow as the values allow."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpoint.backends.kernel import Accumulator, KernelExponents, LeakyRelu
from binpoint.backends.oracle.accumulate import exact_sum
from binpoint.backends.tensor_expression.bounds import (
    choose_container,
    choose_reduction,
    may_fold,
    nominal_magnitudes,
    total_bound,
    weight_magnitudes,
)
from binpoint.backends.tensor_expression.plan import Container
from binpoint.backends.tensor_expression.weights import Weight, weight_filters
from binpoint.support.numeric import Rounding, fixed_constant
from tests.backends.layers import LAYERS, LEAKY, batches, random_parameters

SUMS = [name for name, spec in LAYERS.items() if not spec.exact]


@pytest.mark.parametrize("name", SUMS)
@given(seed=st.integers(0, 99), exponents=st.lists(st.integers(-30, 30), min_size=4, max_size=4))
@settings(max_examples=20, deadline=None)
def test_no_result_exceeds_its_bound(name: str, seed: int, exponents: list[int]) -> None:
    spec = LAYERS[name]
    generator = np.random.default_rng(seed)
    parameters = random_parameters(spec, generator)
    inputs_exponents = KernelExponents(tuple(exponents[: len(spec.inputs)]), 0)
    magnitudes = nominal_magnitudes(spec)
    if parameters.weight is not None:
        actual = weight_magnitudes(spec, Weight(parameters.weight, weight_filters(spec)))
        assert all(found <= nominal for found, nominal in zip(actual, magnitudes, strict=True))
        magnitudes = actual
    for inputs in batches(spec, generator):
        bound = total_bound(spec, magnitudes, inputs_exponents, len(inputs[0]))
        sums = exact_sum(spec, parameters, inputs, inputs_exponents, (0, spec.output.channels))
        assert np.abs(sums).max() <= bound


def test_the_bound_is_reached() -> None:
    """All inputs least, all weights greatest or least by sign: the bound is not a guess."""
    spec = LAYERS["linear"]
    weight = np.full((10, 33, 1, 1), -128)
    magnitudes = weight_magnitudes(spec, Weight(weight, weight_filters(spec)))
    assert total_bound(spec, magnitudes, KernelExponents((0,), 0)) == 33 * 128 * 128
    assert nominal_magnitudes(spec) == magnitudes


@pytest.mark.parametrize(
    ("total", "bias", "bits", "container"),
    [
        ((1 << 30) - 1, 0, 40, Container.INT32),
        ((1 << 30) - 2, 1, 40, Container.INT32),
        ((1 << 30) - 1, 1, 40, Container.INT64),
        ((1 << 39) - 1, 0, 40, Container.INT64),
        (1 << 39, 0, 40, Container.WIDE),
        (1 << 38, 1 << 38, 40, Container.WIDE),
        ((1 << 62) - 1, 0, 64, Container.INT64),
        (1 << 62, 0, 64, Container.WIDE),
    ],
)
def test_containers(total: int, bias: int, bits: int, container: Container) -> None:
    spec = replace(LAYERS["linear"], accumulator=Accumulator(bits))
    assert choose_container(spec, total, bias) is container


def test_a_leaky_relu_needs_room() -> None:
    spec = replace(LAYERS["linear"], activation=LEAKY)  # multiplies by up to 2^11
    assert choose_container(spec, (1 << 19) - 1, 0) is Container.INT32
    assert choose_container(spec, 1 << 19, 0) is Container.INT64


def test_reductions() -> None:
    assert choose_reduction(LAYERS["linear"], Container.INT64, (1 << 31) - 1) == "int32"
    assert choose_reduction(LAYERS["linear"], Container.INT64, 1 << 31) == "int64"
    assert choose_reduction(LAYERS["add"], Container.INT64, 5) == "int64"


@pytest.mark.parametrize(
    ("value", "shift", "slope", "folds"),
    [
        ((1 << 29) - 1, 1, Fraction(1, 10), True),
        (1 << 29, 1, Fraction(1, 10), False),
        (1, 0, Fraction(1, 10), False),
        (1, 1, Fraction(3, 2), False),
        (1, 1, Fraction(256), False),
        (1, 40, Fraction(1, 1 << 14), True),
        (1, 40, Fraction(1, 1 << 16), False),
    ],
)
def test_leaky_values_that_may_be_folded(value: int, shift: int, slope: Fraction, *, folds: bool) -> None:
    """They need one bit below them, and the slope's product 31 bits."""
    spec = replace(LAYERS["conv-leaky"], activation=LeakyRelu(fixed_constant(slope, 8)))
    assert may_fold(spec, value, shift) == folds
    assert not may_fold(replace(spec, activation=None), value, shift)
    assert not may_fold(replace(spec, rounding=Rounding.STOCHASTIC), value, shift)

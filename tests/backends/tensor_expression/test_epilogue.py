"""The arithmetic between accumulator and output, over the whole range of 64-bit accumulators.

Layers with 16-bit operands cannot reach most of that range, so the stages are compiled here on their own, over given
exact sums, and compared with the oracle's.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from binpoint.backends.kernel import (
    Accumulator,
    Activation,
    Clip,
    Draw,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    Relu,
    TensorSpec,
    TileResult,
    Widen,
)
from binpoint.backends.memory import aligned_copy, aligned_empty, aligned_zeros
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.oracle.layers import Part as OraclePart
from binpoint.backends.oracle.layers import run_layer
from binpoint.backends.tensor_expression.buffers import argument
from binpoint.backends.tensor_expression.capability import Capability
from binpoint.backends.tensor_expression.library import Function, load, load_runtime
from binpoint.backends.tensor_expression.plan import Container, Form, KernelPlan
from binpoint.backends.tensor_expression.runtime_scalars import call_scalars, exponent_scalars, value_exponent
from binpoint.backends.tensor_expression.statistics import StatisticsCircuit
from binpoint.support.numeric import FixedConstant, Rounding, fixed_constant

WIDTH = 24
"""Values of a call."""

BIAS_BITS = 32


def spec_of(
    rounding: Rounding,
    activation: Activation | None = None,
    bits: int = 40,
    wraps: bool = False,
    output_bits: int = 8,
) -> KernelSpec:
    """One channel, one row."""
    tensor = TensorSpec(1, 1, WIDTH, 16)
    output = TensorSpec(1, 1, WIDTH, output_bits)
    return KernelSpec("row", Widen(), (tensor,), output, activation, Accumulator(bits, wraps), rounding)


@cache
def compiled(plan: KernelPlan) -> Function:
    """The stages as a function of sums, bias, output, counts, values and scalars."""
    from tvm import IRModule, te

    from binpoint.backends.tensor_expression.codegen import object_code
    from binpoint.backends.tensor_expression.definition import output_part, scalar_variables
    from binpoint.backends.tensor_expression.epilogue import finish
    from binpoint.backends.tensor_expression.tensors import sizes

    scalars = scalar_variables(plan)
    sums = te.placeholder(sizes((1, 1, 1, WIDTH, 1)), "int64", name="sums")
    bias = te.placeholder(sizes((1,)), plan.container.dtype, name="bias")
    stages = finish(plan, output_part(plan, sums.shape[0], scalars), sums, bias, scalars)
    arguments = [sums, bias, stages.output, *stages.counts, *stages.values, *scalars.values()]
    load_runtime()
    library = load(object_code(IRModule({"main": te.create_prim_func(arguments)}), Capability.GENERIC))
    KEPT.append(library)
    return library.function


KEPT: list[object] = []
"""Code stays loaded while its library is referenced."""


def run(
    plan: KernelPlan, sums: NDArray[np.int64], bias: int, exponents: KernelExponents, draw: Draw | None
) -> tuple[NDArray[np.signedinteger], list[int], list[NDArray[np.int64]]]:
    """Output, event counts and values of one row."""
    shape = (1, 1, 1, WIDTH, 1)
    output = aligned_empty(shape, "int8" if plan.spec.output.bits <= 8 else "int16")
    counts = [aligned_zeros((1, 1, 1, 1), "int32") for _ in range(3 if plan.checked else 2)]
    values = [aligned_empty(shape, plan.container.dtype) for _ in range(plan.value_tensors)]
    arrays = [
        aligned_copy(sums.reshape(shape)),
        aligned_copy(np.array([bias], plan.container.dtype)),
        output,
        *counts,
        *values,
    ]
    compiled(plan)(
        *map(argument, arrays), *exponent_scalars(plan, exponents), *call_scalars(plan, draw, image_offset=5)
    )
    return output.ravel(), [int(count.sum()) for count in counts], values


def expected(
    spec: KernelSpec, sums: NDArray[np.int64], bias: int, exponents: KernelExponents, draw: Draw | None
) -> TileResult:
    """The same from the oracle; the bias is in the accumulator already, so its exponent is the accumulator's."""
    parameters = KernelParameters(bias=np.array([bias]))
    everything = np.ones((1, 1), np.bool_)
    values = sums.reshape(1, 1, 1, WIDTH)
    return run_layer(spec, parameters, [values], exponents, OraclePart((0, 1), 5), everything, draw)


def edges(bits: int) -> Iterator[int]:
    """Integers where something changes: around powers of two and their halves, and the ends of the range."""
    least, greatest = mantissa_range(bits)
    for power in range(bits - 1):
        for distance in (-1, 0, 1):
            yield from ((1 << power) + distance, -(1 << power) + distance, (3 << power) // 2 + distance)
    yield from (least, least + 1, greatest - 1, greatest)


def sums_within(bits: int) -> st.SearchStrategy[NDArray[np.int64]]:
    """Rows of sums of a width, many of them at the edges."""
    least, greatest = mantissa_range(bits)
    known = sorted({value for value in edges(bits) if least <= value <= greatest})
    value = st.sampled_from(known) | st.integers(least, greatest)
    return st.lists(value, min_size=WIDTH, max_size=WIDTH).map(lambda row: np.array(row, np.int64))


ACTIVATIONS: list[Activation | None] = [
    None,
    Relu(),
    Clip(fixed_constant(Fraction(6), 8)),
    LeakyRelu(fixed_constant(Fraction(1, 10), 8)),
]
NARROW = [
    (container, spec_of(rounding, activation))
    for container in (Container.INT32, Container.INT64)
    for rounding, activation in zip(Rounding, [*ACTIVATIONS, None], strict=True)
]
WIDE = [
    spec_of(Rounding.HALF_EVEN, LeakyRelu(fixed_constant(Fraction(1, 10), 8)), 64),
    spec_of(Rounding.HALF_AWAY, LeakyRelu(FixedConstant(-205, 7)), 64, output_bits=16),
    spec_of(Rounding.STOCHASTIC, LeakyRelu(FixedConstant((1 << 28) - 1, 28)), 64, wraps=True),
    spec_of(Rounding.FLOOR, None, 64, wraps=True, output_bits=16),
    spec_of(Rounding.STOCHASTIC, Relu(), 63),
    spec_of(Rounding.HALF_UP, Clip(fixed_constant(Fraction(6), 8)), 40, wraps=True, output_bits=5),
    spec_of(Rounding.HALF_EVEN, LeakyRelu(FixedConstant(250, -2)), 32, output_bits=2),
]


def name_of(case: object) -> str:
    if isinstance(case, KernelSpec):
        activation = type(case.activation).__name__.lower()
        return f"{case.accumulator.bits}-{case.rounding}-{activation}"
    return str(case)


def compare(plan: KernelPlan, sums: NDArray[np.int64], bias: int, exponents: KernelExponents, draw: Draw) -> None:
    output, counts, values = run(plan, sums, bias, exponents, draw)
    reference = expected(plan.spec, sums, bias, exponents, draw)
    np.testing.assert_array_equal(output, reference.output.ravel())
    events = reference.events
    assert counts == [events.saturated, events.underflowed, events.accumulator_overflows][: len(counts)]
    assert reference.statistics == statistics_of(plan, values, value_exponent(plan.spec, exponents))


def statistics_of(plan: KernelPlan, values: list[NDArray[np.int64]], exponent: int) -> object:
    pair = aligned_copy(np.array([[0, 0]], np.int32))
    return circuit(plan.container).acquire([argument(value) for value in values], argument(pair), exponent)


@cache
def circuit(container: Container) -> StatisticsCircuit:
    from binpoint.backends.tensor_expression.cache import KernelCache
    from binpoint.backends.tensor_expression.compiler import Compiler

    return StatisticsCircuit(container, Form.TILE, Compiler(Capability.GENERIC, KernelCache(None)))


draws = st.builds(Draw, *[st.integers(-9, 1 << 40)] * 3)


@pytest.mark.parametrize(("container", "spec"), NARROW, ids=name_of)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_narrow(container: Container, spec: KernelSpec, data: st.DataObject) -> None:
    """Values that a bound proves to leave two bits of the container free, for shifts of any size."""
    # A leaky ReLU multiplies by less than 2^11, the bias adds as much again.
    room = 12 if isinstance(spec.activation, LeakyRelu) else 1
    bits = min(container.narrow_bits + 1 - room, spec.accumulator.bits - 1)
    sums = data.draw(sums_within(bits))
    bias = data.draw(st.integers(*mantissa_range(bits)))
    exponents = KernelExponents((data.draw(st.integers(-128, 127)),), 0, bias=0)
    exponents = KernelExponents(exponents.inputs, exponents.inputs[0] + data.draw(shifts), bias=exponents.inputs[0])
    compare(KernelPlan(spec, container, "int64", True), sums, bias, exponents, data.draw(draws))


@pytest.mark.parametrize("spec", WIDE, ids=name_of)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_wide(spec: KernelSpec, data: st.DataObject) -> None:
    """Any 64-bit sum, in accumulators that it may leave."""
    sums = data.draw(sums_within(64))
    bias = data.draw(st.integers(*mantissa_range(spec.accumulator.bits)))
    exponent = data.draw(st.integers(-128, 127))
    exponents = KernelExponents((exponent,), exponent + data.draw(shifts), bias=exponent)
    compare(KernelPlan(spec, Container.WIDE, "int64", True), sums, bias, exponents, data.draw(draws))


shifts = st.integers(-20, 70) | st.integers(-300, 300)
"""Right shifts of the output against the accumulator, mostly where they matter."""

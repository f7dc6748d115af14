"""An update as code, elementwise in int64 (see `update_plan`).

It comes in two forms. The one computes all elements, in rows of 16 vectors of 8. The other computes only some pairs
(output channel, input channel), and leaves the values before quantisation, for statistics: a small part of the work,
done twice, instead of storing all values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import IRModule, s_tir, te, tirx

from binpoint.backends.oracle.fixed_point import container
from binpoint.backends.tensor_expression import arithmetic, stochastic, wide
from binpoint.backends.tensor_expression.arithmetic import Expression, Scalars, cast, constant, spread
from binpoint.backends.tensor_expression.parameter_layout import ROW_VECTORS, VECTOR
from binpoint.backends.tensor_expression.tensors import INDEX, reduce_axis, sizes
from binpoint.backends.tensor_expression.update_plan import CONTAINER, Result, Term, UpdatePlan
from binpoint.support.numeric import Rounding

VALUE = CONTAINER.dtype

COUNTS = ("saturated", "underflowed")
"""How the names of the stages end that count events."""


@dataclass(frozen=True)
class _Domain:
    """The elements that are computed: a shape, where an index reads a tensor, and its number in the parameter."""

    shape: tuple[Expression, ...]
    read: Callable[..., Expression]
    element: Callable[..., Expression]

    def stage(self, name: str, body: Callable[..., Expression]) -> Expression:
        return te.compute(self.shape, body, name=name)


def dtype_of_bits(bits: int) -> str:
    """The element type that holds mantissas of a parameter."""
    return str(container(bits).__name__)


def build(plan: UpdatePlan) -> Any:
    """The scheduled IRModule.

    `main` takes master, velocity (with momentum) and gradient; then for each result mantissas, saturated and
    underflowed counts of each row [rows, 8]; then the plan's scalars and the number of the first element.
    """
    scalars = {name: tirx.Var(name, INDEX) for name in plan.scalar_names}
    first = tirx.Var("first", INDEX)
    shape = sizes((tirx.Var("rows", INDEX), ROW_VECTORS, VECTOR))

    def element(row: Expression, vector: Expression, lane: Expression) -> Expression:
        return first + (row * ROW_VECTORS + vector) * VECTOR + lane

    domain = _Domain(shape, lambda tensor, *at: tensor(*at), element)
    tensors = _inputs(plan, shape)
    outputs: list[Expression] = []
    for result, value, rounded, output in _stages(plan, domain, tensors, scalars):
        outputs.append(output)
        outputs += _counts(domain, result, value, rounded)
    arguments = [*tensors.values(), *outputs, *scalars.values(), first]
    return _schedule(s_tir.Schedule(IRModule({"main": te.create_prim_func(arguments)})))


def build_sampled(plan: UpdatePlan) -> Any:
    """The scheduled IRModule of the form for statistics.

    `main` takes master, velocity (with momentum) and gradient as flat arrays, (P, 2) pairs, for each result the values
    [P, taps]; then the plan's scalars and C, the number of input channels.
    """
    scalars = {name: tirx.Var(name, INDEX) for name in plan.scalar_names}
    channels, count, taps = (tirx.Var(name, INDEX) for name in ("channels", "count", "taps"))
    pairs = te.placeholder(sizes((count, 2)), "int32", "pairs")

    def element(pair: Expression, tap: Expression) -> Expression:
        return (cast(pairs(pair, 0), INDEX) * channels + cast(pairs(pair, 1), INDEX)) * taps + tap

    domain = _Domain((count, taps), lambda tensor, *at: tensor(element(*at)), element)
    tensors = _inputs(plan, (tirx.Var("size", INDEX),))
    values = [value for _, value, _, _ in _stages(plan, domain, tensors, scalars)]
    arguments = [*tensors.values(), pairs, *values, *scalars.values(), channels]
    return _schedule_sampled(s_tir.Schedule(IRModule({"main": te.create_prim_func(arguments)})))


def _inputs(plan: UpdatePlan, shape: tuple[Expression, ...]) -> dict[str, Expression]:
    spec = plan.spec
    bits = {"master": spec.master_bits, "velocity": spec.velocity_bits, "gradient": spec.gradient_bits}
    return {
        name: te.placeholder(shape, dtype_of_bits(width), name) for name, width in bits.items() if width is not None
    }


def _stages(
    plan: UpdatePlan, domain: _Domain, tensors: Mapping[str, Expression], scalars: Scalars
) -> list[tuple[Result, Expression, Expression, Expression]]:
    """(result, value, rounded value, mantissas) of each result, in order."""
    computed: dict[str, Expression] = {}
    stages = []
    for result in plan.results:

        def mantissa(tensor: str, *at: Expression) -> Expression:
            found = computed.get(tensor)
            return cast(domain.read(tensors[tensor], *at) if found is None else found(*at), VALUE)

        value = domain.stage(f"{result.name}_value", _sum(plan, result, mantissa, scalars))
        rounded = domain.stage(f"{result.name}_rounded", _rounding(plan, result, domain, value, scalars))
        output = domain.stage(f"{result.name}_output", _narrow(result, rounded))
        computed[f"new_{result.name}"] = output
        stages.append((result, value, rounded, output))
    return stages


def _sum(
    plan: UpdatePlan, result: Result, mantissa: Callable[..., Expression], scalars: Scalars
) -> Callable[..., Expression]:
    """The terms at the exponent where they meet, added."""

    def term_at(term: Term, at: tuple[Expression, ...]) -> Expression:
        prefix = f"{result.name}_{term.name}_"
        value = mantissa(term.tensor, *at)
        if term.constants:
            value = value * spread(scalars[f"{prefix}multiplier"], value)
        for _ in range(term.halvings):
            one = constant(1, value)
            value = (value >> one) | (value & one)
        return value if len(result.terms) == 1 else arithmetic.align(value, plan.rounding, scalars, prefix)

    def body(*at: Expression) -> Expression:
        terms = [term_at(term, at) for term in result.terms]
        return sum(terms[1:], start=terms[0])

    return body


def _rounding(
    plan: UpdatePlan, result: Result, domain: _Domain, value: Expression, scalars: Scalars
) -> Callable[..., Expression]:
    prefix = f"{result.name}_"
    own = {name.removeprefix(prefix): scalar for name, scalar in scalars.items() if name.startswith(prefix)}
    if plan.rounding is not Rounding.STOCHASTIC:
        return lambda *at: arithmetic.round_to_output(value(*at), plan.rounding, own)

    def body(*at: Expression) -> Expression:
        floor = arithmetic.round_to_output(value(*at), Rounding.FLOOR, own)
        return floor + stochastic.rounds_up(*wide.limbs(value(*at)), domain.element(*at), own)

    return body


def _narrow(result: Result, rounded: Expression) -> Callable[..., Expression]:
    return lambda *at: cast(arithmetic.saturate(rounded(*at), result.bits), dtype_of_bits(result.bits))


def _counts(domain: _Domain, result: Result, value: Expression, rounded: Expression) -> list[Expression]:
    """Saturated and underflowed results, [rows, lanes]."""
    rows, vectors, lanes = domain.shape

    def count(name: str, flag: Callable[..., Expression]) -> Expression:
        vector = reduce_axis(vectors, "vector")

        def body(row: Expression, lane: Expression) -> Expression:
            return te.sum(cast(flag(row, vector, lane), "int32"), axis=vector)

        return te.compute((rows, lanes), body, name=f"{result.name}_{name}")

    saturated, underflowed = COUNTS
    return [
        count(saturated, lambda *at: arithmetic.saturated(rounded(*at), result.bits)),
        count(underflowed, lambda *at: arithmetic.underflowed(value(*at), rounded(*at))),
    ]


def _schedule(sch: Any) -> Any:
    """A task is a row; in it, vector by vector, all stages."""
    first, *stages = _blocks(sch)
    row, vector, _ = sch.get_loops(first)
    for stage in stages:
        sch.reverse_compute_at(stage, vector, preserve_unit_loops=True)
    sch.parallel(row)
    for stage in (first, *stages):
        *_, outer, inner = sch.get_loops(stage)
        if sch.get(stage).name_hint.endswith(COUNTS):
            # The innermost loop is the one vector that a step counts.
            sch.vectorize(outer)
            sch.vectorize(sch.get_loops(sch.decompose_reduction(stage, vector))[-1])
        else:
            sch.vectorize(inner)
    return sch.mod


def _schedule_sampled(sch: Any) -> Any:
    """A task is a pair; in it, element by element, all stages."""
    first, *stages = _blocks(sch)
    pair, tap = sch.get_loops(first)
    for stage in stages:
        sch.reverse_compute_at(stage, tap, preserve_unit_loops=True)
    sch.parallel(pair)
    return sch.mod


def _blocks(sch: Any) -> list[Any]:
    blocks: list[Any] = sch.get_child_blocks(sch.get_sblock("root"))
    return blocks

"""From the exact results of an operation to its outputs: bias, activation, quantisation, events, values.

Each step is a `te.compute` of its own (a *stage*), because several steps read the one before it; the schedule keeps
the stages of a row, or of a tile of registers, together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import te, tirx

from binpoint.backends.kernel import KernelSpec
from binpoint.backends.tensor_expression import arithmetic, stochastic, wide
from binpoint.backends.tensor_expression.arithmetic import Expression, Scalars, cast
from binpoint.backends.tensor_expression.layout import storage_dtype
from binpoint.backends.tensor_expression.plan import Container, Form, KernelPlan
from binpoint.backends.tensor_expression.runtime_scalars import leaky_slope
from binpoint.backends.tensor_expression.tensors import Part, reduce_axis, sizes
from binpoint.support.numeric import FixedConstant, Rounding

BiasReader = Callable[[Expression], Expression]
"""c -> the aligned bias of output channel c, in the container's dtype."""

Condition = Callable[..., Expression]
"""(n, c, h, w) -> whether a leaky gradient passes there unscaled."""


@dataclass(frozen=True)
class Stages:
    """The te tensors of an epilogue.

    `values` are the values before quantisation: one tensor, or (high, low) limbs; they are outputs of the kernel where
    the plan says so. There is no `output` where they are the only one. `counts` are the events saturated, underflowed
    and, where the plan is checked, overflowed: for each row of a channel block, [N, C blocks, H, block], or for a whole
    tile, [1].
    """

    values: tuple[Expression, ...]
    output: Expression | None
    counts: tuple[Expression, ...]


def finish(
    plan: KernelPlan,
    part: Part,
    total: Expression,
    bias: BiasReader | None,
    scalars: Scalars,
    passes: Condition | None = None,
) -> Stages:
    """All stages after the exact results `total`. `passes` is for the gradient of a leaky ReLU alone."""
    if plan.container is Container.WIDE:
        return _finish_wide(plan, part, total, bias, scalars, passes)
    spec, shape = plan.spec, sizes(part.shape)

    def value_at(*index: Expression) -> Expression:
        value = cast(total(*index), plan.container.dtype)
        if bias is not None:
            value = value + bias(part.coordinates(*index)[1])
        if passes is not None:
            return arithmetic.leak(value, passes(*part.coordinates(*index)), _slope(spec))
        return arithmetic.activate(value, spec.activation, scalars, folded=plan.folded)

    value = te.compute(shape, value_at, name="value")
    if plan.raw:
        return Stages((value,), None, ())
    rounded = te.compute(shape, _rounding(spec, part, value, _limbs_of(value), scalars), name="rounded")
    return Stages((value,), _output(spec, part, rounded), _event_counts(plan, part, value, rounded))


def _slope(spec: KernelSpec) -> FixedConstant:
    slope = leaky_slope(spec)
    assert slope is not None
    return slope


def _finish_wide(
    plan: KernelPlan,
    part: Part,
    total: Expression,
    bias: BiasReader | None,
    scalars: Scalars,
    passes: Condition | None,
) -> Stages:
    spec, accumulator, shape = plan.spec, plan.spec.accumulator, sizes(part.shape)

    exact = te.compute(shape, lambda *index: cast(total(*index), plan.container.dtype), name="exact")

    def with_bias(*index: Expression) -> Expression:
        limited = wide.limit(exact(*index), accumulator)
        return limited if bias is None else wide.add_limited(limited, bias(part.coordinates(*index)[1]), accumulator)

    def overflowed(*index: Expression) -> Expression:
        limited = wide.limit(exact(*index), accumulator)
        left = tirx.NE(limited, exact(*index))
        if bias is not None:
            left = tirx.Or(left, wide.add_overflows(limited, bias(part.coordinates(*index)[1]), accumulator))
        return left.astype("int32")

    accumulated = te.compute(shape, with_bias, name="accumulated")

    def both_limbs(*index: Expression) -> tuple[Expression, Expression]:
        value = accumulated(*index)
        if passes is not None:
            return wide.leaked_limbs(value, passes(*part.coordinates(*index)), _slope(spec))
        return wide.activated_limbs(value, spec.activation, scalars)

    high, low = (te.compute(shape, _limb(both_limbs, limb), name=name) for limb, name in enumerate(("high", "low")))
    value = te.compute(shape, lambda *index: wide.fold(high(*index), low(*index), scalars), name="value")
    rounded = te.compute(
        shape, _rounding(spec, part, value, lambda *index: (high(*index), low(*index)), scalars), name="rounded"
    )
    counts = (*_event_counts(plan, part, value, rounded), _count(plan, part, "overflowed", overflowed))
    return Stages((high, low), _output(spec, part, rounded), counts)


def _limb(both: Callable[..., tuple[Expression, Expression]], limb: int) -> Callable[..., Expression]:
    return lambda *index: both(*index)[limb]


def _limbs_of(value: Expression) -> Callable[..., tuple[Expression, Expression]]:
    return lambda *index: wide.limbs(cast(value(*index), "int64"))


def _rounding(
    spec: KernelSpec,
    part: Part,
    value: Expression,
    limbs: Callable[..., tuple[Expression, Expression]],
    scalars: Scalars,
) -> Callable[..., Expression]:
    """The body of the stage that brings values to the output's exponent."""
    if spec.rounding is not Rounding.STOCHASTIC:
        return lambda *index: arithmetic.round_to_output(value(*index), spec.rounding, scalars)

    def body(*index: Expression) -> Expression:
        floor = arithmetic.round_to_output(value(*index), Rounding.FLOOR, scalars)
        element = part.element(*index)
        up = stochastic.rounds_up(*limbs(*index), element, scalars)
        return floor + cast(up, str(floor.ty.dtype))

    return body


def _output(spec: KernelSpec, part: Part, rounded: Expression) -> Expression:
    bits = spec.output.bits
    return te.compute(
        sizes(part.shape),
        lambda *index: cast(arithmetic.saturate(rounded(*index), bits), storage_dtype(bits)),
        name="output",
    )


def _event_counts(
    plan: KernelPlan, part: Part, value: Expression, rounded: Expression
) -> tuple[Expression, Expression]:
    """How many results saturated, and how many underflowed."""

    def saturated(*index: Expression) -> Expression:
        return arithmetic.saturated(rounded(*index), plan.spec.output.bits)

    def underflowed(*index: Expression) -> Expression:
        return arithmetic.underflowed(value(*index), rounded(*index))

    return _count(plan, part, "saturated", saturated), _count(plan, part, "underflowed", underflowed)


def _count(plan: KernelPlan, part: Part, name: str, flag: Callable[..., Expression]) -> Expression:
    """The sum of a flag over each row, or over the whole tile."""
    *outer, width, block = sizes(part.shape)
    w = reduce_axis(width, "w")
    if plan.form is Form.LAYER:
        return te.compute(
            (*outer, block),
            lambda n, c, h, lane: te.sum(cast(flag(n, c, h, w, lane), "int32"), axis=w),
            name=name,
        )
    n, c, h, lane = (reduce_axis(size, axis) for size, axis in zip((*outer, block), "nchl", strict=True))
    axes = [n, c, h, w, lane]
    return te.compute(sizes((1,)), lambda _: te.sum(cast(flag(*axes), "int32"), axis=axes), name=name)

"""The run-time scalars of a kernel, computed on the host from exponents: the one place for every design.

A kernel's code reads them by the names that `scalar_names` lists; `exponent_scalars` and `call_scalars` give the
numbers in that order. Shifts are those of `shifts`.
"""

from __future__ import annotations

from collections.abc import Iterable

from binpoint.backends.generator import draw_key
from binpoint.backends.gradients import ChannelAffine, ClipGradient, LeakyReluGradient
from binpoint.backends.kernel import (
    Add,
    Clip,
    Concat,
    Draw,
    KernelExponents,
    KernelSpec,
    LeakyRelu,
)
from binpoint.backends.oracle.accumulate import accumulator_exponent
from binpoint.backends.oracle.activation import clip_limit
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.oracle.gradients import stored_limit
from binpoint.backends.tensor_expression.plan import Container, Form, KernelPlan
from binpoint.backends.tensor_expression.shifts import (
    FAR_SHIFT,
    alignment_names,
    alignment_values,
    output_names,
    output_values,
)
from binpoint.support.numeric import FixedConstant

ALIGNED = Add | Concat | ChannelAffine
"""The operations that bring their operands to one exponent."""

CALL_SCALARS = frozenset({"key", "image_offset", "first_image", "first_channel"})
"""The scalars that are int64 in every container."""


def scalar_names(plan: KernelPlan) -> tuple[str, ...]:
    """The scalars of a kernel, in the order of its arguments: the ones of an exponent, then the ones of a call."""
    return (*_exponent_names(plan), *_call_names(plan))


def exponent_scalars(plan: KernelPlan, exponents: KernelExponents) -> tuple[int, ...]:
    """The scalars that depend on exponents alone, in the container's dtype."""
    spec = plan.spec
    if isinstance(spec.operation, ClipGradient):
        return (stored_limit(spec.operation.limit, exponents.inputs[0], spec.inputs[0]),)
    if spec.exact:
        return ()
    values = list(_alignments(plan, exponents))
    exponent = accumulator_exponent(spec, exponents)
    if isinstance(spec.activation, Clip):
        limit = clip_limit(spec.activation.limit, exponent, spec.accumulator)
        # Past the container's greatest value it limits nothing.
        values.append(min(limit, mantissa_range(plan.container.bits)[1]))
    if plan.raw:
        return tuple(values)
    shift = exponents.output - value_exponent(spec, exponents, folded=plan.folded)
    values += output_values(shift, spec.output.bits, spec.rounding, plan.container)
    if plan.container is Container.WIDE:
        values.append(int(shift > FAR_SHIFT))
    return tuple(values)


def call_scalars(
    plan: KernelPlan, draw: Draw | None, image_offset: int = 0, tile: tuple[int, int] | None = None
) -> tuple[int, ...]:
    """The scalars that differ from call to call, all int64.

    `image_offset` is the number of the batch's first image within the step; `tile` the first image and channel of a
    PE program's tile.
    """
    values: list[int] = []
    if plan.stochastic:
        if draw is None:
            raise ValueError("stochastic rounding needs a draw")
        values.append(signed64(draw_key(draw)))
        if plan.form is Form.LAYER:
            values.append(image_offset)
    return (*values, *(tile or ()))


def _exponent_names(plan: KernelPlan) -> list[str]:
    spec = plan.spec
    if isinstance(spec.operation, ClipGradient):
        return ["stored_limit"]
    if spec.exact:
        return []
    names: list[str] = []
    if isinstance(spec.operation, ALIGNED):
        for index in range(len(spec.inputs)):
            names += alignment_names(f"input{index}_", spec.rounding)
    if isinstance(spec.activation, Clip):
        names.append("limit")
    if plan.raw:
        return names
    names += output_names("", spec.rounding)
    if plan.container is Container.WIDE:
        names.append("far")
    return names


def _call_names(plan: KernelPlan) -> list[str]:
    names = ["key"] if plan.stochastic else []
    if plan.form is Form.TILE:
        return [*names, "first_image", "first_channel"]
    return [*names, "image_offset"] if plan.stochastic else names


def value_exponent(spec: KernelSpec, exponents: KernelExponents, *, folded: bool = False) -> int:
    """The exponent of the values that are quantised: after the activation."""
    return accumulator_exponent(spec, exponents) - value_fraction_bits(spec, folded=folded)


def slope_integers(slope: FixedConstant) -> tuple[int, int]:
    """(multiplier, fraction bits) of a leaky ReLU's slope; a slope without a fraction has 0 fraction bits."""
    fraction_bits = max(slope.fraction_bits, 0)
    return slope.multiplier << (fraction_bits - slope.fraction_bits), fraction_bits


def leaky_slope(spec: KernelSpec) -> FixedConstant | None:
    """The slope that scales some of the accumulators: that of a leaky ReLU, or of its gradient."""
    if isinstance(spec.operation, LeakyReluGradient):
        return spec.operation.slope
    return spec.activation.slope if isinstance(spec.activation, LeakyRelu) else None


def value_fraction_bits(spec: KernelSpec, *, folded: bool) -> int:
    """How many fraction bits the activation adds to the accumulator."""
    if folded:
        return 1
    slope = leaky_slope(spec)
    return 0 if slope is None else slope_integers(slope)[1]


def folds(slope: FixedConstant) -> bool:
    """Whether `arithmetic.fold_leak` holds a slope in 32 bits: not above 1, and with few enough fraction bits."""
    multiplier, fraction_bits = slope_integers(slope)
    return (
        fraction_bits > 0
        and abs(multiplier).bit_length() + fraction_bits < 31
        and abs(multiplier) <= 1 << fraction_bits
    )


def alignment_shifts(spec: KernelSpec, exponents: KernelExponents) -> tuple[int, ...]:
    """The left shift of each operand of an add, concat or affine sum; negative to the right."""
    exponent = accumulator_exponent(spec, exponents)
    weight = exponents.weight if isinstance(spec.operation, ChannelAffine) else 0
    return tuple(each + weight - exponent for each in exponents.inputs)


def _alignments(plan: KernelPlan, exponents: KernelExponents) -> Iterable[int]:
    if isinstance(plan.spec.operation, ALIGNED):
        for left in alignment_shifts(plan.spec, exponents):
            yield from alignment_values(left, plan.spec.rounding, plan.container)


def signed64(pattern: int) -> int:
    """The int64 of a bit pattern."""
    return pattern - (1 << 64) if pattern >> 63 else pattern

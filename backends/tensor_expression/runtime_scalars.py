"""The run-time scalars of a kernel, computed on the host from exponents: the one place for every design.

A kernel's code reads them by the names that `scalar_names` lists; `exponent_scalars` and `call_scalars` give the
numbers in that order.
Shifts are clamped here to what the container allows, so that nothing overflows for exponents of any size.
"""

from __future__ import annotations

from collections.abc import Iterable

from binpoint.backends.generator import draw_key
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
from binpoint.backends.oracle.fixed_point import deterministic, mantissa_range
from binpoint.backends.oracle.layers import clip_limit
from binpoint.backends.tensor_expression.plan import Container, Form, KernelPlan
from binpoint.support.numeric import FixedConstant, Rounding

FAR_SHIFT = 32
"""Right shifts past this work on a value that was halved HALVINGS times (see `wide.fold`)."""

HALVINGS = 31

LARGEST_SHIFT = 255
"""Stochastic rounding treats all right shifts from 160 on alike: what is dropped is all sign."""

CALL_SCALARS = frozenset({"key", "image_offset", "first_image", "first_channel"})
"""The scalars that are int64 in every container."""


def scalar_names(plan: KernelPlan) -> tuple[str, ...]:
    """The scalars of a kernel, in the order of its arguments: the ones of an exponent, then the ones of a call."""
    return (*_exponent_names(plan), *_call_names(plan))


def exponent_scalars(plan: KernelPlan, exponents: KernelExponents) -> tuple[int, ...]:
    """The scalars that depend on exponents alone, in the container's dtype."""
    spec = plan.spec
    if spec.exact:
        return ()
    values = list(_alignments(plan, exponents))
    exponent = accumulator_exponent(spec, exponents)
    if isinstance(spec.activation, Clip):
        limit = clip_limit(spec.activation.limit, exponent, spec.accumulator)
        # Past the container's greatest value it limits nothing.
        values.append(min(limit, mantissa_range(plan.container.bits)[1]))
    shift = exponents.output - value_exponent(spec, exponents)
    values += _output_shift(plan, shift)
    if spec.rounding is Rounding.STOCHASTIC:
        values.append(min(max(shift, -1), LARGEST_SHIFT))
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
        values.append(_signed64(draw_key(draw)))
        if plan.form is Form.LAYER:
            values.append(image_offset)
    return (*values, *(tile or ()))


def _exponent_names(plan: KernelPlan) -> list[str]:
    spec = plan.spec
    if spec.exact:
        return []
    names = []
    if isinstance(spec.operation, Add | Concat):
        shift = ("left_shift", *_shift_names(deterministic(spec.rounding)))
        names += [f"input{index}_{name}" for index in range(len(spec.inputs)) for name in shift]
    if isinstance(spec.activation, Clip):
        names.append("limit")
    names += ["low", "high", "left_shift", *_shift_names(spec.rounding)]
    if plan.stochastic:
        names.append("shift")
    if plan.container is Container.WIDE:
        names.append("far")
    return names


def _call_names(plan: KernelPlan) -> list[str]:
    names = ["key"] if plan.stochastic else []
    if plan.form is Form.TILE:
        return [*names, "first_image", "first_channel"]
    return [*names, "image_offset"] if plan.stochastic else names


def value_exponent(spec: KernelSpec, exponents: KernelExponents) -> int:
    """The exponent of the values that are quantised: after the activation."""
    return accumulator_exponent(spec, exponents) - activation_fraction_bits(spec)


def slope_integers(slope: FixedConstant) -> tuple[int, int]:
    """(multiplier, fraction bits) of a leaky ReLU's slope; a slope without a fraction has 0 fraction bits."""
    fraction_bits = max(slope.fraction_bits, 0)
    return slope.multiplier << (fraction_bits - slope.fraction_bits), fraction_bits


def activation_fraction_bits(spec: KernelSpec) -> int:
    """How many fraction bits the activation adds to the accumulator."""
    return slope_integers(spec.activation.slope)[1] if isinstance(spec.activation, LeakyRelu) else 0


def alignment_shifts(spec: KernelSpec, exponents: KernelExponents) -> tuple[int, ...]:
    """The left shift of each operand of an add or concat; negative to the right."""
    exponent = accumulator_exponent(spec, exponents)
    return tuple(each - exponent for each in exponents.inputs)


def _alignments(plan: KernelPlan, exponents: KernelExponents) -> Iterable[int]:
    if isinstance(plan.spec.operation, Add | Concat):
        rounding = deterministic(plan.spec.rounding)
        for left in alignment_shifts(plan.spec, exponents):
            yield max(left, 0)
            yield from _shift_values(max(-left, 0), rounding, plan.container)


def _output_shift(plan: KernelPlan, shift: int) -> Iterable[int]:
    """low, high, left_shift and the right shift's scalars, for a right shift of any size, negative to the left."""
    bits, container = plan.spec.output.bits, plan.container
    if shift < 0:
        # Shifting out all bits but the sign saturates every value except 0.
        left = min(-shift, bits)
        least, greatest = mantissa_range(bits)
        yield from ((least >> left) - 1, (greatest >> left) + 1, left)
    else:
        yield from (*mantissa_range(container.bits), 0)
    right = max(shift, 0)
    if container is Container.WIDE and shift > FAR_SHIFT:
        right -= HALVINGS
    yield from _shift_values(right, plan.spec.rounding, container)


def _shift_names(rounding: Rounding) -> tuple[str, ...]:
    match rounding:
        case Rounding.HALF_EVEN | Rounding.HALF_AWAY:
            return "right_shift", "offset", "correction"
        case Rounding.HALF_UP:
            return "right_shift", "offset"
        case Rounding.FLOOR | Rounding.STOCHASTIC:
            return ("right_shift",)


def _shift_values(shift: int, rounding: Rounding, container: Container) -> Iterable[int]:
    """What `arithmetic.shift_right` reads, for shift >= 0.

    Narrow values become the same (0, or -1 by floor) for each shift past the container's narrow width.
    """
    shift = min(shift, container.narrow_bits + 1)
    half, any_shift = (1 << shift) >> 1, int(shift > 0)
    match rounding:
        case Rounding.HALF_EVEN:
            return shift, half - any_shift, any_shift
        case Rounding.HALF_AWAY:
            return shift, half, -any_shift
        case Rounding.HALF_UP:
            return shift, half
        case Rounding.FLOOR | Rounding.STOCHASTIC:
            return (shift,)


def _signed64(pattern: int) -> int:
    return pattern - (1 << 64) if pattern >> 63 else pattern

"""Fixed-point arithmetic as tensor expressions: limit to a width, activate, shift, round, saturate.

Each function takes and gives expressions of one dtype, the container: int32 or int64, scalar or vector (int32x8).
Widths, roundings and activations are known when a kernel is compiled; shifts and limits are run-time scalars that
`runtime_scalars` computes on the host. Unless a function says otherwise its values are *narrow*: |v| < 2^(w - 2) in
a container of w bits, which leaves room to add half of any power of two that matters. `wide` brings others there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx

from binpoint.backends.kernel import Activation, Clip, LeakyRelu, Relu
from binpoint.backends.oracle.fixed_point import deterministic, mantissa_range
from binpoint.backends.tensor_expression.runtime_scalars import slope_integers
from binpoint.support.numeric import FixedConstant, Rounding

Expression = Any
"""A TVM expression of a primitive type. TVM ships no types that a checker could read."""

Scalars = Mapping[str, Expression]
"""The run-time scalars of a kernel, by name."""


def dtype_of(value: Expression) -> Any:
    """The dtype of an expression, with .bits and .lanes."""
    return value.ty.dtype


def element_type(value: Expression) -> str:
    """The dtype of one lane."""
    return str(dtype_of(value)).split("x")[0]


def cast(value: Expression, element: str) -> Expression:
    """The value with elements of another type and as many lanes."""
    lanes = dtype_of(value).lanes
    return value.astype(element if lanes == 1 else f"{element}x{lanes}")


def spread(scalar: Expression, like: Expression) -> Expression:
    """A scalar in the dtype of `like`: cast, and on every lane."""
    element = cast(scalar, element_type(like))
    lanes = dtype_of(like).lanes
    return element if lanes == 1 else tirx.Broadcast(element, lanes)


def constant(value: int, like: Expression) -> Expression:
    """An integer constant in the dtype of `like`."""
    return spread(tirx.const(value, element_type(like)), like)


def flag(condition: Expression, like: Expression) -> Expression:
    """A comparison as 0 or 1 in the dtype of `like`, to be summed."""
    return condition.astype(str(dtype_of(like)))


def where(condition: Expression, value: Expression) -> Expression:
    """The value where a condition holds, else 0.

    Not a `Select`: TVM makes a branch of one that reads memory, which keeps loops from being vectorised.
    """
    return value & (constant(0, value) - flag(condition, value))


def clamp(value: Expression, least: Expression, greatest: Expression) -> Expression:
    """min(max(value, least), greatest)."""
    return tirx.min(tirx.max(value, least), greatest)


def sign(value: Expression) -> Expression:
    """-1 below zero, else 0: the sign bit on every bit."""
    return value >> constant(dtype_of(value).bits - 1, value)


def activate(value: Expression, activation: Activation | None, scalars: Scalars, *, folded: bool = False) -> Expression:
    """Apply an activation. The result of a leaky ReLU has `slope.fraction_bits` more fraction bits, one where `folded`.

    Reads the scalar `limit` (Clip): the limit at the accumulator's exponent.
    """
    zero = constant(0, value)
    match activation:
        case None:
            return value
        case Relu():
            return tirx.max(value, zero)
        case Clip():
            return clamp(value, zero, spread(scalars["limit"], value))
        case LeakyRelu(slope):
            return fold_leak(value, slope) if folded else leak(value, value >= zero, slope)


def shift_right(value: Expression, rounding: Rounding, scalars: Scalars, prefix: str = "") -> Expression:
    """value / 2^right_shift, rounded, for any deterministic rounding; right_shift = 0 changes nothing.

    Reads `right_shift`, `offset`, `correction` (see `runtime_scalars.shift_scalars`), each after `prefix`.
    The offset is half a unit; the correction takes one from it where a tie goes down.
    """
    shift = spread(scalars[f"{prefix}right_shift"], value)
    if rounding is Rounding.FLOOR:
        return value >> shift
    offset = spread(scalars[f"{prefix}offset"], value)
    if rounding is Rounding.HALF_UP:
        return (value + offset) >> shift
    correction = spread(scalars[f"{prefix}correction"], value)
    if rounding is Rounding.HALF_EVEN:
        # offset = half - 1; an odd quotient adds the 1 that makes a tie go up.
        return (value + offset + ((value >> shift) & correction)) >> shift
    if rounding is Rounding.HALF_AWAY:
        # correction = -1: below zero half - 1 makes a tie go down.
        return (value + offset + (sign(value) & correction)) >> shift
    raise ValueError(f"{rounding} rounding needs random numbers")


def align(value: Expression, rounding: Rounding, scalars: Scalars, prefix: str) -> Expression:
    """An operand at the exponent where operands meet: shifted left exactly, or right with rounding.

    Reads `left_shift` and the scalars of `shift_right`, each after `prefix`. Operands draw no random numbers: they
    round half-even where results round stochastically.
    """
    shifted = value << spread(scalars[f"{prefix}left_shift"], value)
    return shift_right(shifted, deterministic(rounding), scalars, prefix)


def leak(value: Expression, passes: Expression, slope: FixedConstant) -> Expression:
    """The value where it passes, else slope * value; with `slope.fraction_bits` more fraction bits."""
    multiplier, fraction_bits = slope_integers(slope)
    scaled = value * constant(multiplier, value)
    return tirx.Select(passes, value << constant(fraction_bits, value), scaled)


def fold_leak(value: Expression, slope: FixedConstant) -> Expression:
    """2 * value where it is not negative, else 2 * slope * value, rounded to odd: its floor, last bit set if inexact.

    A leaky ReLU that rounds to any output as the exact one does, as long as two bits or more are dropped: the last bit
    only breaks ties. So its results need one fraction bit, not those of the slope. For |value| < 2^(w - 3) in a
    container of w bits and slopes that `folds` allows.
    """
    multiplier, fraction_bits = slope_integers(slope)
    factor, bits = constant(multiplier, value), constant(fraction_bits - 1, value)
    low = (value & constant((1 << fraction_bits) - 1, value)) * factor
    high = (value >> constant(fraction_bits, value)) * factor
    exact = (high << constant(1, value)) + (low >> bits)
    inexact = flag(tirx.NE(low & constant((1 << (fraction_bits - 1)) - 1, value), constant(0, value)), value)
    return tirx.Select(value >= constant(0, value), value << constant(1, value), exact | inexact)


def shift_left(value: Expression, scalars: Scalars) -> Expression:
    """value * 2^left_shift for a value that is quantised next; what would leave the container is clipped first.

    Reads `left_shift` and `low`, `high`: the nearest values that saturate for certain once they are shifted.
    """
    inside = clamp(value, spread(scalars["low"], value), spread(scalars["high"], value))
    return inside << spread(scalars["left_shift"], value)


def round_to_output(value: Expression, rounding: Rounding, scalars: Scalars) -> Expression:
    """A narrow value at the output's exponent, rounded deterministically and not yet saturated."""
    return shift_right(shift_left(value, scalars), rounding, scalars)


def saturate(rounded: Expression, bits: int) -> Expression:
    """Clip to `bits` bits, in the same container."""
    least, greatest = mantissa_range(bits)
    return clamp(rounded, constant(least, rounded), constant(greatest, rounded))


def saturated(rounded: Expression, bits: int) -> Expression:
    """1 where `saturate` changes the value."""
    least, greatest = mantissa_range(bits)
    below = flag(rounded < constant(least, rounded), rounded)
    return below + flag(rounded > constant(greatest, rounded), rounded)


def underflowed(value: Expression, rounded: Expression) -> Expression:
    """1 where a nonzero value became zero."""
    zero = constant(0, rounded)
    return flag(tirx.EQ(rounded, zero), rounded) - flag(tirx.EQ(value, zero), rounded)

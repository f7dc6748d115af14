"""Accumulators whose values do not fit a container with room to spare: limits in 64 bits, products in 96.

Kernels fall back to these expressions where no bound proves a layer harmless: an accumulator that may overflow, one
of 63 or 64 bits, a leaky ReLU on a nearly full accumulator. A value is then two limbs, high * 2^32 + low with
0 <= low < 2^32, both int64.
"""

from __future__ import annotations

from tvm import tirx

from binpoint.backends.kernel import Accumulator, Activation, LeakyRelu
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.tensor_expression.arithmetic import (
    Expression,
    Scalars,
    activate,
    clamp,
    constant,
    sign,
    spread,
)
from binpoint.backends.tensor_expression.runtime_scalars import slope_integers
from binpoint.support.numeric import FixedConstant

LIMB_BITS = 32
FOLD_BITS = 61
"""Folded values are at most 2^61 in magnitude: narrow in int64."""


def limit(value: Expression, accumulator: Accumulator) -> Expression:
    """The exact int64 sum in the accumulator's width: saturated or wrapped."""
    if accumulator.bits == 64:
        return value
    if accumulator.wraps:
        spare = constant(64 - accumulator.bits, value)
        return signed(unsigned(value) << unsigned(spare)) >> spare
    least, greatest = mantissa_range(accumulator.bits)
    return clamp(value, constant(least, value), constant(greatest, value))


def add(left: Expression, right: Expression) -> Expression:
    """The sum modulo 2^64; in TVM a signed sum may not leave its range."""
    return signed(unsigned(left) + unsigned(right))


def unsigned(value: Expression) -> Expression:
    """The bit pattern of int64 as uint64.

    Not a cast: TVM's simplifier takes a cast for a promise that the value fits both types.
    """
    return tirx.reinterpret(str(value.ty.dtype).replace("int64", "uint64"), value)


def signed(pattern: Expression) -> Expression:
    """The int64 of a bit pattern in uint64."""
    return tirx.reinterpret(str(pattern.ty.dtype).replace("uint64", "int64"), pattern)


def add_limited(left: Expression, right: Expression, accumulator: Accumulator) -> Expression:
    """left + right in the accumulator's width, for operands that are in it."""
    total = add(left, right)
    if accumulator.bits < 64:
        return limit(total, accumulator)
    if accumulator.wraps:
        return total
    # The operands' common sign, as all ones or all zeros, over the greatest value gives the end of the range.
    end = sign(left) ^ constant(2**63 - 1, left)
    return tirx.Select(_left_the_range(left, right, total), end, total)


def add_overflows(left: Expression, right: Expression, accumulator: Accumulator) -> Expression:
    """Whether left + right leaves the accumulator's width, for operands that are in it; a condition."""
    total = add(left, right)
    if accumulator.bits == 64:
        return _left_the_range(left, right, total)
    return tirx.NE(limit(total, accumulator), total)


def activated_limbs(
    value: Expression, activation: Activation | None, scalars: Scalars
) -> tuple[Expression, Expression]:
    """(high, low) of the value after its activation, exact; see `leaked_limbs`."""
    if isinstance(activation, LeakyRelu):
        return leaked_limbs(value, value >= constant(0, value), activation.slope)
    return limbs(activate(value, activation, scalars))


def leaked_limbs(value: Expression, passes: Expression, slope: FixedConstant) -> tuple[Expression, Expression]:
    """(high, low) of `arithmetic.leak`, exact; high is below 2^60 in magnitude (`checks.SLOPE_BITS`)."""
    multiplier, fraction_bits = slope_integers(slope)
    factor = tirx.Select(passes, constant(1 << fraction_bits, value), constant(multiplier, value))
    high, low = limbs(value)
    product = low * factor
    carry, rest = limbs(product)
    return high * factor + carry, rest


def fold(high: Expression, low: Expression, scalars: Scalars) -> Expression:
    """A narrow int64 that the output's shift rounds and saturates like the exact value.

    Reads `far`. Where it is 0 the right shift is at most 32 (or to the left): all past 2^61 saturates any output.
    Where it is 1 the value is halved 31 times, keeping in the last bit whether anything was lost: the host takes
    31 from the shift, at least 2 remain, and the last bit only breaks ties.
    """
    end = constant(1 << FOLD_BITS, high)
    edge = constant(1 << (FOLD_BITS - LIMB_BITS), high)
    exact = (clamp(high, -edge, edge) << constant(LIMB_BITS, high)) | low
    near = clamp(exact, -end, end)
    lost = tirx.NE(low, constant(0, low)).astype(str(low.ty.dtype))
    halved = (high << constant(1, high)) | lost
    return tirx.Select(tirx.NE(spread(scalars["far"], high), constant(0, high)), halved, near)


def low_bits(high: Expression, low: Expression) -> Expression:
    """The value modulo 2^64, as uint64."""
    return (unsigned(high) << unsigned(constant(LIMB_BITS, high))) | unsigned(low)


def limbs(value: Expression) -> tuple[Expression, Expression]:
    """(high, low) of an int64."""
    return value >> constant(LIMB_BITS, value), value & constant(2**LIMB_BITS - 1, value)


def _left_the_range(left: Expression, right: Expression, total: Expression) -> Expression:
    """Whether a sum modulo 2^64 is wrong: its sign differs from both operands' signs."""
    return ((left ^ total) & (right ^ total)) < constant(0, total)

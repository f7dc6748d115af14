"""Stochastic rounding as tensor expressions: the generator of `binpoint.backends.generator` on uint64."""

from __future__ import annotations

from tvm import tirx

from binpoint.backends.generator import GOLDEN_GAMMA, LAST_SHIFT, MIX_STEPS
from binpoint.backends.tensor_expression.arithmetic import Expression, Scalars, clamp, constant, spread
from binpoint.backends.tensor_expression.wide import LIMB_BITS, low_bits, unsigned


def random_bits(key: Expression, index: Expression) -> Expression:
    """r(i) = mix(key + (i + 1) * GOLDEN_GAMMA) as uint64; `key` is the int64 with the key's bit pattern."""
    count = unsigned(index + tirx.const(1, "int64"))
    state = unsigned(key) + count * tirx.const(GOLDEN_GAMMA, "uint64")
    for shift, multiplier in MIX_STEPS:
        state = (state ^ (state >> tirx.const(shift, "uint64"))) * tirx.const(multiplier, "uint64")
    return state ^ (state >> tirx.const(LAST_SHIFT, "uint64"))


def rounds_up(high: Expression, low: Expression, index: Expression, scalars: Scalars) -> Expression:
    """Whether the value high * 2^32 + low (both int64) rounds up from floor, as 0 or 1 in int64.

    Reads `shift`, the whole right shift (0 or less is exact), and `key`.
    """
    shift = spread(scalars["shift"], high)
    below_one = random_bits(scalars["key"], index) < _fraction(high, low, shift)
    return tirx.Select(shift > constant(0, high), below_one.astype("int64"), constant(0, high))


def _fraction(high: Expression, low: Expression, shift: Expression) -> Expression:
    """The bits that the shift drops, scaled to 2^64."""
    none, most, limb = (constant(bits, high) for bits in (0, 63, LIMB_BITS))
    dropped = shift - constant(64, high)
    near = low_bits(high, low) << unsigned(clamp(-dropped, none, most))
    far_high = unsigned(high >> clamp(dropped - limb, none, most)) << unsigned(clamp(limb - dropped, none, limb))
    far = far_high | unsigned(low >> clamp(dropped, none, most))
    return tirx.Select(dropped > none, far, near)

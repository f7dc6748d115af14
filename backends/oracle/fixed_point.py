"""Shift, round, saturate: how an exact integer becomes a mantissa of b bits (SEMANTICS section 3).

Arrays are `Integers` (see `exact`): int64, or Python integers where 64 bits are not enough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.oracle.exact import Integers, shift_left
from binpoint.support.numeric import Rounding

BoolArray = NDArray[np.bool_]

WIDEST_INT64_SHIFT = 63
"""Right shifts of int64 up to here are defined and leave a remainder that int64 holds."""


def mantissa_range(bits: int) -> tuple[int, int]:
    """The least and the greatest integer of `bits` bits in two's complement."""
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def container(bits: int) -> type[np.signedinteger]:
    """The smallest of int8, int16, int32 that holds `bits` bits."""
    return np.int8 if bits <= 8 else np.int16 if bits <= 16 else np.int32


def saturate(values: Integers, bits: int) -> tuple[NDArray[np.int64], BoolArray]:
    """Clip to `bits` bits (at most 64). Returns the int64 result and where a value was outside."""
    least, greatest = mantissa_range(bits)
    outside = np.asarray((values < least) | (values > greatest), dtype=np.bool_)
    return _int64(np.clip(values, least, greatest)), outside


def wrap(values: Integers, bits: int) -> tuple[NDArray[np.int64], BoolArray]:
    """Keep the low `bits` bits (at most 64) as two's complement. Returns the int64 result and what changed."""
    least, greatest = mantissa_range(bits)
    outside = np.asarray((values < least) | (values > greatest), dtype=np.bool_)
    if not outside.any():
        return _int64(values), outside
    # Python integers, because `least` subtracted from a value of 64 bits may need 65.
    exact = values.astype(object)
    return _int64((exact - least) % (1 << bits) + least), outside


def shift_right(values: Integers, shift: int, rounding: Rounding, random: NDArray[np.uint64] | None = None) -> Integers:
    """values / 2^shift, rounded, for shift >= 1 of any size.

    `random` has one 64-bit number a value; stochastic rounding alone reads it.
    """
    if shift > WIDEST_INT64_SHIFT:
        values = values.astype(object)
    quotient = values >> shift
    remainder = values - (quotient << shift)
    half = 1 << (shift - 1)
    if rounding is Rounding.FLOOR:
        return quotient
    if rounding is Rounding.HALF_UP:
        up = remainder >= half
    elif rounding is Rounding.HALF_EVEN:
        up = (remainder > half) | ((remainder == half) & (quotient % 2 == 1))
    elif rounding is Rounding.HALF_AWAY:
        up = (remainder > half) | ((remainder == half) & (values >= 0))
    else:
        up = _stochastic(remainder, shift, random)
    return np.asarray(quotient + up)


def _stochastic(remainder: Integers, shift: int, random: NDArray[np.uint64] | None) -> BoolArray:
    """Up with the probability remainder / 2^shift: where the random number is below that fraction of 2^64."""
    if random is None:
        raise ValueError("stochastic rounding needs random numbers")
    if shift <= WIDEST_INT64_SHIFT and remainder.dtype != object:
        return random < remainder.astype(np.uint64) << np.uint64(64 - shift)
    fraction = remainder << (64 - shift) if shift <= 64 else remainder >> (shift - 64)
    return random < fraction.astype(np.uint64)


def align(values: Integers, exponent: int, target: int, rounding: Rounding) -> Integers:
    """Mantissas at 2^exponent as mantissas at 2^target: left shifts exact, right shifts rounded.

    Operands are aligned so before they meet in an accumulator. Only results draw random numbers, so
    stochastic rounding aligns half-even.
    """
    if target <= exponent:
        return shift_left(values, exponent - target)
    return shift_right(values, target - exponent, deterministic(rounding))


def deterministic(rounding: Rounding) -> Rounding:
    """The rounding of operands and constants: half-even in place of stochastic."""
    return Rounding.HALF_EVEN if rounding is Rounding.STOCHASTIC else rounding


def quantize(
    values: Integers,
    shift: int,
    bits: int,
    rounding: Rounding,
    random: NDArray[np.uint64] | None = None,
) -> tuple[NDArray[np.int64], BoolArray]:
    """Shift right by `shift` (left where it is negative), round, saturate to `bits` bits.

    Returns the int64 mantissas and where the rounded value was outside the range (counted as overflow).
    """
    if shift > 0:
        return saturate(shift_right(values, shift, rounding, random), bits)
    # A left shift is exact. Comparing before it, with the range shifted the other way, needs no wider integer.
    least, greatest = mantissa_range(bits)
    least_unshifted, greatest_unshifted = -(-least >> -shift), greatest >> -shift
    below, above = values < least_unshifted, values > greatest_unshifted
    inside = _int64(np.clip(values, least_unshifted, greatest_unshifted))
    shifted = inside << min(-shift, 63)
    return np.where(below, least, np.where(above, greatest, shifted)), np.asarray(below | above, dtype=np.bool_)


def _int64(values: Integers) -> NDArray[np.int64]:
    """Integers known to fit into 64 bits, as int64."""
    return values.astype(np.int64, copy=False)

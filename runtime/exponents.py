"""From statistics to exponents (SEMANTICS section 5).

A value with top position t fits b bits at the exponent t - (b - 2): bit b - 2 is the highest below the sign.
Counts are compared exactly, as integers and fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import StatisticsRecord
from binpoint.support.diagnostics import user_error
from binpoint.support.numeric import ExponentRule, UpdatePolicy

MANTISSA_BITS = 53
"""Bits of a float64 mantissa, the leading one included."""


def decide(update: UpdatePolicy, record: StatisticsRecord, bits: int, current: int) -> int:
    """The next exponent of a tensor of `bits` bits under the policy's rule, before clamping.

    `current` is kept by the rule `fixed` and where the record has no information: no samples, or only 0 and
    -1. See `clamp` for the declared range.
    """
    if update.rule is ExponentRule.FIXED or not record.msb:
        return current
    match update.rule:
        case ExponentRule.MSB_MAX:
            return exponent_of_top(max(record.msb), bits)
        case ExponentRule.MSB_HISTOGRAM:
            return exponent_of_top(top_position(record, update.r_max), bits)
        case ExponentRule.LSB_MIN:
            return min(record.lsb)
        case ExponentRule.MSB_LSB:
            # Saturation has priority; an exponent that loses fewer low bits than allowed is free headroom.
            least = exponent_of_top(top_position(record, update.r_max), bits)
            return max(least, bottom_position(record, update.r_min))


def clamp(exponent: int, exponent_range: tuple[int, int]) -> tuple[int, bool]:
    """The exponent within the declared range, and whether it had to be moved: the caller counts that."""
    clamped = min(max(exponent, exponent_range[0]), exponent_range[1])
    return clamped, clamped != exponent


def exponent_of_top(top: int, bits: int) -> int:
    """The smallest exponent at which a value with that top position fits `bits` bits."""
    return top - (bits - 2)


def top_position(record: StatisticsRecord, r_max: Fraction) -> int:
    """The smallest position t with count(msb > t) <= r_max * samples, not below the lowest that occurs.

    The record must have at least one msb.
    """
    tolerated = r_max * record.samples
    above = 0
    for position in sorted(record.msb, reverse=True):
        above += record.msb[position]
        if above > tolerated:
            return position
    return min(record.msb)


def bottom_position(record: StatisticsRecord, r_min: Fraction) -> int:
    """The largest position e with count(lsb < e) <= r_min * samples, not above the highest that occurs.

    The record must have at least one lsb.
    """
    tolerated = r_min * record.samples
    below = 0
    for position in sorted(record.lsb):
        below += record.lsb[position]
        if below > tolerated:
            return position
    return max(record.lsb)


def record_of_floats(values: NDArray[np.floating[Any]], tensor: str = "a tensor") -> StatisticsRecord:
    """The record of a float trial: what statistics PEs would see of these values at an exponent fine enough.

    The top position follows two's complement: that of 2^k is k, that of -2^k is k - 1. The lowest position is
    the lowest set bit of |x|. Zeros have none; with fraction bits to spare -1 is no special case.

    Raises:
        UserError: a value is infinite or not a number; `tensor` names it in the message.
    """
    exact = values.astype(np.float64).ravel()
    if not np.isfinite(exact).all():
        found = exact[~np.isfinite(exact)][0]
        raise user_error("not-finite", f"{tensor} holds a value that is no finite number", found=found)
    nonzero = exact[exact != 0]
    fractions, exponents = np.frexp(np.abs(nonzero))  # |x| = fraction * 2^exponent, 1/2 <= fraction < 1
    negative_power = (nonzero < 0) & (fractions == 0.5)
    tops = exponents.astype(np.int64) - 1 - negative_power
    mantissas = np.ldexp(fractions, MANTISSA_BITS).astype(np.int64)
    trailing_zeros = np.bitwise_count((mantissas & -mantissas) - 1).astype(np.int64)
    bottoms = exponents - MANTISSA_BITS + trailing_zeros
    return StatisticsRecord(_counts(tops), _counts(bottoms), exact.size - nonzero.size, exact.size)


def _counts(positions: NDArray[np.int64]) -> Mapping[int, int]:
    found, counts = np.unique(positions, return_counts=True)
    return {int(position): int(count) for position, count in zip(found, counts, strict=True)}

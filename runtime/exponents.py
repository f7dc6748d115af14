"""From one record of statistics to an exponent (docs/numerics.md section 6); `policies` follows records over time.

A value with top position t fits b bits at the exponent t - (b - 2): bit b - 2 is the highest below the sign.
Counts are compared exactly, as integers and fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import EMPTY_RECORD, StatisticsRecord
from binpoint.runtime.confidence import most_overflows
from binpoint.support.diagnostics import user_error
from binpoint.support.numeric import OPTIONS_OF_RULE, ExponentRule, UpdatePolicy

MANTISSA_BITS = 53
"""Bits of a float64 mantissa, the leading one included."""

_FRACTION_BITS = MANTISSA_BITS - 1
_FRACTION_MASK = (1 << _FRACTION_BITS) - 1
_EXPONENT_MASK, _EXPONENT_BIAS = 0x7FF, 1023
"""A float64 is sign, 11 bits of exponent with this bias, and the fraction (IEEE 754 binary64)."""


def decide(update: UpdatePolicy, record: StatisticsRecord, bits: int, current: int) -> int:
    """The next exponent of a tensor of `bits` bits under the policy's rule, before clamping.

    `current` is kept by the rule `fixed` and where the record has no information: no samples, or only 0 and
    -1. See `clamp` for the declared range.
    """
    if update.rule is ExponentRule.FIXED or not record.msb:
        return current
    match update.rule:
        case ExponentRule.MSB_MAX | ExponentRule.MSB_HISTOGRAM:
            return exponent_of_top(chosen_top(update, record), bits)
        case ExponentRule.LSB_MIN:
            return min(record.lsb)
        case ExponentRule.MSB_LSB:
            # Saturation has priority; an exponent that loses fewer low bits than allowed is free headroom.
            least = exponent_of_top(chosen_top(update, record), bits)
            return max(least, bottom_position(record, update.r_min))


def clamp(exponent: int, exponent_range: tuple[int, int]) -> tuple[int, bool]:
    """The exponent within the declared range, and whether it had to be moved: the caller counts that."""
    clamped = min(max(exponent, exponent_range[0]), exponent_range[1])
    return clamped, clamped != exponent


def exponent_of_top(top: int, bits: int) -> int:
    """The smallest exponent at which a value with that top position fits `bits` bits."""
    return top - (bits - 2)


@dataclass(frozen=True)
class Tolerance:
    """How many samples may lie above the top bit. A sample too small to tolerate anything says nothing of its share."""

    overflows: int
    small_sample: bool


def tolerance(update: UpdatePolicy, samples: int) -> Tolerance:
    """What a policy tolerates in so many samples: r_max of them, or what proves r_max at the policy's confidence.

    Rules without a share tolerate nothing, in samples of any size.
    """
    if "r_max" not in OPTIONS_OF_RULE[update.rule]:
        return Tolerance(0, True)
    if update.confidence is None:
        overflows = update.r_max.numerator * samples // update.r_max.denominator
        return Tolerance(overflows, overflows < 1)
    overflows = most_overflows(samples, update.r_max, update.confidence)
    return Tolerance(max(overflows, 0), overflows < 0)


def chosen_top(update: UpdatePolicy, record: StatisticsRecord) -> int:
    """The position that the range must hold: the lowest tolerated one, and spare bits above it in a small sample.

    The record must have at least one msb.
    """
    tolerated = tolerance(update, record.samples)
    return top_position(record, tolerated.overflows) + (update.headroom if tolerated.small_sample else 0)


def samples_above(record: StatisticsRecord, position: int) -> int:
    """How many samples have their highest bit above a position."""
    return sum(count for msb, count in record.msb.items() if msb > position)


def top_position(record: StatisticsRecord, tolerated: int) -> int:
    """The smallest position t with count(msb > t) <= tolerated, not below the lowest that occurs.

    The record must have at least one msb.
    """
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
    exact = np.ascontiguousarray(values, np.float64).reshape(-1)
    check_finite(exact, tensor)
    nonzero = exact[exact != 0]
    tiny = np.abs(nonzero) < np.finfo(np.float64).smallest_normal
    record = _record_of_normal(nonzero[~tiny] if tiny.any() else nonzero, 0)
    if tiny.any():
        record = record.merge(_record_of_normal(np.ldexp(nonzero[tiny], MANTISSA_BITS), -MANTISSA_BITS))
    return StatisticsRecord(record.msb, record.lsb, exact.size - nonzero.size, exact.size)


def check_finite(values: NDArray[np.floating[Any]], tensor: str) -> None:
    """Raise UserError where a value is infinite or not a number; `tensor` names it in the message."""
    finite = np.isfinite(values)
    if not finite.all():
        found = values[~finite][0]
        raise user_error("not-finite", f"{tensor} holds a value that is no finite number", found=found)


def records_of_floats(tensors: Mapping[str, NDArray[np.floating[Any]]]) -> dict[str, StatisticsRecord]:
    """`record_of_floats` of many tensors at once: small ones cost calls, not numbers."""
    flat = {name: np.ascontiguousarray(values, np.float64).reshape(-1) for name, values in tensors.items()}
    flat = {name: values for name, values in flat.items() if values.size}
    if not flat:
        return dict.fromkeys(tensors, EMPTY_RECORD)
    exact = np.concatenate(list(flat.values()))
    sizes = [values.size for values in flat.values()]
    starts = np.cumsum([0, *sizes[:-1]])
    biased = (exact.view(np.int64) >> _FRACTION_BITS) & _EXPONENT_MASK
    normal = (np.minimum.reduceat(biased, starts) > 0) & (np.maximum.reduceat(biased, starts) < _EXPONENT_MASK)
    names = [name for name, is_normal in zip(flat, normal.tolist(), strict=True) if is_normal]
    records = {name: record_of_floats(values, f'"{name}"') for name, values in tensors.items() if name not in names}
    if names:
        owner = np.repeat(np.arange(len(names)), np.array(sizes)[normal])
        msb, lsb = (
            _histograms(places, owner, len(names), offset)
            for places, offset in _places(exact[np.repeat(normal, sizes)])
        )
        for name, high, low in zip(names, msb, lsb, strict=True):
            records[name] = StatisticsRecord(high, low, 0, flat[name].size)
    return records


def _histograms(places: NDArray[np.int64], owner: NDArray[np.int64], owners: int, offset: int) -> list[dict[int, int]]:
    """How often each place occurs among those of each owner, by its position: place + offset."""
    least = int(places.min())
    width = int(places.max()) - least + 1
    counts = np.bincount(owner * width + (places - least), minlength=owners * width)
    found = np.flatnonzero(counts)
    histograms: list[dict[int, int]] = [{} for _ in range(owners)]
    for each, position, count in zip(
        (found // width).tolist(), (found % width + (least + offset)).tolist(), counts[found].tolist(), strict=True
    ):
        histograms[each][position] = count
    return histograms


def _record_of_normal(values: NDArray[np.float64], shift: int) -> StatisticsRecord:
    """The record of values times 2^shift, none of them 0 or below the normal numbers: from their bits in IEEE 754."""
    msb, lsb = (_histogram(places, shift + offset) for places, offset in _places(values))
    return StatisticsRecord(msb, lsb, 0, values.size)


def _places(values: NDArray[np.float64]) -> tuple[tuple[NDArray[np.int64], int], tuple[NDArray[np.int64], int]]:
    """The msb and the lsb of normal numbers: places that are not negative, and what to add for the position."""
    bits = values.view(np.int64)
    biased = (bits >> _FRACTION_BITS) & _EXPONENT_MASK
    fractions = bits & _FRACTION_MASK
    negative_power = (bits < 0) & (fractions == 0)
    leading = fractions | 1 << _FRACTION_BITS
    trailing_zeros = np.bitwise_count((leading & -leading) - 1)
    return (biased - negative_power, -_EXPONENT_BIAS), (biased + trailing_zeros, -_EXPONENT_BIAS - _FRACTION_BITS)


def _histogram(places: NDArray[np.int64], offset: int) -> Mapping[int, int]:
    """How often each place, not negative, occurs, by its position: place + offset."""
    counts = np.bincount(places)
    found = np.flatnonzero(counts)
    return dict(zip((found + offset).tolist(), counts[found].tolist(), strict=True))

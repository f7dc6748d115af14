"""Bit positions and the records that statistics PEs keep (SEMANTICS section 4)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import EMPTY_RECORD, StatisticsRecord
from binpoint.backends.oracle.exact import Integers

NO_POSITION = -1
"""The position of 0 and -1, which have no bit that differs from the sign."""


def msb_positions(values: Integers) -> NDArray[np.int64]:
    """The highest bit that differs from the sign bit, NO_POSITION for 0 and -1."""
    differing = _differing_bits(values)
    if differing.dtype == object:
        return _bit_lengths(differing) - 1
    # Fill every bit below the highest one; the number of ones is then its position + 1.
    for shift in (1, 2, 4, 8, 16, 32):
        differing = differing | differing >> shift
    return np.bitwise_count(differing).astype(np.int64) - 1


def lsb_positions(values: Integers) -> NDArray[np.int64]:
    """The lowest bit that differs from the sign bit, NO_POSITION for 0 and -1."""
    differing = _differing_bits(values)
    lowest = differing & -differing
    if differing.dtype == object:
        return _bit_lengths(lowest) - 1
    return np.where(differing == 0, NO_POSITION, np.bitwise_count(lowest - 1).astype(np.int64))


def record(values: Integers, exponent: int) -> StatisticsRecord:
    """The statistics of values at 2^exponent: positions are counted as absolute exponents."""
    msb, lsb = msb_positions(values), lsb_positions(values)
    none = int(np.count_nonzero(msb == NO_POSITION))
    return StatisticsRecord(_histogram(msb, exponent), _histogram(lsb, exponent), none, values.size)


def merge(records: Iterable[StatisticsRecord]) -> StatisticsRecord:
    """All records as one, in any order: shards of PEs, of images or of mini-batches."""
    merged = EMPTY_RECORD
    for each in records:
        merged = merged.merge(each)
    return merged


def _differing_bits(values: Integers) -> Integers:
    """A 1 where a bit differs from the sign bit: x, or ~x below zero."""
    return np.where(values < 0, ~values, values)


def _bit_lengths(values: Integers) -> NDArray[np.int64]:
    """int.bit_length of non-negative Python integers."""
    return np.array([value.bit_length() for value in values.flat], dtype=np.int64).reshape(values.shape)


def _histogram(positions: NDArray[np.int64], exponent: int) -> dict[int, int]:
    counts = np.bincount(positions[positions != NO_POSITION])
    return {int(position) + exponent: int(counts[position]) for position in np.flatnonzero(counts)}

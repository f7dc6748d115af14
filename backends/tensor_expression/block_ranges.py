"""What the ranges of an aligned map's channels say about the sums of a convolution, and about Winograd's transforms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import IntArray

KEPT_BITS = 4
"""Bits of a bound that are kept, so that calls with bounds nearby share what is prepared for them."""


@dataclass(frozen=True, eq=False)
class ChannelRanges:
    """The least and the greatest mantissa of each channel, int32 (C,); 0 is always among them."""

    least: IntArray
    greatest: IntArray

    @cached_property
    def largest(self) -> int:
        """The largest magnitude of all."""
        return max(int(self.greatest.max(initial=0)), -int(self.least.min(initial=0)))

    @cached_property
    def widest(self) -> int:
        """How far the mantissas of a channel lie apart, at most."""
        return int((self.greatest - self.least).max(initial=0))

    def magnitudes(self, most: int) -> IntArray:
        """The largest magnitude of each channel, or `most`."""
        magnitudes: IntArray = np.minimum(np.maximum(-self.least, self.greatest), most)
        return magnitudes

    def centres(self, most: int) -> IntArray | None:
        """What brings each channel to magnitudes of at most `most` once subtracted; None where none has to move.

        No channel is wider than 2 * most, and none moves further than it needs, most of them not at all.
        """
        if self.largest <= most:
            return None
        centres: IntArray = np.maximum(self.greatest - most, 0) + np.minimum(self.least + most, 0)
        return centres


class FilterSums:
    """Sums over the taps of filters (K, C / groups, R, S), which multiply C channels."""

    def __init__(self, filters: IntArray, channels: int) -> None:
        magnitudes = np.abs(filters.astype(np.int32)).sum(axis=(2, 3))
        groups = channels // magnitudes.shape[1]
        self.largest = int(magnitudes.sum(axis=1).max(initial=0))
        """The largest sum of magnitudes of a filter."""
        self._magnitudes: NDArray[np.float32] = magnitudes.reshape(groups, -1, magnitudes.shape[1]).astype(np.float32)
        # These sums are far below 2^53, so that float64 holds them, and multiplies them fast.
        self._totals = np.ascontiguousarray(filters.sum(axis=(2, 3), dtype=np.int64).T.astype(np.float64))

    def bound(self, ranges: ChannelRanges, most: int, enough: int) -> int:
        """A bound on all sums of products, where no channel has magnitudes past its range or `most`.

        It is not looked for any further once it is below `enough`.
        """
        bound = self.largest * min(ranges.largest, most)
        if bound < enough:
            return bound
        # The margin covers what float32 rounds away.
        margin = 1 + (self._magnitudes.shape[-1] + 4) * 2.0**-22
        by_group = ranges.magnitudes(most).astype(np.float32).reshape(len(self._magnitudes), -1, 1)
        return int(float((self._magnitudes @ by_group).max(initial=0)) * margin) + 1

    def of_constants(self, constants: IntArray) -> IntArray:
        """The sums (K,) where all mantissas of channel c are constants[c]; one group."""
        (some,) = np.nonzero(constants)
        sums: IntArray = (constants[some].astype(np.float64) @ self._totals[some]).astype(np.int64)
        return sums


def coarse_bound(bound: int) -> int:
    """A bound that is hardly larger and has few digits."""
    dropped = max(0, bound.bit_length() - KEPT_BITS)
    return (bound >> dropped) + 1 << dropped

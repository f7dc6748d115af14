"""Blocks of feature maps as pure arithmetic: what a stride makes of them, and when exact operations move them whole.

Shapes are (C, H, W); an axis is rows or columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from binpoint.support.numeric import Granularity

Shape = tuple[int, int, int]
Pair = tuple[int, int]

ELEMENTS = Granularity((1, 1), per_channel=True)
"""An exponent for each element."""


def strided(granularity: Granularity, stride: Pair) -> Granularity:
    """The granularity of a strided layer's result: 4x4 blocks become 2x2 at stride 2 (JP7819764B2 fig. 5B)."""
    if granularity.block is None:
        return granularity
    height, width = granularity.block
    return Granularity((max(1, height // stride[0]), max(1, width // stride[1])), granularity.per_channel)


def has_one_exponent(granularity: Granularity, shape: Shape) -> bool:
    """Whether all elements of an image's map share one exponent."""
    channels, height, width = shape
    one_block = granularity.block is None or (granularity.block[0] >= height and granularity.block[1] >= width)
    return one_block and (channels == 1 or not granularity.per_channel)


@dataclass(frozen=True)
class Reads:
    """What each element of a result reads along one axis: elements first to last of the operand."""

    first: Sequence[int]
    last: Sequence[int]

    def sources(self, block: int) -> list[int] | None:
        """The block that each element reads; None where one reads several."""
        firsts = [element // block for element in self.first]
        return firsts if firsts == [element // block for element in self.last] else None

    def moved(self, block: int) -> int | None:
        """The size of the result's blocks if those of the operand move whole, None if they do not."""
        sources = self.sources(block)
        if sources is None:
            return None
        run = next((index for index, source in enumerate(sources) if source != sources[0]), len(sources))
        return run if self.keep(block, run) else None

    def keep(self, before: int, after: int) -> bool:
        """Whether each of the result's blocks reads one block of the operand."""
        sources = self.sources(before)
        return sources is not None and all(
            len(set(sources[start : start + after])) == 1 for start in range(0, len(sources), after)
        )


@dataclass(frozen=True)
class BlockMove:
    """How an exact operation moves blocks: each element of the result reads a window of one channel."""

    before: Shape
    rows: Reads
    columns: Reads

    def granularity(self, before: Granularity) -> Granularity | None:
        """That of the result, if exponents move along with the mantissas; None if blocks do not move whole."""
        if before.block is None:
            return before
        height, width = self.rows.moved(before.block[0]), self.columns.moved(before.block[1])
        return None if height is None or width is None else Granularity((height, width), before.per_channel)

    def keeps(self, before: Granularity, after: Granularity) -> bool:
        """Whether exponents of one granularity can move along into a result of another."""
        if before.per_channel != after.per_channel and self.before[0] > 1:
            return False
        if before.block is None:
            return True
        height, width = after.block or (len(self.rows.first), len(self.columns.first))
        return self.rows.keep(before.block[0], height) and self.columns.keep(before.block[1], width)


@dataclass(frozen=True)
class ReshapeMove:
    """How a reshape moves blocks: elements keep their exponents, whatever becomes of their neighbours."""

    before: Shape

    def granularity(self, before: Granularity) -> Granularity:
        """One exponent an element, unless the map has one for all."""
        return Granularity() if has_one_exponent(before, self.before) else ELEMENTS


def pool_move(before: Shape, after: Shape, kernel: Pair, stride: Pair, padding: tuple[int, int, int, int]) -> BlockMove:
    """What a pool reads; padding (top, left, bottom, right) is not read."""
    rows, columns = (
        _windows(before[axis + 1], after[axis + 1], kernel[axis], stride[axis], padding[axis]) for axis in (0, 1)
    )
    return BlockMove(before, rows, columns)


def resize_move(before: Shape, after: Shape) -> BlockMove:
    """What nearest-neighbour resizing reads: row i reads row i * H // H_out."""
    rows, columns = ([index * before[axis] // after[axis] for index in range(after[axis])] for axis in (1, 2))
    return BlockMove(before, Reads(rows, rows), Reads(columns, columns))


def reshape_move(before: Shape) -> ReshapeMove:
    """What a reshape moves."""
    return ReshapeMove(before)


def _windows(before: int, after: int, kernel: int, stride: int, padding: int) -> Reads:
    starts = [index * stride - padding for index in range(after)]
    return Reads([max(0, start) for start in starts], [min(before, start + kernel) - 1 for start in starts])


def block_count(granularity: Granularity, shape: Shape) -> int:
    """The number of exponents of one image's feature map."""
    height, width = granularity.block or shape[1:]
    return prod((-(-shape[1] // height), -(-shape[2] // width), shape[0] if granularity.per_channel else 1))

"""How many exponents a PE meets in what it reads: one a block of the feature map (JP7819764B2 figs. 5A to 5C).

A filter unit reads the window of one result; a PE reads the windows of all results that it computes at a time, its
target block: `pe_block` pixels of the input and the halo of the kernel around them. A 3x3 kernel and 4x4 pixels make
a 6x6 target block.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """A sliding window over a map of `size` (height, width); `padding` is (top, left)."""

    size: Pair
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)

    @property
    def extent(self) -> Pair:
        """(height, width) of the pixels between the first and the last tap."""
        rows, columns = ((self.kernel[axis] - 1) * self.dilation[axis] + 1 for axis in (0, 1))
        return rows, columns

    def target_block(self, pe_block: Pair) -> Pair:
        """(height, width) of the pixels that a PE reads at a time: 6x6 for 4x4 and a 3x3 kernel, also at stride 2."""
        rows, columns = (self._advance(pe_block, axis) + self.extent[axis] - 1 for axis in (0, 1))
        return rows, columns

    def _advance(self, pe_block: Pair, axis: int) -> int:
        """By how many pixels a PE moves on: whole strides."""
        return max(1, pe_block[axis] // self.stride[axis]) * self.stride[axis]


def window_positions(window: Window, block: Pair) -> int:
    """The most exponents that one window meets, of blocks of (height, width): at most 4 for a 3x3 kernel.

    Taps that dilation leaves out count, as a PE is given the blocks that they lie in.
    """
    return _positions(window, block, window.extent, window.stride)


def target_positions(window: Window, block: Pair, target: Pair) -> int:
    """The most exponents that a target block of (height, width) meets: 9 for figs. 5A and 5B, 16 for fig. 5C."""
    rows, columns = (max(1, target[axis] - window.extent[axis] + 1) for axis in (0, 1))
    return _positions(window, block, target, (rows, columns))


def _positions(window: Window, block: Pair, extent: Pair, step: Pair) -> int:
    """Rows and columns are cut apart, so the most along each multiply."""
    rows, columns = (
        _most_blocks(window.size[axis], block[axis], extent[axis], step[axis], window.padding[axis]) for axis in (0, 1)
    )
    return rows * columns


def _most_blocks(size: int, block: int, extent: int, step: int, padding: int) -> int:
    """The most blocks that an interval meets which starts at -padding and moves by `step` over an axis of `size`."""
    period = block // gcd(block, step)
    most = 1
    # Inside of the map blocks are met as before after a period; the first intervals may begin in the padding.
    for index in range(period + -(-padding // step) + 1):
        first = index * step - padding
        last = min(first + extent, size) - 1
        if last >= max(first, 0):
            most = max(most, last // block - max(first, 0) // block + 1)
    return most

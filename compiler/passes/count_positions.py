"""A convolution over blocks -> the same, saying how many exponents its window and the target block of a PE meet.

    %0 = fx.conv2d (%x, %w) kernel = 3x3, ... : !fx.acc<...>
->  %0 = fx.conv2d (%x, %w) kernel = 3x3, positions = [4 of 3x3, 9 of 6x6], ... : !fx.acc<...>
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from binpoint.dialect.block_attributes import PositionsAttr
from binpoint.dialect.fx_accumulate import Conv2dOp
from binpoint.dialect.fx_types import FixedTensorType
from binpoint.scheduling.positions import target_positions


@dataclass(frozen=True)
class CountPositions(ModulePass):
    """A convolution over blocks -> the same, saying how many exponents its window and the target block of a PE meet.

    `height` and `width` are those of the block that a PE computes at a time at stride 1.
    """

    name = "count-positions"

    height: int = 4
    width: int = 4

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run over every convolution of the module whose input is cut into blocks."""
        for each in op.walk():
            if isinstance(each, Conv2dOp) and isinstance(each.input.type, FixedTensorType):
                block = each.input.type.granularity.data.block
                if block is not None:
                    window = each.window()
                    sizes = dict.fromkeys([window.extent, window.target_block((self.height, self.width))])
                    counted = tuple((target_positions(window, block, size), size) for size in sizes)
                    each.positions = PositionsAttr(counted)

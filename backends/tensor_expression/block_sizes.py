"""Shapes and dtypes of the code over blocks, and the expressions that depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from binpoint.backends.tensor_expression.arithmetic import Expression, cast, saturate
from binpoint.backends.tensor_expression.block_arithmetic import extent, shift_right, vector
from binpoint.backends.tensor_expression.block_plan import BlockPlan
from binpoint.backends.tensor_expression.layout import feature_map_layout, storage_dtype
from binpoint.support.numeric import Neighbour

Offset = tuple[int, int]

OFFSETS = {
    Neighbour.UPPER_LEFT: (-1, -1),
    Neighbour.UPPER: (-1, 0),
    Neighbour.UPPER_RIGHT: (-1, 1),
    Neighbour.LEFT: (0, -1),
}
"""Where a neighbour lies, in rows and columns of blocks."""


@dataclass(frozen=True)
class BlockSizes:
    """Those of one plan."""

    plan: BlockPlan

    @property
    def container(self) -> str:
        """Vectors that are computed with."""
        return vector(self.plan.container.dtype, self.plan.lanes)

    @property
    def values(self) -> str:
        """Vectors of values in memory."""
        return vector(self.plan.values.dtype, self.plan.lanes)

    @property
    def output(self) -> str:
        """Vectors of mantissas."""
        return vector(storage_dtype(self.plan.output.bits), self.plan.lanes)

    @property
    def events(self) -> str:
        """Vectors of counts."""
        return vector("int32", self.plan.lanes)

    @property
    def exponent(self) -> str:
        """A block's exponents, or its only one."""
        return "int32" if self.plan.shared else self.events

    @property
    def grid(self) -> tuple[int, int, int]:
        """(rows, columns, vectors of exponents a block)."""
        return (*self.plan.grid, 1 if self.plan.shared else self.plan.vectors)

    @property
    def map(self) -> tuple[int, int, int, int]:
        """(C blocks, H, W, vectors of a block)."""
        output = self.plan.output
        layout = feature_map_layout(output)
        return layout.blocks(output.channels), output.height, output.width, layout.block // self.plan.lanes

    def height(self, row: Expression) -> Expression:
        """How many rows of elements the blocks of a row have."""
        return extent(self.plan.output.height, self.plan.block[0], row)

    def width(self, column: Expression) -> Expression:
        """How many columns of elements the blocks of a column have."""
        return extent(self.plan.output.width, self.plan.block[1], column)

    def broadcast(self, scalar: Expression | int) -> Expression:
        """A number on all lanes, in the container."""
        element = self.plan.container.dtype
        number = tirx.const(scalar, element) if isinstance(scalar, int) else cast(scalar, element)
        return number if self.plan.lanes == 1 else tirx.Broadcast(number, self.plan.lanes)

    def computed(self, value: Expression) -> Expression:
        """A stored value in the container."""
        return cast(value, self.plan.container.dtype)

    def exponents_of(self, scalar: Expression) -> Expression:
        """A number in all exponents of a block that are one vector."""
        return scalar if self.plan.shared or self.plan.lanes == 1 else tirx.Broadcast(scalar, self.plan.lanes)

    def known(self, offsets: Sequence[Offset], row: Expression, column: Expression) -> Expression:
        """How many of the blocks at some offsets lie inside the map."""
        return sum((self._inside(offset, row, column).astype("int32") for offset in offsets), tirx.const(0, "int32"))

    def total(
        self, counts: Any, offsets: Sequence[Offset], n: Any, row: Any, column: Any, candidate: Any, v: Any
    ) -> Any:
        """The counts of a candidate, added up over the blocks at some offsets that lie inside the map."""
        zero = self.exponents_of(tirx.const(0, "int32"))
        return sum(
            (
                tirx.if_then_else(
                    self._inside((down, right), row, column), counts[n, row + down, column + right, candidate, v], zero
                )
                for down, right in offsets
            ),
            zero,
        )

    def _inside(self, offset: Offset, row: Expression, column: Expression) -> Expression:
        rows, columns = self.plan.grid
        down, right = row + offset[0], column + offset[1]
        return tirx.all(down >= 0, down < rows, right >= 0, right < columns)

    def shift(self, exponent: Expression, unit: Expression) -> Expression:
        """The right shift from values to an exponent: past the container all are alike."""
        return tirx.min(exponent - unit, self.broadcast(self.plan.container.narrow_bits + 1))

    def rounded(self, value: Expression, shift: Expression) -> Expression:
        """A lifted value at the output's exponent, not yet saturated."""
        return shift_right(value, shift, self.plan.rounding)

    def mantissa(self, rounded: Expression) -> Expression:
        """The vector that is stored."""
        bits = self.plan.output.bits
        return cast(saturate(rounded, bits), storage_dtype(bits))

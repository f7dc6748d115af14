"""Tensors of a kernel that do not know their memory layout: the part of a result to compute, the maps to read.

A definition serves a whole layer (feature maps in channel blocks) and the PE program of one tile (NCHW): a `Part`
says which results a tensor's indices stand for, a `Source` reads the element (n, c, h, w) of an input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from binpoint.backends.kernel import TensorSpec
from binpoint.backends.tensor_expression.arithmetic import Expression, cast
from binpoint.backends.tensor_expression.layout import Layout

INDEX = "int64"
"""The dtype of sizes and indices: feature maps of a batch may hold more than 2^31 elements."""


Coordinates = tuple[Expression, Expression, Expression, Expression]
"""(n, c, h, w)."""

Operands = Mapping[str, Expression]
"""Parameters and tables of a kernel as te tensors, by name: `weight`, `table`, `reciprocals`."""


def sizes(shape: Sequence[Any]) -> tuple[Expression, ...]:
    """A shape with its integers as index constants."""
    return tuple(tirx.const(size, INDEX) if isinstance(size, int) else size for size in shape)


def reduce_axis(extent: Any, name: str) -> Expression:
    """A reduction axis 0 <= name < extent."""
    return te.reduce_axis(sizes((0, extent)), name)


def window_axes(kernel: tuple[int, int]) -> tuple[Expression, Expression]:
    """The axes r and s of a window."""
    return reduce_axis(kernel[0], "r"), reduce_axis(kernel[1], "s")


@dataclass(frozen=True)
class Part:
    """The results that a tensor of `shape` holds: indices -> (n, c, h, w) within the layer.

    `element` gives the number of a result within the layer's results of the whole step, which keys its random number.
    n counts from `first_image`. `channels` is the layer's number of output channels. Where `padded`, c may lie past
    it, in the padding of the last channel block: such a position is no result and must hold 0.
    """

    shape: tuple[Expression, ...]
    coordinates: Callable[..., Coordinates]
    element: Callable[..., Expression]
    first_image: Expression
    channels: int
    padded: bool

    def compute(self, name: str, body: Callable[..., Expression]) -> Expression:
        """A te tensor whose elements are body(n, c, h, w)."""
        return te.compute(sizes(self.shape), lambda *index: body(*self.coordinates(*index)), name=name)

    def real(self, c: Expression, value: Expression) -> Expression:
        """The value; 0, without evaluating it, where the channel is padding."""
        if not self.padded:
            return value
        return tirx.if_then_else(c < self.channels, value, tirx.const(0, str(value.ty.dtype)))

    def existing(self, c: Expression) -> Expression:
        """The channel, or the last one where it is padding: for reading parameters that have no padding."""
        return tirx.min(c, self.channels - 1) if self.padded else c


@dataclass(frozen=True)
class Source:
    """A feature map that a kernel reads, as a te tensor in a layout."""

    tensor: Expression
    layout: Layout
    spec: TensorSpec

    def read(self, n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        """The mantissa at (n, c, h, w), in its storage dtype."""
        return self.tensor(*self.layout.index(n, c, h, w))

    def read_inside(self, n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        """The mantissa at (n, c, h, w) as int32; 0 where the row or the column lies beyond the border."""
        inside = tirx.all(h >= 0, h < self.spec.height, w >= 0, w < self.spec.width)
        return tirx.if_then_else(inside, cast(self.read(n, c, h, w), "int32"), tirx.const(0, "int32"))

    def bordered(self, padding: tuple[int, int, int, int], fill: int) -> Source:
        """The same map inside a border (top, left, bottom, right) of mantissas `fill`; rows count from its corner.

        A negative border takes rows or columns away.
        """
        if not any(padding):
            return self
        top, left, bottom, right = padding
        height, width = self.spec.height, self.spec.width
        batch, blocks, _, _, block = self.tensor.shape

        def body(n: Expression, b: Expression, h: Expression, w: Expression, lane: Expression) -> Expression:
            inside = tirx.all(h >= top, h < top + height, w >= left, w < left + width)
            value = self.tensor(n, b, h - top, w - left, lane)
            return tirx.if_then_else(inside, value, tirx.const(fill, str(value.ty.dtype)))

        shape = (batch, blocks, height + top + bottom, width + left + right, block)
        return Source(te.compute(sizes(shape), body, name="padded"), self.layout, self.spec)

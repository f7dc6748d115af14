"""What a value of an ONNX graph is to the importer: a constant, or elements of a layer's result in some order.

The importer follows the graph for a batch of one image. A tensor that depends on the network's inputs is then a
bijective view: each of its elements is one element of one layer's (C, H, W). Reshape, Transpose, Flatten and their
kin only change the view, so that no layer is needed until something reads the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.layers import Shape

Padding = tuple[int, int, int, int]
"""(top, left, bottom, right)."""

NO_PADDING: Padding = (0, 0, 0, 0)


class UnsupportedError(Exception):
    """A node that the language cannot express; the text says why, in one phrase."""


@dataclass(frozen=True)
class Constant:
    """A tensor that does not depend on the network's inputs."""

    array: NDArray[Any]


@dataclass(frozen=True)
class FeatureMap:
    """Elements of a layer's result, seen as a tensor of `shape` for a batch of one.

    `index` holds, in the tensor's row-major order, the position of each element in the layer's row-major
    (C, H, W); None stands for 0, 1, 2, ... `exclusive` says that nothing else reads the layer, so a constant
    that follows may go into its parameters.
    """

    layer: str
    shape: tuple[int, ...]
    index: NDArray[np.intp] | None = None
    exclusive: bool = True

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def reshape(self, shape: Sequence[int]) -> FeatureMap:
        """The same elements, in the same order, under another shape."""
        return replace(self, shape=tuple(shape))

    def transpose(self, permutation: Sequence[int]) -> FeatureMap:
        """The axes in another order, as numpy.transpose."""
        positions = np.arange(self.size, dtype=np.intp) if self.index is None else self.index
        moved = positions.reshape(self.shape).transpose(permutation)
        flat = moved.ravel()
        in_order = np.array_equal(flat, np.arange(self.size))
        return replace(self, shape=moved.shape, index=None if in_order else flat)


@dataclass(frozen=True)
class PaddedMap:
    """A (1, C, H, W) feature map with zeros around it, which the next window may take over."""

    map: FeatureMap
    padding: Padding

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape with the zeros."""
        batch, channels, height, width = self.map.shape
        top, left, bottom, right = self.padding
        return batch, channels, height + top + bottom, width + left + right


@dataclass(frozen=True)
class Unknown:
    """The result of a refused node where not even the shape is known."""


Value = Constant | FeatureMap | PaddedMap | Unknown


def map_shape(shape: tuple[int, ...]) -> Shape:
    """The (C, H, W) of a tensor for a batch of one; vectors get H = W = 1, sequences W = 1.

    A tensor whose first axis holds all elements is a vector that has lost its batch axis.
    """
    if shape[:1] == (math.prod(shape),):
        return shape[0], 1, 1
    if len(shape) > 4 or shape[:1] not in ((), (1,)):
        text = "x".join(map(str, shape))
        raise UnsupportedError(f"its input is a {text} tensor, which is no batch of feature maps or vectors")
    channels, height, width = (*shape[1:], 1, 1, 1)[:3]
    return channels, height, width

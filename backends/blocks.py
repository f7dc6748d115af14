"""Kernels over feature maps that carry one exponent a block (JP7819764B2), as plain data: the border to backends.

A feature map is cut into blocks of `block` = (height, width) elements, the last ones of a row or column possibly
smaller. Its exponents are a grid (N, G, rows, columns): G is 1 where all channels of an image share a block's
exponent, else the number of channels. One exponent for the whole map of an image is the case of a block as large as
the map.

`KernelSpec.blocks` says how a kernel finds the exponents of its output; the granularity of each feature map is in its
`TensorSpec`. The meaning is that of `binpoint.backends.oracle.pe`, one PE at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import (
    Draw,
    Events,
    IntArray,
    KernelParameters,
    KernelSpec,
    MaxPool,
    Resize,
    TensorSpec,
)
from binpoint.support.numeric import Granularity

ExponentGrid = NDArray[np.int32]
"""(N, G, rows, columns): the exponent of each block."""


def block_size(tensor: TensorSpec) -> tuple[int, int]:
    """(height, width) of a block of a feature map: what its granularity says, at most the whole map."""
    height, width = tensor.height, tensor.width
    if tensor.granularity.block is None:
        return height, width
    return min(tensor.granularity.block[0], height), min(tensor.granularity.block[1], width)


def grid_shape(tensor: TensorSpec) -> tuple[int, int, int]:
    """(G, rows, columns) of a feature map's exponents."""
    height, width = block_size(tensor)
    groups = tensor.channels if tensor.granularity.per_channel else 1
    return groups, -(-tensor.height // height), -(-tensor.width // width)


def spread(exponents: ExponentGrid, tensor: TensorSpec) -> IntArray:
    """The exponent of each element, (N, C, H, W), of a grid; a read-only view along the channels that share one."""
    height, width = block_size(tensor)
    rows = np.arange(tensor.height) // height
    columns = np.arange(tensor.width) // width
    elements = exponents[:, :, rows[:, np.newaxis], columns]
    return np.broadcast_to(elements, (len(exponents), *tensor.shape))


def moved_exponents(spec: KernelSpec, exponents: ExponentGrid) -> ExponentGrid:
    """The grid of an exact kernel's output: each of its blocks reads one block of the input."""
    source, output = spec.inputs[0], spec.output
    if isinstance(spec.operation, MaxPool | Resize):
        rows, columns = (_blocks_read(spec, axis) for axis in (0, 1))
        return exponents[:, :, rows[:, np.newaxis], columns]
    if grid_shape(source) == (1, 1, 1):
        return np.broadcast_to(exponents, (len(exponents), *grid_shape(output)))
    elements = spread(exponents, source).reshape(len(exponents), *output.shape)
    height, width = block_size(output)
    return elements[:, : grid_shape(output)[0], ::height, ::width]


def _blocks_read(spec: KernelSpec, axis: int) -> IntArray:
    """Along rows (0) or columns (1): the block of the input that the first element of each output block reads."""
    source, output = spec.inputs[0], spec.output
    first = np.arange(grid_shape(output)[1 + axis]) * block_size(output)[axis]
    if isinstance(spec.operation, MaxPool):
        read = np.maximum(first * spec.operation.stride[axis] - spec.operation.padding[axis], 0)
    else:
        read = first * source.shape[1 + axis] // output.shape[1 + axis]
    return read // block_size(source)[axis]


@dataclass(frozen=True)
class BlockMap:
    """A feature map: mantissas in a buffer of the backend, and its grid of exponents.

    `bounds` is (finest, coarsest) where it is known: no exponent lies outside.
    """

    buffer: Any
    exponents: ExponentGrid
    bounds: tuple[int, int] | None = field(default=None, compare=False, repr=False)

    @property
    def batch(self) -> int:
        """N, the number of images."""
        return len(self.exponents)

    @property
    def span(self) -> tuple[int, int]:
        """(finest, coarsest): all exponents lie between them. There is an image."""
        return self.bounds or (int(self.exponents.min()), int(self.exponents.max()))


@dataclass(frozen=True)
class BlockExponents:
    """The exponents of one call that are not in its inputs.

    Attributes:
        weight: of the weights, (K,) one an output channel, or (1,).
        bias: of the bias, alike.
        candidates: the exponents that a block of the output can take, distinct, the coarsest (largest) first.
        default: that of a block that is predicted without an analysed neighbour; one of the candidates.
    """

    weight: tuple[int, ...] = (0,)
    bias: tuple[int, ...] = (0,)
    candidates: tuple[int, ...] = (0,)
    default: int = 0


@dataclass(frozen=True)
class BlockResult:
    """What one call leaves.

    `overflows` is (N, candidates): how many results of each image would leave the output's range at each candidate;
    None where it was not asked for. Events count as for other kernels, at the exponents that were chosen.
    """

    output: BlockMap
    events: Events
    overflows: IntArray | None = None


class BlockKernel(Protocol):
    """One compiled kernel with its parameters."""

    def __call__(
        self,
        inputs: Sequence[BlockMap],
        exponents: BlockExponents,
        *,
        overflows: bool = False,
        draw: Draw | None = None,
        first_image: int = 0,
    ) -> BlockResult:
        """Compute all images of the batch."""


class BlockBackend(Protocol):
    """Compiles kernels over blocks. Buffers are those of the backend of the same name."""

    name: str

    def upload(self, mantissas: IntArray, spec: TensorSpec) -> Any:
        """(N, C, H, W) mantissas into a buffer."""

    def download(self, buffer: Any) -> IntArray:
        """A buffer as (N, C, H, W) mantissas, int8 up to 8 bits, int16 up to 16, else int32."""

    def prepare_blocks(self, spec: KernelSpec, parameters: KernelParameters) -> BlockKernel:
        """Compile a kernel over blocks and bind its parameters."""


WHOLE_MAP = Granularity()
"""One exponent for all of a feature map."""

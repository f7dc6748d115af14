"""A layer's weights on their way into the order in which code reads them, quickly enough for every mini-batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from binpoint.backends.gradients import ChannelAffine, ConvolutionDataGradient
from binpoint.backends.kernel import Convolution, IntArray, KernelSpec
from binpoint.backends.memory import aligned_zeros

Pack = Callable[[IntArray], IntArray]
"""Filters of whole tiles (outputs, terms, R, S) -> the order of the code, tile by tile."""

Taps = tuple[tuple[int, ...], tuple[int, ...]]
"""Rows and columns of a kernel, in the order in which they are used."""


@dataclass(frozen=True)
class Filters:
    """What a kernel makes of a weight: one filter (terms, R, S) for each of its outputs.

    `exchanged` turns (K, C / groups, R, S) into (C, K / groups, R, S), group by group. `taps` takes some rows and
    columns, None for all.
    """

    exchanged: bool = False
    groups: int = 1
    taps: Taps | None = None

    def of(self, weight: IntArray) -> IntArray:
        """The filters (outputs, terms, R, S) with all taps; contiguous."""
        weight = np.ascontiguousarray(weight)
        if not self.exchanged:
            return weight
        outputs, inputs, *kernel = weight.shape
        # A kernel moves as one element of its size in bytes, which is many times faster than moving its taps.
        element = np.dtype((np.void, weight.itemsize * kernel[0] * kernel[1]))
        whole = weight.reshape(self.groups, outputs // self.groups, inputs, -1).view(element)[..., 0]
        exchanged = np.ascontiguousarray(whole.transpose(0, 2, 1))
        shape = self.groups * inputs, outputs // self.groups, *kernel
        return exchanged.view(weight.dtype).reshape(shape)

    def select(self, filters: IntArray) -> IntArray:
        """The taps that are used, in their order."""
        if self.taps is None:
            return filters
        rows, columns = self.taps
        return filters[:, :, list(rows)][:, :, :, list(columns)]


def weight_filters(spec: KernelSpec) -> Filters:
    """How a kernel reads its weight, where it is not told otherwise."""
    match spec.operation:
        case ConvolutionDataGradient(convolution):
            return Filters(exchanged=True, groups=convolution.groups)
        case ChannelAffine():
            return Filters(exchanged=True)
        case _:
            return Filters()


def weight_bits(spec: KernelSpec) -> int | None:
    """The width of a kernel's weights, None where it has none."""
    match spec.operation:
        case Convolution():
            return spec.operation.weight_bits
        case ConvolutionDataGradient(convolution):
            return convolution.weight_bits
        case ChannelAffine(bits):
            return bits
        case _:
            return None


def bias_bits(spec: KernelSpec) -> int | None:
    """The width of a kernel's biases, None where it has none."""
    return spec.operation.bias_bits if isinstance(spec.operation, Convolution | ChannelAffine) else None


class PackedWeight:
    """Filters in the order of some code, in memory that stays in place.

    Packing is a permutation, the same for every tile of `rows` filters. It is learnt once, by packing the numbers of a
    tile's elements; loading other weights is then one gather.

    Args:
        shape: of the filters (outputs, terms, R, S), with all taps.
        rows: filters of a tile.
        tiles: how many tiles the code reads.
        pack: orders whole tiles.
        dtype: of the packed weights.
    """

    def __init__(self, shape: tuple[int, ...], rows: int, tiles: int, pack: Pack, dtype: str) -> None:
        elements = rows * int(np.prod(shape[1:]))
        packed = pack(np.arange(1, elements + 1).reshape(rows, *shape[1:]))
        self._index = packed.reshape(-1) - 1
        self._padding = np.flatnonzero(self._index < 0)
        self._elements = elements
        self.array = aligned_zeros((tiles, *packed.shape[1:]), dtype)
        self._tiles = self.array.reshape(tiles, -1)

    def load(self, filters: IntArray) -> None:
        """Pack filters of the shape."""
        padded = filters.astype(self.array.dtype, copy=False).reshape(-1)
        size = len(self._tiles) * self._elements
        if padded.size < size:
            padded = np.concatenate([padded, np.zeros(size - padded.size, padded.dtype)])
        np.take(padded.reshape(len(self._tiles), -1), self._index, axis=1, out=self._tiles, mode="clip")
        if self._padding.size:
            self._tiles[:, self._padding] = 0

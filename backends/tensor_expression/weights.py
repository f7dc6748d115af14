"""A layer's weights on their way into the order in which code reads them, quickly enough for every mini-batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from binpoint.backends.gradients import ChannelAffine, ConvolutionDataGradient
from binpoint.backends.kernel import Convolution, IntArray, KernelSpec
from binpoint.backends.memory import aligned_zeros

Pack = Callable[[IntArray], IntArray]
"""Filters of whole tiles (outputs, terms, R, S) -> the order of the code, tile by tile."""


class WeightTransform(Protocol):
    """What is computed from packed weights before code reads them."""

    dtype: str

    def shape(self, packed: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the result, tiles first, for the shape of packed weights."""

    def apply(self, packed: IntArray, result: IntArray) -> None:
        """Write the result; both arrays have the dtype."""


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
        whole = weight.reshape(self.groups, outputs // self.groups, inputs, kernel[0] * kernel[1])
        return _exchanged(whole).reshape(self.groups * inputs, outputs // self.groups, *kernel)

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


@dataclass(frozen=True)
class Weight:
    """The weight that a kernel is bound to, and what the kernel makes of it."""

    mantissas: IntArray
    filters: Filters

    @cached_property
    def used(self) -> IntArray:
        """The filters (outputs, terms, R, S) with the taps that are used."""
        return self.filters.select(self.filters.of(self.mantissas))

    @cached_property
    def least(self) -> int:
        """The least mantissa."""
        return int(self.mantissas.min(initial=0))


class PackedWeight:
    """A weight in the order of some code, in memory that stays in place.

    Packing is a permutation, the same for every tile of `rows` filters. It is learnt once, by packing the numbers of a
    tile's elements; loading other weights is then one gather.

    Args:
        filters: what the kernel makes of the weight.
        shape: of the weight, (K, C / groups, R, S).
        rows: filters of a tile.
        tiles: how many tiles the code reads; those past the filters stay 0.
        pack: orders whole tiles.
        dtype: of the packed weights.
        transform: what is computed from them, None for nothing; it has the dtype of what the code reads then.
    """

    def __init__(
        self,
        filters: Filters,
        shape: tuple[int, ...],
        rows: int,
        tiles: int,
        pack: Pack,
        dtype: str,
        transform: WeightTransform | None = None,
    ) -> None:
        self._filters, self._rows = filters, rows
        outputs, inputs, *kernel = shape
        terms = outputs // filters.groups if filters.exchanged else inputs
        # Exchanging whole tiles, instead of single filters, moves larger pieces; the gather does the rest.
        self._exchanges_tiles = filters.exchanged and (filters.groups == 1 or inputs % rows == 0)
        numbers = np.arange(1, rows * terms * kernel[0] * kernel[1] + 1)
        if self._exchanges_tiles:
            numbers = numbers.reshape(terms, rows, *kernel).swapaxes(0, 1)
        packed = pack(filters.select(numbers.reshape(rows, terms, *kernel)))
        self._index = packed.reshape(-1) - 1
        self._padding = np.flatnonzero(self._index < 0)
        self._transform = transform
        self._packed = aligned_zeros((tiles, *packed.shape[1:]), dtype if transform is None else transform.dtype)
        self.array = self._packed
        """What the code reads."""
        if transform is not None:
            self.array = aligned_zeros(transform.shape(self._packed.shape), transform.dtype)

    def load(self, weight: IntArray) -> None:
        """Pack a weight of the shape."""
        weight = np.ascontiguousarray(weight.astype(self._packed.dtype, copy=False))
        tiles = self._tiles_of_channels(weight) if self._exchanges_tiles else self._tiles_of_filters(weight)
        packed = self._packed.reshape(len(self._packed), -1)[: len(tiles)]
        np.take(tiles, self._index, axis=1, out=packed, mode="clip")
        if self._padding.size:
            packed[:, self._padding] = 0
        if self._transform is not None:
            self._transform.apply(self._packed, self.array)

    def _tiles_of_filters(self, weight: IntArray) -> IntArray:
        """(tiles, elements) with the elements in the order (rows, terms, R, S)."""
        filters = _padded(self._filters.of(weight), 0, self._rows)
        return filters.reshape(len(filters) // self._rows, -1)

    def _tiles_of_channels(self, weight: IntArray) -> IntArray:
        """(tiles, elements) with the elements in the order (terms, rows, R, S)."""
        padded = _padded(weight, 1, self._rows)
        outputs, inputs = padded.shape[:2]
        piece = self._rows * padded[0, 0].size
        shape = self._filters.groups, outputs // self._filters.groups, inputs // self._rows, piece
        tiles = _exchanged(padded.reshape(shape))
        return tiles.reshape(self._filters.groups * inputs // self._rows, -1)


def _padded(array: IntArray, axis: int, multiple: int) -> IntArray:
    """The array with zeros after an axis, up to a multiple."""
    missing = -array.shape[axis] % multiple
    if not missing:
        return array
    return np.pad(array, [(0, missing if each == axis else 0) for each in range(array.ndim)])


def _exchanged(array: IntArray) -> IntArray:
    """(groups, A, B, piece) -> (groups, B, A, piece), contiguous.

    A piece moves as one element of its size in bytes, which is many times faster than moving its elements.
    """
    groups, first, second, size = array.shape
    pieces = array.view(np.dtype((np.void, array.itemsize * size)))[..., 0]
    return np.ascontiguousarray(pieces.swapaxes(1, 2)).view(array.dtype).reshape(groups, second, first, size)

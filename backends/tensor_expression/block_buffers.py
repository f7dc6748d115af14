"""Grids of exponents as code over blocks reads them: channels last, so that those of a block are vectors."""

from __future__ import annotations

import numpy as np

from binpoint.backends.blocks import ExponentGrid, grid_shape
from binpoint.backends.kernel import IntArray, TensorSpec
from binpoint.backends.memory import aligned_empty, aligned_zeros, is_aligned
from binpoint.backends.tensor_expression.block_plan import stored_channels


class GridLayout:
    """How the exponents of a feature map lie in memory: [N, rows, columns, stored channels or 1]."""

    def __init__(self, tensor: TensorSpec) -> None:
        self._groups, *self._blocks = grid_shape(tensor)
        self._width = stored_channels(tensor) if tensor.granularity.per_channel else 1

    def empty(self, batch: int) -> IntArray:
        """Memory for some images."""
        return aligned_empty((batch, *self._blocks, self._width), "int32")

    def view(self, stored: IntArray) -> ExponentGrid:
        """The exponents (N, G, rows, columns) in the memory of `stored`."""
        return stored.transpose(0, 3, 1, 2)[:, : self._groups]

    def stored(self, exponents: ExponentGrid) -> IntArray:
        """The exponents as code reads them: the memory itself where it is what `empty` gave, else a copy."""
        last = exponents.transpose(0, 2, 3, 1)
        if last.dtype == np.int32 and last.shape[-1] == self._width and is_aligned(last):
            return last
        copy = aligned_zeros((*last.shape[:-1], self._width), "int32")
        copy[..., : last.shape[-1]] = last
        # What fills the last block of channels is brought to the target with the others: it must not be below that.
        copy[..., last.shape[-1] :] = last[..., -1:]
        return copy

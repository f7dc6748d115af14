"""Grids of exponents as code over blocks reads them: channels last, so that those of a block are vectors."""

from __future__ import annotations

import numpy as np

from binpoint.backends.blocks import ExponentGrid, grid_shape
from binpoint.backends.kernel import IntArray, TensorSpec
from binpoint.backends.memory import aligned_empty, aligned_zeros, is_aligned
from binpoint.backends.tensor_expression.block_plan import stored_channels


def empty_grid(tensor: TensorSpec, batch: int) -> IntArray:
    """Memory for the exponents of a feature map, [N, rows, columns, stored channels or 1]."""
    _, rows, columns = grid_shape(tensor)
    return aligned_empty((batch, rows, columns, _width(tensor)), "int32")


def grid_view(stored: IntArray, tensor: TensorSpec) -> ExponentGrid:
    """The exponents (N, G, rows, columns) in the memory of `stored`."""
    groups = grid_shape(tensor)[0]
    return stored.transpose(0, 3, 1, 2)[:, :groups]


def stored_grid(exponents: ExponentGrid, tensor: TensorSpec) -> IntArray:
    """The exponents as code reads them: the memory itself where it is what `empty_grid` gave, else a copy."""
    last = exponents.transpose(0, 2, 3, 1)
    if last.dtype == np.int32 and last.shape[-1] == _width(tensor) and is_aligned(last):
        return last
    copy = aligned_zeros((*last.shape[:-1], _width(tensor)), "int32")
    copy[..., : last.shape[-1]] = last
    # What fills the last block of channels is brought to the target with the others: its exponents must not be below.
    copy[..., last.shape[-1] :] = last[..., -1:]
    return copy


def _width(tensor: TensorSpec) -> int:
    return stored_channels(tensor) if tensor.granularity.per_channel else 1

"""One input of a kernel over blocks, brought to its finest exponent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from binpoint.backends.blocks import grid_shape
from binpoint.backends.kernel import IntArray, TensorSpec
from binpoint.backends.tensor_expression.block_plan import channel_vectors, vector_lanes
from binpoint.backends.tensor_expression.block_ranges import ChannelRanges
from binpoint.backends.tensor_expression.buffers import Workspace, argument
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.layout import WIDEST_BITS, storage_dtype
from binpoint.backends.tensor_expression.library import Function

ALIGNED = storage_dtype(WIDEST_BITS)
"""The dtype of aligned mantissas."""


class Alignment:
    """Aligns input `index` of kernels; the aligned map is scratch memory, valid until the next call."""

    def __init__(self, index: int, tensor: TensorSpec, compiler: Compiler, workspace: Workspace) -> None:
        self._name, self._ranges_name = f"aligned{index}", f"ranges{index}"
        # Widths that are stored alike share code.
        self._tensor = replace(tensor, bits=8 if tensor.bits <= 8 else WIDEST_BITS)
        self._compiler, self._workspace = compiler, workspace
        self._lanes = vector_lanes(tensor)
        self._vectors, self._rows = channel_vectors(tensor), grid_shape(tensor)[1]
        self._grid_lanes = self._lanes if tensor.granularity.per_channel else 1
        self._function: Function | None = None

    def __call__(self, mantissas: Any, grid: IntArray, shape: tuple[int, ...], target: int) -> Any:
        """Mantissas of that shape, [N, C blocks, H, W, block], at 2^target; no exponent is below it.

        Takes them as an argument of `lanes` lanes, and gives them as one.
        """
        if self._function is None:
            self._function = self._compiler.function(f"block alignment {self._tensor!r}", self._build)
        _, result = self._workspace.take(self._name, shape, ALIGNED, self._lanes)
        _, ranges = self._ranges(shape[0], self._lanes)
        self._function(mantissas, argument(grid, self._grid_lanes), result, ranges, target)
        return self._workspace.take(self._name, shape, ALIGNED)[1]

    @property
    def lanes(self) -> int:
        """Channels of a vector of mantissas."""
        return self._lanes

    def ranges(self, batch: int) -> ChannelRanges:
        """Those of the last call's `batch` images."""
        found, _ = self._ranges(batch, 1)
        by_vector = found.reshape(batch, self._vectors, self._rows, 2, self._lanes).max(axis=(0, 2))
        greatest, complement = by_vector.swapaxes(0, 1).reshape(2, -1)[:, : self._tensor.channels].astype(np.int32)
        return ChannelRanges(~complement, greatest)

    def _ranges(self, batch: int, lanes: int) -> tuple[IntArray, Any]:
        shape = batch * self._vectors * self._rows, 2, self._lanes
        return self._workspace.take(self._ranges_name, shape, ALIGNED, lanes)

    def _build(self) -> Any:
        from binpoint.backends.tensor_expression import block_alignment_code

        return block_alignment_code.build(self._tensor)

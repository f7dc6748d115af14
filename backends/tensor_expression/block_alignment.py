"""One input of a kernel over blocks, brought to its finest exponent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from binpoint.backends.kernel import IntArray, TensorSpec
from binpoint.backends.tensor_expression.block_plan import vector_lanes
from binpoint.backends.tensor_expression.buffers import Workspace, argument
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.layout import WIDEST_BITS, storage_dtype
from binpoint.backends.tensor_expression.library import Function

ALIGNED = storage_dtype(WIDEST_BITS)
"""The dtype of aligned mantissas."""


class Alignment:
    """Aligns input `index` of kernels; the aligned map is scratch memory, valid until the next call."""

    def __init__(self, index: int, tensor: TensorSpec, compiler: Compiler, workspace: Workspace) -> None:
        self._name = f"aligned{index}"
        # Widths that are stored alike share code.
        self._tensor = replace(tensor, bits=8 if tensor.bits <= 8 else WIDEST_BITS)
        self._compiler, self._workspace = compiler, workspace
        self._lanes = vector_lanes(tensor)
        self._grid_lanes = self._lanes if tensor.granularity.per_channel else 1
        self._function: Function | None = None

    def __call__(self, mantissas: IntArray, grid: IntArray, target: int) -> Any:
        """Mantissas [N, C blocks, H, W, block] at 2^target, as an argument of kernels; no exponent is below it."""
        if self._function is None:
            self._function = self._compiler.function(f"block alignment {self._tensor!r}", self._build)
        _, result = self._workspace.take(self._name, mantissas.shape, ALIGNED, self._lanes)
        self._function(argument(mantissas, self._lanes), argument(grid, self._grid_lanes), result, target)
        return self._workspace.take(self._name, mantissas.shape, ALIGNED)[1]

    def result(self, shape: tuple[int, ...]) -> IntArray:
        """The aligned mantissas of the last call, on a map of that shape."""
        return self._workspace.take(self._name, shape, ALIGNED)[0]

    def _build(self) -> Any:
        from binpoint.backends.tensor_expression import block_alignment_code

        return block_alignment_code.build(self._tensor)

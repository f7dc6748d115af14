"""Exact operations over blocks: mantissas move by the kernels of plain layers, exponents move along on the host."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from binpoint.backends.blocks import BlockExponents, BlockMap, BlockResult, grid_shape, moved_exponents
from binpoint.backends.kernel import Draw, Events, KernelExponents, KernelParameters, KernelSpec
from binpoint.backends.tensor_expression.block_values import plain_spec
from binpoint.backends.tensor_expression.buffers import Workspace
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.kernels import LayerKernel


class BlockMoveKernel:
    """See `binpoint.backends.blocks.BlockKernel`: a pool, resize or reshape whose blocks move whole."""

    def __init__(self, spec: KernelSpec, compiler: Compiler, workspace: Workspace) -> None:
        self.spec = spec
        self._kernel = LayerKernel(plain_spec(spec, aligned=False), KernelParameters(), compiler, workspace)
        self._keeps_grid = _keeps_grid(spec)

    def __call__(
        self,
        inputs: Sequence[BlockMap],
        exponents: BlockExponents,
        *,
        overflows: bool = False,
        draw: Draw | None = None,
        first_image: int = 0,
    ) -> BlockResult:
        """Compute all images of the batch; no result overflows, whatever the candidates."""
        source, spec = inputs[0], self.spec
        moved = self._kernel([source.buffer], KernelExponents((0,), 0)).output
        grid = source.exponents if self._keeps_grid else moved_exponents(spec, source.exponents)
        counts = np.zeros((source.batch, len(exponents.candidates)), np.int64) if overflows else None
        return BlockResult(BlockMap(moved, grid, source.bounds), Events(source.batch * prod(spec.output.shape)), counts)


def _keeps_grid(spec: KernelSpec) -> bool:
    """Whether the blocks of the output are those of the input, in their order: no exponent moves."""
    shape = 1, *grid_shape(spec.inputs[0])
    numbers = np.arange(prod(shape), dtype=np.int32).reshape(shape)
    return np.array_equal(moved_exponents(spec, numbers), numbers)

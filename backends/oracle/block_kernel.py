"""Kernels over blocks in NumPy: any granularity, in the order of the PE, a few images at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.blocks import (
    BlockExponents,
    BlockMap,
    BlockResult,
    ExponentGrid,
    grid_shape,
    moved_exponents,
    spread,
)
from binpoint.backends.generator import draw_key, draws
from binpoint.backends.kernel import Draw, Events, IntArray, KernelParameters, KernelSpec, MaxPool, Resize
from binpoint.backends.oracle.block_choice import decide, error_unit, losses, quantize_blocks, realign
from binpoint.backends.oracle.block_values import calculate
from binpoint.backends.oracle.buffer import OracleBuffer
from binpoint.backends.oracle.fixed_point import container
from binpoint.backends.oracle.pools import max_pool
from binpoint.backends.windows import nearest
from binpoint.support.numeric import BlockPolicy, Measure, Rounding

CHUNK_ELEMENTS = 1 << 21
"""Images are computed in groups whose widest arrays stay near this many elements."""


@dataclass
class OracleBlockKernel:
    """See `binpoint.backends.blocks.BlockKernel`."""

    spec: KernelSpec
    parameters: KernelParameters

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
        spec, batch = self.spec, inputs[0].batch
        output = np.empty((batch, *spec.output.shape), container(spec.output.bits))
        grid = np.empty((batch, *grid_shape(spec.output)), np.int32)
        counts = np.zeros((batch, len(exponents.candidates)), np.int64) if overflows else None
        events = Events(0)
        for images in self._chunks(batch):
            mantissas = [each.buffer.mantissas[images].astype(np.int64) for each in inputs]
            grids = [each.exponents[images] for each in inputs]
            if spec.exact:
                found = move(spec, mantissas[0], grids[0], len(exponents.candidates))
            else:
                random = self._random(mantissas[0].shape[0], draw, first_image + images.start)
                found = compute(spec, self.parameters, mantissas, grids, exponents, random, overflows=overflows)
            output[images] = found.mantissas
            grid[images] = found.grid
            events = events.merge(found.events)
            if counts is not None and found.overflows is not None:
                counts[images] = found.overflows
        return BlockResult(BlockMap(OracleBuffer(output), grid), events, counts)

    def _chunks(self, batch: int) -> Iterator[slice]:
        maps = [prod(tensor.shape) for tensor in (*self.spec.inputs, self.spec.output)]
        step = max(1, CHUNK_ELEMENTS // max(maps))
        for start in range(0, batch, step):
            yield slice(start, min(start + step, batch))

    def _random(self, images: int, draw: Draw | None, first: int) -> NDArray[np.uint64] | None:
        """The random number of each result of some images, by its index within the output of the whole step."""
        spec = self.spec
        if spec.rounding is not Rounding.STOCHASTIC:
            return None
        if draw is None:
            raise ValueError(f"kernel {spec.name}: stochastic rounding needs a draw")
        size = prod(spec.output.shape)
        index = np.arange(first * size, (first + images) * size)
        return draws(draw_key(draw), index).reshape(images, *spec.output.shape)


@dataclass(frozen=True)
class Computed:
    """Some images of a result: (N, C, H, W) mantissas, their grid, events, overflows (N, candidates) if asked for."""

    mantissas: IntArray
    grid: ExponentGrid
    events: Events
    overflows: IntArray | None = None


def compute(
    spec: KernelSpec,
    parameters: KernelParameters,
    mantissas: Sequence[IntArray],
    grids: Sequence[ExponentGrid],
    exponents: BlockExponents,
    random: NDArray[np.uint64] | None,
    *,
    overflows: bool = False,
) -> Computed:
    """Calculation, realignment, analysis, decision, quantisation (JP7819764B2 fig. 10) of some images."""
    elements = [spread(grid, tensor).astype(np.int64) for grid, tensor in zip(grids, spec.inputs, strict=True)]
    results = realign(spec, calculate(spec, parameters, mantissas, elements, exponents))
    measure, candidates = (spec.blocks or BlockPolicy()).measure, exponents.candidates
    counted = None
    if overflows:
        counted = losses(spec, results, candidates, random, Measure.OVERFLOWS)
    if len(candidates) == 1:
        grid = np.full((len(results.values), *grid_shape(spec.output)), candidates[0], np.int32)
    else:
        known = counted if measure is Measure.OVERFLOWS else None
        lost = losses(spec, results, candidates, random, measure) if known is None else known
        grid = decide(spec, lost, exponents, error_unit(results, candidates))
    output, saturated = quantize_blocks(spec, results, grid, random)
    events = Events(
        results=output.size,
        saturated=int(np.count_nonzero(saturated)),
        underflowed=int(np.count_nonzero((results.values != 0) & (output == 0))),
        accumulator_overflows=int(np.count_nonzero(results.overflowed)),
    )
    return Computed(output, grid, events, None if counted is None else counted.sum(axis=(1, 2, 3)))


def move(spec: KernelSpec, mantissas: IntArray, grid: ExponentGrid, candidates: int) -> Computed:
    """An exact operation: mantissas move, and exponents along with them; nothing overflows."""
    match spec.operation:
        case MaxPool() as pool:
            moved = max_pool(pool, mantissas)
        case Resize():
            moved = nearest(mantissas, (spec.output.height, spec.output.width))
        case _:
            moved = mantissas.reshape(len(mantissas), *spec.output.shape)
    counts = np.zeros((len(moved), candidates), np.int64)
    return Computed(moved, moved_exponents(spec, grid), Events(moved.size), counts)

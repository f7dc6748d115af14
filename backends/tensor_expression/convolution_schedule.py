"""The loops of the AVX2 convolution: pack all rows in parallel; then tasks of register tiles in parallel.

A task of a feature map is a tile of images and vectors and some rows of tiles. A task of a vector is a tile of vectors
for all images of the call: weights are the larger part, and are read once.
"""

from __future__ import annotations

from typing import Any

from tvm import IRModule, s_tir, te

from binpoint.backends.tensor_expression.convolution_definition import ConvolutionDefinition
from binpoint.backends.tensor_expression.convolution_tiling import ConvolutionTiling

ACCUMULATOR_AXES = 4
"""Spatial axes of the accumulator: image, vector, row, column. The tile splits each in two."""


def schedule(definition: ConvolutionDefinition, tiling: ConvolutionTiling) -> Any:
    """The scheduled IRModule of a definition, its function named `main`."""
    sch = s_tir.Schedule(IRModule({"main": te.create_prim_func(list(definition.arguments))}))
    accumulator = sch.get_sblock("accumulator")
    task, tiles, reduction = _cut_loops(sch, accumulator, tiling)
    inner = [accumulator, *map(sch.get_sblock, definition.inner)]
    outputs = [sch.get_sblock(name) for name in (*definition.stored, *definition.counts)]
    for block in (*inner[1:], *outputs):
        sch.reverse_compute_at(block, tiles[-1], preserve_unit_loops=True)
        _unroll(sch, sch.get_loops(block)[len(task) + len(tiles) :])
    for block in inner:
        for result in range(len(sch.get(block).writes)):
            sch.set_scope(block, result, "local")
    _pack(sch, tiling)
    # Before the reductions lose their first steps: after that a task is no longer a single nest.
    sch.parallel(sch.fuse(*task))
    first = sch.decompose_reduction(accumulator, reduction)
    _unroll(sch, sch.get_loops(first)[-ACCUMULATOR_AXES:])
    for name in definition.counts if tiling.padded_width > 1 else ():
        sch.decompose_reduction(sch.get_sblock(name), tiles[-1])
    return sch.mod


def _cut_loops(sch: Any, accumulator: Any, tiling: ConvolutionTiling) -> tuple[list[Any], list[Any], Any]:
    """Cut the accumulator's loops: those that make up tasks, those over the tiles of a task, the first reduction."""
    images, vectors, rows, columns, *reduction = sch.get_loops(accumulator)
    tile = tiling.tile
    image, n = sch.split(images, [None, tile.images])
    vector, v = sch.split(vectors, [None, tile.vectors])
    part, row, h = sch.split(rows, [None, tiling.rows_per_task // tile.rows, tile.rows])
    column, w = sch.split(columns, [None, tile.columns])
    task, tiles = (
        ([vector], [part, image, row, column]) if tiling.single_pixel else ([image, vector, part], [row, column])
    )
    sch.reorder(*task, *tiles, *reduction, n, h, w, v)
    _unroll(sch, [n, h, w, v])
    return task, tiles, reduction[0]


def _pack(sch: Any, tiling: ConvolutionTiling) -> None:
    """Rows in parallel; whole pixels, or whole blocks of the input's layout, in the innermost loop."""
    n, block, row, word = sch.get_loops(sch.get_sblock("rows"))
    sch.split(word, [None, tiling.contiguous_words])
    sch.parallel(sch.fuse(n, block, row))


def _unroll(sch: Any, loops: list[Any]) -> None:
    for loop in loops:
        sch.unroll(loop)

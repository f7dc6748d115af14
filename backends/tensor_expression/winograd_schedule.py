"""The loops of Winograd's convolution.

A task is a strip, from its rows to its results; or, where the map is one strip, a group of output channels of a map
that is transformed before. In a task each group is two passes: products, point by point, then results, tile by tile.
Only loops over indices that choose a row of a transform must be unrolled; others are where that made code faster.
"""

from __future__ import annotations

from typing import Any

from tvm import IRModule, s_tir, te

from binpoint.backends.tensor_expression.convolution_definition import ConvolutionDefinition
from binpoint.backends.tensor_expression.winograd_tiling import BLOCK_WORDS, WinogradTiling


def schedule(definition: ConvolutionDefinition, tiling: WinogradTiling) -> Any:
    """The scheduled IRModule of a definition, its function named `main`."""
    sch = s_tir.Schedule(IRModule({"main": te.create_prim_func(list(definition.arguments))}))
    images, vectors, rows, columns = sch.get_loops(sch.get_sblock("accumulator"))
    group, v = sch.split(vectors, [None, tiling.group_vectors])
    strip, row, i = sch.split(rows, [None, tiling.strip_rows, tiling.transform.results])
    column, j = sch.split(columns, [None, tiling.transform.results])
    sch.reorder(images, strip, group, row, v, column, i, j)
    _finish(sch, definition, column, i)
    products = sch.get_sblock("products")
    sch.compute_at(products, group, preserve_unit_loops=True)
    reduction = _multiply(sch, products, tiling)
    _transform(sch, None if tiling.whole else strip)
    # Before the reductions lose their first steps: after that a task is no longer a single nest.
    sch.parallel(sch.fuse(images, strip, group) if tiling.whole else sch.fuse(images, strip))
    _unroll(sch, sch.get_loops(sch.decompose_reduction(products, reduction))[-2:])
    for name in definition.counts:
        sch.decompose_reduction(sch.get_sblock(name), column)
    return sch.mod


def _finish(sch: Any, definition: ConvolutionDefinition, tile: Any, row: Any) -> None:
    """Transform the products of a tile and finish its results, row by row, in registers."""
    depth = len(sch.get_loops(sch.get_sblock("accumulator"))) - 1
    inner = list(map(sch.get_sblock, ("accumulator", *definition.inner)))
    outputs = list(map(sch.get_sblock, (*definition.stored, *definition.counts)))
    for block in (*inner[1:], *outputs):
        sch.reverse_compute_at(block, row, preserve_unit_loops=True)
    for block in (*inner, *outputs):
        _unroll(sch, sch.get_loops(block)[depth:])
    whole, half = map(sch.get_sblock, ("tile_output", "half_output"))
    for block in (whole, half):
        sch.compute_at(block, tile, preserve_unit_loops=True)
    _unroll(sch, [*sch.get_loops(whole)[-2:], sch.get_loops(half)[-2]])
    for block in (half, whole, *inner):
        for result in range(len(sch.get(block).writes)):
            sch.set_scope(block, result, "local")


def _multiply(sch: Any, products: Any, tiling: WinogradTiling) -> Any:
    """Cut the loops of the products; gives the first reduction. Sums stay in registers until they are complete."""
    # On the stack: elsewhere they would share memory with the words of the inputs, and have their type then.
    sch.set_scope(products, 0, "local")
    *_, vectors, a, b, tiles, block, pair = sch.get_loops(products)
    vector, v = sch.split(vectors, [None, tiling.vectors])
    tile, t = sch.split(tiles, [tiling.padded_tiles // tiling.tiles, tiling.tiles], disable_predication=True)
    sch.reorder(a, b, vector, tile, block, pair, t, v)
    _unroll(sch, [t, v])
    store = sch.cache_write(products, 0, "local")
    sch.reverse_compute_at(store, tile, preserve_unit_loops=True)
    _unroll(sch, sch.get_loops(store)[-len(sch.get(store).iter_vars) :])
    return block


def _transform(sch: Any, strip: Any) -> None:
    """Rows, then transformed tiles, one block of channels at a time: in a strip's task, or as tasks of their own."""
    transformed, half, patch, rows = map(sch.get_sblock, ("transformed", "half_input", "patch", "rows"))
    if strip is not None:
        sch.compute_at(transformed, strip, preserve_unit_loops=True)
    *outer, a, b, block, tile, pair = sch.get_loops(transformed)
    joined, lane = sch.split(pair, [None, BLOCK_WORDS])
    sch.reorder(block, tile, joined, a, b, lane)
    _unroll(sch, [a, b])
    sch.vectorize(lane)
    for stage in (half, patch):
        sch.compute_at(stage, joined, preserve_unit_loops=True)
        *_, p, q, lane = sch.get_loops(stage)
        _unroll(sch, [p, q])
        sch.vectorize(lane)
        sch.set_scope(stage, 0, "local")
    if strip is not None:
        sch.compute_at(rows, strip, preserve_unit_loops=True)
        return
    sch.parallel(sch.fuse(*outer, block))
    n, one, block, h, *_ = sch.get_loops(rows)
    sch.parallel(sch.fuse(n, one, block, h))


def _unroll(sch: Any, loops: list[Any]) -> None:
    for loop in loops:
        sch.unroll(loop)

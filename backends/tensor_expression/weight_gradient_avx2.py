"""The AVX2 weight gradient: exact integer sums by `vpmaddwd` over pairs of images (see `weight_gradient_tiling`).

The program packs x and dy in pairs of images, as int32 words of two int16, then sums tiles: a chunk of pixels in
registers, chunks in memory. A chunk is short enough that int32 holds its sum, or its sum is split as in
`pair_products`; sums over chunks are int32 where the caller's bound allows it, else int64.
"""

from __future__ import annotations

from typing import Any

from tvm import IRModule, s_tir, te, tirx

from binpoint.backends.tensor_expression.arithmetic import Expression, cast, constant
from binpoint.backends.tensor_expression.convolution_tiling import LANES
from binpoint.backends.tensor_expression.layout import feature_map_layout, storage_dtype
from binpoint.backends.tensor_expression.pair_products import join, multiply_add, split_sum
from binpoint.backends.tensor_expression.tensors import INDEX, Source, reduce_axis, sizes
from binpoint.backends.tensor_expression.weight_gradient_tiling import WeightGradientTiling

PARTIAL_AXES = 7
"""Spatial axes of a chunk's sums: chunks of images and of rows, then the result's five."""


def build(tiling: WeightGradientTiling, reduction: str) -> Any:
    """The scheduled IRModule; `main` takes x, dy in vectors of 8, the sums in vectors of 8, and the pairs of a chunk.

    The sums have the tiling's layout and the dtype `reduction`.
    """
    batch, chunk_pairs = tirx.Var("N", INDEX), tirx.Var("chunk_pairs", INDEX)
    chunks = ((batch + 1) // 2 + chunk_pairs - 1) // chunk_pairs
    images, gradient = _inputs(tiling, batch)
    words = _image_words(tiling, images, chunks * chunk_pairs)
    vectors = _gradient_vectors(tiling, gradient, chunks * chunk_pairs)
    sums = _sums(tiling, words, vectors, (chunks, chunk_pairs), reduction)
    module = IRModule({"main": te.create_prim_func([images.tensor, gradient, sums, chunk_pairs])})
    return _schedule(s_tir.Schedule(module), tiling)


def _inputs(tiling: WeightGradientTiling, batch: Expression) -> tuple[Source, Expression]:
    layout = feature_map_layout(tiling.images)
    shape, dtype = sizes(layout.shape(tiling.images, batch)), storage_dtype(tiling.images.bits)
    images = Source(te.placeholder(shape, dtype, "images"), layout, tiling.images)
    *outer, block = feature_map_layout(tiling.gradient).shape(tiling.gradient, batch)
    vector = f"{storage_dtype(tiling.gradient.bits)}x{LANES}"
    return images, te.placeholder(sizes((*outer, block // LANES)), vector, "gradient")


def _image_words(tiling: WeightGradientTiling, images: Source, pairs: Expression) -> Expression:
    """[pairs, tiles of channels of all groups, rows, columns, channels of a tile] of x with its padding."""
    top, left, _, _ = tiling.convolution.padding
    batch, width = images.tensor.shape[0], tiling.tile.channels

    def word(pair: Expression, tile: Expression, h: Expression, w: Expression, lane: Expression) -> Expression:
        within = tile % tiling.channel_tiles * width + lane
        c = tile // tiling.channel_tiles * tiling.group_channels + within
        row, column = h * tiling.skip[0] - top, w * tiling.skip[1] - left
        inside = [row >= 0, row < tiling.images.height, column >= 0, column < tiling.images.width]
        if tiling.group_channels % width:
            inside.append(within < tiling.group_channels)

        def element(n: Expression) -> Expression:
            mantissa = cast(images.read(n, c, row, column), "int32")
            return tirx.if_then_else(tirx.all(*inside, n < batch), mantissa, tirx.const(0, "int32"))

        return _pair(element, pair)

    tiles = tiling.convolution.groups * tiling.channel_tiles
    shape = sizes((pairs, tiles, tiling.packed_rows, tiling.packed_columns, width))
    return te.compute(shape, word, name="image_words")


def _gradient_vectors(tiling: WeightGradientTiling, gradient: Expression, pairs: Expression) -> Expression:
    """[pairs, tiles of vectors, rows, columns, vectors of a tile] of dy, rows past its height 0."""
    batch, block_vectors, width = gradient.shape[0], gradient.shape[-1], tiling.tile.vectors

    def vector(pair: Expression, tile: Expression, h: Expression, w: Expression, lane: Expression) -> Expression:
        v = tile * width + lane
        inside = []
        if tiling.padded_height > tiling.gradient.height:
            inside.append(h < tiling.gradient.height)
        if tiling.stored_vectors % width:
            inside.append(v < tiling.stored_vectors)

        def element(n: Expression) -> Expression:
            mantissas = cast(gradient(n, v // block_vectors, h, w, v % block_vectors), "int32")
            return tirx.if_then_else(tirx.all(*inside, n < batch), mantissas, constant(0, mantissas))

        return _pair(element, pair)

    shape = sizes((pairs, tiling.vector_tiles, tiling.padded_height, tiling.gradient.width, width))
    return te.compute(shape, vector, name="gradient_vectors")


def _pair(element: Any, pair: Expression) -> Expression:
    """The elements of images 2 * pair and 2 * pair + 1 as the halves of a word."""
    lower, upper = element(pair * 2), element(pair * 2 + 1)
    return (lower & constant(0xFFFF, lower)) | (upper << constant(16, upper))


def _sums(
    tiling: WeightGradientTiling,
    words: Expression,
    vectors: Expression,
    extents: tuple[Expression, Expression],
    reduction: str,
) -> Expression:
    """[K tiles, C, R, S, vectors]: sums of chunks in registers, then sums of these."""
    convolution, tile = tiling.convolution, tiling.tile
    chunks, chunk_pairs = extents
    pair, row, column = (
        reduce_axis(extent, name)
        for extent, name in zip((chunk_pairs, tiling.chunk_rows, tiling.gradient.width), "phw", strict=True)
    )

    def products(
        chunk: Expression, part: Expression, k: Expression, c: Expression, r: Expression, s: Expression, v: Expression
    ) -> Expression:
        n, h = chunk * chunk_pairs + pair, part * tiling.chunk_rows + row
        first_tile = k // tiling.group_vector_tiles * tiling.channel_tiles if convolution.groups > 1 else 0
        word = words(
            n,
            first_tile + c // tile.channels,
            h * tiling.packed_stride[0] + r * convolution.dilation[0],
            column * tiling.packed_stride[1] + s * convolution.dilation[1],
            c % tile.channels,
        )
        return multiply_add(word, tirx.reinterpret(f"int16x{2 * LANES}", vectors(n, k, h, column, v)))

    parts = tiling.padded_height // tiling.chunk_rows
    *result, block = tiling.layout.shape
    shape = sizes((chunks, parts, *result, block // LANES))
    axes = [pair, row, column]
    every = [reduce_axis(chunks, "chunk"), reduce_axis(parts, "part")]
    if tiling.split:
        low, high = split_sum(shape, products, axes, "partial")
        return te.compute(
            shape[2:], lambda *at: te.sum(join(low(*every, *at), high(*every, *at)), axis=every), name="sums"
        )
    partial = te.compute(shape, lambda *at: te.sum(products(*at), axis=axes), name="partial")
    return te.compute(shape[2:], lambda *at: te.sum(cast(partial(*every, *at), reduction), axis=every), name="sums")


def _schedule(sch: Any, tiling: WeightGradientTiling) -> Any:
    """Pack in parallel. A task is a tile of vectors and some tiles of channels; in it, chunk by chunk, all tiles."""
    tile = tiling.tile
    sums, partial = sch.get_sblock("sums"), sch.get_sblock("partial")
    for result in range(2 if tiling.split else 1):
        sch.set_scope(partial, result, "local")
    k, c, r, s, v, chunk, part = sch.get_loops(sums)
    task, c, channel = sch.split(c, [tiling.channel_tasks, None, tile.channels])
    s, tap = sch.split(s, [None, tile.taps])
    tasks = [k, task, r] if tiling.row_tasks else [k, task]
    rows = [] if tiling.row_tasks else [r]
    sch.reorder(*tasks, chunk, part, c, *rows, s, channel, tap, v)
    sch.compute_at(partial, s, preserve_unit_loops=True)
    loops = sch.get_loops(partial)[len(tasks) + 4 + len(rows) :]
    spatial, reduction = loops[:PARTIAL_AXES], loops[PARTIAL_AXES:]
    sch.reorder(*reduction, *spatial)
    for loop in (channel, tap, v, *spatial):
        sch.unroll(loop)
    for name in ("image_words", "gradient_vectors"):
        pair, tiles, row, *_ = sch.get_loops(sch.get_sblock(name))
        sch.parallel(sch.fuse(pair, tiles, row))
    # Before the reductions lose their first steps: after that a task is no longer a single nest.
    sch.parallel(sch.fuse(*tasks))
    first = sch.decompose_reduction(partial, reduction[0])
    for loop in sch.get_loops(first)[-PARTIAL_AXES:]:
        sch.unroll(loop)
    sch.decompose_reduction(sums, chunk)
    return sch.mod

"""The AVX2 convolution as tensor expressions: exact integer sums by `vpmaddwd`, and everything around them.

The program packs the input into padded rows of int16 pairs, sums a register tile of results, and finishes the tile
while it is in registers (`convolution_epilogue`). `convolution_tiling` has the sizes.

Sums are int32 where the caller's bound allows it; otherwise they are split (see `pair_products`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te, tirx

from binpoint.backends.tensor_expression.arithmetic import Expression, cast
from binpoint.backends.tensor_expression.convolution_epilogue import Body, Results, finish
from binpoint.backends.tensor_expression.convolution_tiling import LANES, ConvolutionTiling
from binpoint.backends.tensor_expression.definition import input_sources, scalar_variables
from binpoint.backends.tensor_expression.layout import storage_dtype
from binpoint.backends.tensor_expression.pair_products import join, multiply_add, split_sum
from binpoint.backends.tensor_expression.plan import KernelPlan
from binpoint.backends.tensor_expression.tensors import Source, reduce_axis, sizes


@dataclass(frozen=True)
class ConvolutionDefinition:
    """The arguments of a kernel as te tensors, and the names of its stages.

    `inner` stages are read by others alone, `stored` ones store each result, `counts` are sums over a row.
    """

    arguments: tuple[Expression, ...]
    inner: tuple[str, ...]
    stored: tuple[str, ...]
    counts: tuple[str, ...]


def define(plan: KernelPlan, tiling: ConvolutionTiling) -> ConvolutionDefinition:
    """The definition of a convolution kernel; its arguments are in the order of `design`.

    Weights come packed (see `packing`) in vectors of 16; output, counts, values and bias in vectors of 8.
    """
    scalars = scalar_variables(plan)
    source = input_sources(plan)[0]
    batch = source.tensor.shape[0]
    results = Results(plan, tiling, batch)
    weight = te.placeholder(
        sizes(tiling.weight_shape), f"{storage_dtype(tiling.convolution.weight_bits)}x{2 * LANES}", "weight"
    )
    bias = None
    if tiling.convolution.bias_bits is not None:
        bias = te.placeholder(sizes((tiling.padded_vectors,)), f"{plan.container.dtype}x{LANES}", "bias")
    accumulator = _accumulator(results, tiling, _packed_rows(results, tiling, source), weight)
    epilogue = finish(results, _total(plan, tiling, accumulator), bias, scalars)
    operands = [weight] if bias is None else [weight, bias]
    mantissas = [] if epilogue.output is None else [epilogue.output]
    outputs = [*mantissas, *epilogue.counts, *epilogue.values]
    return ConvolutionDefinition(
        (source.tensor, *operands, *results.picks, *outputs, *scalars.values()),
        tuple(tensor.op.name for tensor in epilogue.inner),
        tuple(tensor.op.name for tensor in (*mantissas, *epilogue.values)),
        tuple(tensor.op.name for tensor in epilogue.counts),
    )


def _packed_rows(results: Results, tiling: ConvolutionTiling, source: Source) -> Expression:
    """[N, channel blocks of all groups, rows, words]: the input with its padding, as int32 words of two int16."""
    top, left, _, _ = tiling.convolution.padding
    size = tiling.input

    def element(n: Expression, block: Expression, h: Expression, index: Expression) -> Expression:
        lane = index % tiling.channel_block
        within = block % tiling.channel_blocks * tiling.channel_block + lane
        c = block // tiling.channel_blocks * tiling.group_channels + within
        row, column = h * tiling.skip[0] - top, index // tiling.channel_block * tiling.skip[1] - left
        inside = [row >= 0, row < size.height, column >= 0, column < size.width, within < tiling.group_channels]
        if tiling.tile.images > 1:
            inside.append(n < results.batch)
        mantissa = cast(source.read(n, c, row, column), "int32")
        return tirx.if_then_else(tirx.all(*inside), mantissa, tirx.const(0, "int32"))

    def word(n: Expression, block: Expression, h: Expression, w: Expression) -> Expression:
        first = w if tiling.overlapping else w * 2
        lower = element(n, block, h, first) & tirx.const(0xFFFF, "int32")
        return lower | element(n, block, h, first + 1) << tirx.const(16, "int32")

    blocks = tiling.convolution.groups * tiling.channel_blocks
    shape = sizes((results.padded_shape[0], blocks, tiling.packed_rows, tiling.row_words))
    return te.compute(shape, word, name="rows")


def _accumulator(
    results: Results, tiling: ConvolutionTiling, rows: Expression, weight: Expression
) -> tuple[Expression, ...]:
    """[N, vectors, H, W] sums, in one int32 or split into (low, high)."""
    convolution = tiling.convolution
    extents = (tiling.channel_blocks, convolution.kernel[0], tiling.runs, tiling.pairs)
    block, r, s, pair = axes = [reduce_axis(extent, name) for extent, name in zip(extents, "crsp", strict=True)]
    group_vectors = tiling.stored_vectors // convolution.groups

    def products(n: Expression, v: Expression, h: Expression, w: Expression) -> Expression:
        first_block = v // group_vectors * tiling.channel_blocks if convolution.groups > 1 else 0
        row = h * tiling.packed_stride[0] + r * convolution.dilation[0]
        pixel = w * tiling.packed_stride[1] + s * convolution.dilation[1]
        word = rows(n, first_block + block, row, pixel * tiling.pixel_words + pair * tiling.pair_words)
        weights = weight(v // tiling.tile.vectors, block, r, s, pair, v % tiling.tile.vectors)
        return multiply_add(word, cast(weights, "int16"))

    shape = results.padded_shape
    if not tiling.split:
        return (te.compute(shape, lambda *at: te.sum(products(*at), axis=axes), name="accumulator"),)
    return split_sum(shape, products, axes, "accumulator")


def _total(plan: KernelPlan, tiling: ConvolutionTiling, accumulator: tuple[Expression, ...]) -> Body:
    """The exact sum in the container's dtype."""
    dtype = plan.container.dtype
    if not tiling.split:
        return lambda *at: cast(accumulator[0](*at), dtype)
    assert dtype == "int64"
    return lambda *at: join(accumulator[0](*at), accumulator[1](*at))

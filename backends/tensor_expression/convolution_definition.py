"""The AVX2 convolution as tensor expressions: exact integer sums by `vpmaddwd`, and everything around them.

The program packs the input into padded rows of int16 pairs, sums a register tile of results, and finishes the tile
while it is in registers (`convolution_epilogue`). `convolution_tiling` has the sizes.

Sums are int32 where the caller's bound allows it. Otherwise they are split, which costs two more instructions a step:
with p the sum of two products, low = sum(p) mod 2^32 and high = sum(p >> 16), so that low - high * 2^16 is the sum of
the lower halves, below 2^32, and the exact sum has 48 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te, tirx

from binpoint.backends.tensor_expression.arithmetic import Expression, cast, constant
from binpoint.backends.tensor_expression.convolution_epilogue import Body, Results, finish
from binpoint.backends.tensor_expression.convolution_tiling import LANES, ConvolutionTiling
from binpoint.backends.tensor_expression.definition import input_sources, scalar_variables
from binpoint.backends.tensor_expression.layout import storage_dtype
from binpoint.backends.tensor_expression.operations import Source, reduce_axis, sizes
from binpoint.backends.tensor_expression.plan import KernelPlan


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
    results = Results(plan, tiling, source.tensor.shape[0])
    weight = te.placeholder(
        sizes(tiling.weight_shape), f"{storage_dtype(tiling.convolution.weight_bits)}x{2 * LANES}", "weight"
    )
    bias = None
    if tiling.convolution.bias_bits is not None:
        bias = te.placeholder(sizes((tiling.padded_vectors,)), f"{plan.container.dtype}x{LANES}", "bias")
    accumulator = _accumulator(results, _packed_rows(results, source), weight)
    epilogue = finish(results, _total(results, accumulator), bias, scalars)
    operands = [weight] if bias is None else [weight, bias]
    outputs = [epilogue.output, *epilogue.counts, *epilogue.values]
    return ConvolutionDefinition(
        (source.tensor, *operands, *outputs, *scalars.values()),
        tuple(tensor.op.name for tensor in epilogue.inner),
        tuple(tensor.op.name for tensor in (epilogue.output, *epilogue.values)),
        tuple(tensor.op.name for tensor in epilogue.counts),
    )


def _packed_rows(results: Results, source: Source) -> Expression:
    """[N, channel blocks of all groups, rows, words]: the input with its padding, as int32 words of two int16."""
    tiling = results.tiling
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


def _accumulator(results: Results, rows: Expression, weight: Expression) -> list[Expression]:
    """[N, vectors, H, W] sums, in one int32 or split into (low, high)."""
    tiling = results.tiling
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
        return _multiply_add(word, cast(weights, "int16"))

    shape = results.padded_shape
    if not tiling.split:
        return [te.compute(shape, lambda *at: te.sum(products(*at), axis=axes), name="accumulator")]

    def halves(*at: Expression) -> Expression:
        exact = products(*at)
        return sum_pairs((exact, exact >> constant(16, exact)), axis=axes)

    sum_pairs = te.comm_reducer(
        lambda left, right: (_modulo("add", left[0], right[0]), left[1] + right[1]),
        lambda low, high: (tirx.const(0, low), tirx.const(0, high)),
        name="sum_pairs",
    )
    return list(te.compute(shape, halves, name="accumulator"))


def _multiply_add(word: Expression, weights: Expression) -> Expression:
    """`vpmaddwd`: on each of 8 lanes x0 * w0 + x1 * w1 in int32; wraps only where all four are -32768."""
    pairs = tirx.reinterpret("int16x16", tirx.Broadcast(word, LANES))
    return tirx.call_llvm_pure_intrin(f"int32x{LANES}", "llvm.x86.avx2.pmadd.wd", pairs, weights)


def _modulo(operation: str, left: Expression, right: Expression) -> Expression:
    """`add` or `sub` of int32 modulo 2^32.

    TVM tells LLVM that its own + and - never leave their range, signed or unsigned; the predicated form, with all lanes
    on, makes no such promise and becomes the same instruction.
    """
    all_lanes = tirx.Broadcast(tirx.const(1, "bool"), LANES)
    return tirx.call_llvm_pure_intrin(
        f"int32x{LANES}", f"llvm.vp.{operation}", left, right, all_lanes, tirx.const(LANES, "uint32")
    )


def _total(results: Results, accumulator: list[Expression]) -> Body:
    """The exact sum in the container's dtype."""
    dtype = results.plan.container.dtype
    if not results.tiling.split:
        return lambda *at: cast(accumulator[0](*at), dtype)
    assert dtype == "int64"

    def joined(*at: Expression) -> Expression:
        low, high = accumulator[0](*at), accumulator[1](*at)
        upper = cast(high, dtype)
        lower = _modulo("sub", low, high << constant(16, high))
        return (upper << constant(16, upper)) + cast(tirx.reinterpret(f"uint32x{LANES}", lower), dtype)

    return joined

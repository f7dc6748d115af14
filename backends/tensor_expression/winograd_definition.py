"""Winograd's convolution as tensor expressions, see `winograd_transforms` and `winograd_tiling`.

Inputs are words of two channels, as `vpmaddwd` takes them. Until it multiplies, a word stands for the integer
lower + 2^16 * upper: sums and multiples of such words are those of both channels at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx

from binpoint.backends.tensor_expression.arithmetic import Expression, cast, constant
from binpoint.backends.tensor_expression.convolution_definition import ConvolutionDefinition
from binpoint.backends.tensor_expression.convolution_epilogue import Body, Results, finish
from binpoint.backends.tensor_expression.convolution_tiling import LANES
from binpoint.backends.tensor_expression.definition import input_sources, scalar_variables
from binpoint.backends.tensor_expression.pair_products import modulo, modulo_sum, multiply_add
from binpoint.backends.tensor_expression.plan import KernelPlan
from binpoint.backends.tensor_expression.tensors import INDEX, Source, reduce_axis, sizes
from binpoint.backends.tensor_expression.winograd_tiling import BLOCK_WORDS, WinogradTiling
from binpoint.backends.tensor_expression.winograd_transforms import Matrix

Operation = Callable[[str, Expression, Expression], Expression]
"""(`add`, `sub` or `mul`, left, right)."""


def define(plan: KernelPlan, tiling: WinogradTiling) -> ConvolutionDefinition:
    """The definition of a kernel; its arguments are those of `convolution_definition.define`, but weights are packed
    as `weight_shape` says, transformed to int16, and centres come last of the operands where the plan has them."""
    scalars = scalar_variables(plan)
    source = input_sources(plan)[0]
    results = Results(plan, tiling, source.tensor.shape[0])
    weight = te.placeholder(sizes(tiling.weight_shape), f"int16x{2 * LANES}", "weight")
    bias = None
    if tiling.convolution.bias_bits is not None:
        bias = te.placeholder(sizes((tiling.padded_vectors,)), f"{plan.container.dtype}x{LANES}", "bias")
    centres = None
    if plan.centred:
        centres = te.placeholder(sizes((tiling.input_blocks, BLOCK_WORDS)), "int32", "centres")
    products = _products(tiling, _transformed_input(tiling, _rows(tiling, source, centres)), weight)
    accumulator = results.stage("accumulator", _total(tiling, products))
    epilogue = finish(results, lambda *at: cast(accumulator(*at), plan.container.dtype), bias, scalars)
    operands = [each for each in (weight, bias, centres) if each is not None]
    mantissas = [] if epilogue.output is None else [epilogue.output]
    outputs = [*mantissas, *epilogue.counts, *epilogue.values]
    return ConvolutionDefinition(
        (source.tensor, *operands, *results.picks, *outputs, *scalars.values()),
        tuple(tensor.op.name for tensor in epilogue.inner),
        tuple(tensor.op.name for tensor in (*mantissas, *epilogue.values)),
        tuple(tensor.op.name for tensor in epilogue.counts),
    )


def _transformed_input(tiling: WinogradTiling, rows: Expression) -> Expression:
    """[N, strips, points, points, channel blocks, tiles, pairs]: words of two int16."""
    transform, points = tiling.transform, tiling.transform.points
    batch, strips = rows.shape[:2]
    blocks, tiles, pairs = tiling.channel_blocks, tiling.padded_tiles, tiling.pairs

    def element(n: Expression, strip: Expression, block: Expression, tile: Expression, *at: Expression) -> Expression:
        p, q, pair = at
        # Tiles that only fill a register tile read the last one.
        tile = tirx.min(tile, tiling.strip_tiles - 1) if tiles > tiling.strip_tiles else tile
        h = tile // tiling.tile_columns * transform.results + p
        w = tile % tiling.tile_columns * transform.results + q
        return rows(n, strip, block * tiling.joined_blocks + pair // BLOCK_WORDS, h, w, pair % BLOCK_WORDS)

    shape = sizes((batch, strips, blocks, tiles, points, points, pairs))
    patches = te.compute(shape, element, name="patch")

    def half(n: Expression, strip: Expression, block: Expression, tile: Expression, *at: Expression) -> Expression:
        a, q, pair = at
        terms = [patches(n, strip, block, tile, p, q, pair) for p in range(points)]
        return _element(transform.input, a, terms, _plain)

    halves = te.compute(shape, half, name="half_input")

    def whole(n: Expression, strip: Expression, a: Expression, b: Expression, *at: Expression) -> Expression:
        block, tile, pair = at
        terms = [halves(n, strip, block, tile, a, q, pair) for q in range(points)]
        word = _element(transform.input, b, terms, _plain)
        # Where the lower half is negative the upper half of the word is one too small.
        return word + ((word & constant(1 << 15, word)) << constant(1, word))

    return te.compute(sizes((batch, strips, points, points, blocks, tiles, pairs)), whole, name="transformed")


def _rows(tiling: WinogradTiling, source: Source, centres: Expression | None) -> Expression:
    """[N, strips, blocks, H, W, words]: the input rows of each strip with their padding, as sums of two channels.

    Centres, words too, are subtracted from all of a channel, padding included.
    """
    tensor, results = source.tensor, tiling.transform.results
    top, left, _, _ = tiling.convolution.padding
    strip_height, border = tiling.strip_rows * results, tiling.transform.points - results

    def word(
        n: Expression, strip: Expression, block: Expression, h: Expression, w: Expression, i: Expression
    ) -> Expression:
        row, column = strip * strip_height + h - top, w - left
        inside = tirx.all(row >= 0, row < tiling.input.height, column >= 0, column < tiling.input.width)
        lower, upper = (cast(tensor(n, block, row, column, i * 2 + lane), "int32") for lane in (0, 1))
        element = tirx.if_then_else(inside, lower + (upper << constant(16, upper)), tirx.const(0, "int32"))
        return element if centres is None else element - centres(block, i)

    height, width = strip_height + border, tiling.padded_width + border
    shape = sizes((tensor.shape[0], tiling.strips, tiling.input_blocks, height, width, BLOCK_WORDS))
    return te.compute(shape, word, name="rows")


def _products(tiling: WinogradTiling, words: Expression, weight: Expression) -> Expression:
    """[N, strips, vectors, points, points, tiles]: sums over channels modulo 2^32."""
    batch, strips, points, _, _, tiles, _ = words.shape
    block, pair = axes = [reduce_axis(tiling.channel_blocks, "c"), reduce_axis(tiling.pairs, "p")]

    def body(n: Expression, strip: Expression, v: Expression, *at: Expression) -> Expression:
        a, b, tile = at
        weights = weight(v // tiling.vectors, a, b, block, pair, v % tiling.vectors)
        return modulo_sum(multiply_add(words(n, strip, a, b, block, tile, pair), weights), axes)

    shape = sizes((batch, strips, tiling.padded_vectors, points, points, tiles))
    return te.compute(shape, body, name="products")


def _total(tiling: WinogradTiling, products: Expression) -> Body:
    """The exact sums: products transformed back, and divided."""
    transform, points, m = tiling.transform, tiling.transform.points, tiling.transform.results
    outer = (*products.shape[:3], tiling.strip_rows, tiling.tile_columns)

    def half(n: Expression, strip: Expression, v: Expression, row: Expression, *at: Expression) -> Expression:
        column, i, b = at
        terms = [products(n, strip, v, a, b, row * tiling.tile_columns + column) for a in range(points)]
        return _element(transform.output, i, terms, modulo)

    halves = te.compute(sizes((*outer, m, points)), half, name="half_output")

    def whole(n: Expression, strip: Expression, v: Expression, row: Expression, *at: Expression) -> Expression:
        column, i, j = at
        terms = [halves(n, strip, v, row, column, i, b) for b in range(points)]
        multiple = _element(transform.output, j, terms, modulo)
        if transform.inverse != 1:
            multiple = modulo("mul", multiple, constant(transform.inverse, multiple))
        return multiple >> constant(transform.shift, multiple)

    tiles = te.compute(sizes((*outer, m, m)), whole, name="tile_output")
    height = tiling.strip_rows * m
    return lambda n, v, h, w: tiles(n, h // height, v, h % height // m, w // m, h % m, w % m)


def _element(matrix: Matrix, index: Expression, terms: Sequence[Expression], operation: Operation) -> Expression:
    """One element of matrix * terms; loops over the index are unrolled, so that no choice is left in the code."""
    *others, element = (_combination(row, terms, operation) for row in matrix)
    for row, other in enumerate(others):
        element = tirx.Select(tirx.EQ(index, tirx.const(row, INDEX)), other, element)
    return element


def _combination(coefficients: Sequence[int], terms: Sequence[Expression], operation: Operation) -> Expression:
    """The sum of coefficient * term. Sums and differences of two neighbours, which rows share, come first."""
    parts: list[tuple[int, Expression]] = []
    single: dict[int, tuple[int, Expression]] = {}
    for factor, term in zip(coefficients, terms, strict=True):
        if not factor:
            continue
        if abs(factor) not in single:
            single[abs(factor)] = factor, term
            continue
        first, neighbour = single.pop(abs(factor))
        parts.append((first, operation("add" if first == factor else "sub", neighbour, term)))
    # A positive part comes first, so that nothing is negated.
    (factor, total), *rest = sorted([*parts, *single.values()], key=lambda part: part[0] < 0)
    total = _multiple(factor, total, operation)
    for factor, term in rest:
        total = operation("add" if factor > 0 else "sub", total, _multiple(abs(factor), term, operation))
    return total


def _multiple(factor: int, term: Expression, operation: Operation) -> Expression:
    return term if factor == 1 else operation("mul", term, constant(factor, term))


def _plain(operation: str, left: Expression, right: Expression) -> Expression:
    match operation:
        case "add":
            return left + right
        case "sub":
            return left - right
        case _:
            return left * right

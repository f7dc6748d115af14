"""The end of the AVX2 convolution: from exact sums in registers to mantissas, events and values, 8 channels at a time.

The arithmetic is the portable design's (`arithmetic`, `wide`), on vectors. Stages that later ones read (*inner*) cover
whole register tiles; what is stored or counted covers the layer alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

from tvm import te, tirx

from binpoint.backends.kernel import TensorSpec
from binpoint.backends.tensor_expression import wide
from binpoint.backends.tensor_expression.arithmetic import (
    Expression,
    Scalars,
    activate,
    cast,
    constant,
    element_type,
    flag,
    round_to_output,
    saturate,
    saturated,
    underflowed,
)
from binpoint.backends.tensor_expression.convolution_tiling import LANES
from binpoint.backends.tensor_expression.layout import feature_map_layout, storage_dtype
from binpoint.backends.tensor_expression.plan import Container, KernelPlan
from binpoint.backends.tensor_expression.tensors import INDEX, reduce_axis, sizes

Body = Callable[..., Expression]
"""(n, v, h, w) -> one vector of results: image, vector of 8 output channels, row, column."""


class Tiling(Protocol):
    """What the epilogue must know of a tiling: which results whole tiles compute."""

    @property
    def output(self) -> TensorSpec:
        """The results of the layer."""

    @property
    def tile_images(self) -> int:
        """Images of a tile."""

    @property
    def padded_vectors(self) -> int:
        """Vectors of 8 output channels, rounded up to whole tiles."""

    @property
    def padded_height(self) -> int:
        """Output rows, rounded up to whole tiles."""

    @property
    def padded_width(self) -> int:
        """Output columns, rounded up to whole tiles."""


@dataclass(frozen=True)
class Results:
    """The results of a layer, for N = `batch` images."""

    plan: KernelPlan
    tiling: Tiling
    batch: Expression

    @cached_property
    def picks(self) -> tuple[Expression, ...]:
        """Where the plan has picked values: which lane of each vector it is, [N, blocks, vectors of a block]."""
        batch, blocks, _, _, vectors = self.stored_shape
        return (te.placeholder((batch, blocks, vectors), "int32", "picks"),) if self.plan.picked else ()

    @property
    def padded_shape(self) -> tuple[Expression, ...]:
        """The results that whole tiles compute: [N, vectors, H, W], each rounded up."""
        tiling, images = self.tiling, self.tiling.tile_images
        batch = self.batch if images == 1 else (self.batch + (images - 1)) // images * images
        return sizes((batch, tiling.padded_vectors, tiling.padded_height, tiling.padded_width))

    @property
    def stored_shape(self) -> tuple[Expression, ...]:
        """An output in its layout, as vectors: [N, blocks, H, W, vectors of a block]."""
        layout = feature_map_layout(self.tiling.output)
        return sizes((*layout.shape(self.tiling.output, self.batch)[:4], layout.block // LANES))

    def stage(self, name: str, body: Body) -> Expression:
        """A tensor of whole tiles."""
        return te.compute(self.padded_shape, lambda *at: body(*at), name=name)

    def stored(self, name: str, body: Body) -> Expression:
        """A tensor in the output's layout."""
        *_, vectors = self.stored_shape

        def at(n: Expression, block: Expression, h: Expression, w: Expression, v: Expression) -> Expression:
            return body(n, block * vectors + v, h, w)

        return te.compute(self.stored_shape, at, name=name)

    def values(self, *bodies: Body) -> list[Expression]:
        """What the kernel leaves for statistics: whole vectors, or the picked lane of each."""
        if not self.plan.values:
            return []
        limbs = ("values",) if len(bodies) == 1 else ("high_values", "low_values")
        if self.plan.picked:
            picks = self.picks[0]
            bodies = tuple(partial(_picked, body, picks, self.stored_shape[-1]) for body in bodies)
        return [self.stored(name, body) for name, body in zip(limbs, bodies, strict=True)]

    def counts(self, name: str, flags: Body) -> Expression:
        """[N, blocks, H, vectors]: the int32 sum of flags over each row, leaving out what only fills a tile."""
        *shape, _, vectors = self.stored_shape
        width, padded_width = self.tiling.output.width, self.tiling.padded_width
        column = reduce_axis(padded_width, "column") if padded_width > 1 else tirx.const(0, INDEX)

        def body(n: Expression, block: Expression, h: Expression, v: Expression) -> Expression:
            flagged = cast(flags(n, block * vectors + v, h, column), "int32")
            if padded_width == 1:
                return flagged
            if width < padded_width:
                flagged = tirx.if_then_else(column < width, flagged, constant(0, flagged))
            return te.sum(flagged, axis=column)

        return te.compute((*shape, vectors), body, name=name)


def _picked(
    body: Body, picks: Expression, vectors: Expression, n: Expression, v: Expression, h: Expression, w: Expression
) -> Expression:
    """The picked lane of a vector: the sum of its lanes with the others 0."""
    value = body(n, v, h, w)
    lanes = tirx.Ramp(tirx.const(0, "int32"), tirx.const(1, "int32"), LANES)
    here = tirx.EQ(lanes, tirx.Broadcast(picks(n, v // vectors, v % vectors), LANES))
    return tirx.call_llvm_pure_intrin(
        element_type(value), "llvm.vector.reduce.add", tirx.Select(here, value, constant(0, value))
    )


@dataclass(frozen=True)
class Epilogue:
    """The te tensors of an epilogue: inner stages, and the kernel's outputs in the order of `design`.

    There is no `output` where the values are the only one.
    """

    inner: tuple[Expression, ...]
    output: Expression | None
    counts: tuple[Expression, ...]
    values: tuple[Expression, ...]


def finish(results: Results, total: Body, bias: Expression | None, scalars: Scalars) -> Epilogue:
    """All stages after the exact sums; `bias` has a vector for each vector of channels."""
    if results.plan.container is Container.WIDE:
        return _finish_wide(results, total, bias, scalars)
    activation, folded = results.plan.spec.activation, results.plan.folded

    def with_bias(*at: Expression) -> Expression:
        return total(*at) if bias is None else total(*at) + bias(at[1])

    value = results.stage("value", lambda *at: activate(with_bias(*at), activation, scalars, folded=folded))
    if results.plan.raw:
        return Epilogue((value,), None, (), tuple(results.values(value)))
    return _quantized(results, (), value, results.values(value), [], scalars)


def _finish_wide(results: Results, total: Body, bias: Expression | None, scalars: Scalars) -> Epilogue:
    """With the accumulator's width checked, and products of 96 bits."""
    spec = results.plan.spec

    def limited(*at: Expression) -> Expression:
        return wide.limit(total(*at), spec.accumulator)

    def with_bias(*at: Expression) -> Expression:
        return limited(*at) if bias is None else wide.add_limited(limited(*at), bias(at[1]), spec.accumulator)

    def overflowed(*at: Expression) -> Expression:
        exact = total(*at)
        left = flag(tirx.NE(limited(*at), exact), exact)
        if bias is None:
            return left
        return left | flag(wide.add_overflows(limited(*at), bias(at[1]), spec.accumulator), exact)

    accumulated = results.stage("accumulated", with_bias)
    high, low = (
        results.stage(
            name, lambda *at, limb=limb: wide.activated_limbs(accumulated(*at), spec.activation, scalars)[limb]
        )
        for limb, name in enumerate(("high", "low"))
    )
    value = results.stage("value", lambda *at: wide.fold(high(*at), low(*at), scalars))
    values = results.values(high, low)
    counts = [results.counts("overflowed", overflowed)]
    return _quantized(results, (accumulated, high, low), value, values, counts, scalars)


def _quantized(
    results: Results,
    inner: tuple[Expression, ...],
    value: Expression,
    values: list[Expression],
    counts: list[Expression],
    scalars: Scalars,
) -> Epilogue:
    """Round and saturate. The padding of the last channel block becomes 0, as its weights and bias are."""
    spec = results.plan.spec
    bits = spec.output.bits
    rounded = results.stage("rounded", lambda *at: round_to_output(value(*at), spec.rounding, scalars))
    output = results.stored("output", lambda *at: cast(saturate(rounded(*at), bits), storage_dtype(bits)))
    events = (
        results.counts("saturated", lambda *at: saturated(rounded(*at), bits)),
        results.counts("underflowed", lambda *at: underflowed(value(*at), rounded(*at))),
        *counts,
    )
    return Epilogue((*inner, value, rounded), output, events, tuple(values))

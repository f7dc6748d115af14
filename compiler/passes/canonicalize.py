"""Layers that change nothing, or that nobody reads -> gone.

    %flat = nn.flatten "flat" (%pool) : tensor<?x400x1x1xf32>
    %same = nn.reshape "same" (%flat) shape = 400x1x1 : tensor<?x400x1x1xf32>
->  %flat = nn.flatten "flat" (%pool) folds = ["same"] : tensor<?x400x1x1xf32>
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)

from binpoint.dialect.attributes import NamesAttr
from binpoint.dialect.nn_layers import (
    AveragePoolOp,
    FlattenOp,
    LayerOp,
    MaxPoolOp,
    Relu6Op,
    ReluOp,
    ReshapeOp,
    ResizeOp,
    UnaryOp,
    UpsampleOp,
)


class DropIdentity(RewritePattern):
    """A layer that only moves elements, and moves none: its operand."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: FlattenOp | ReshapeOp | ResizeOp | UpsampleOp, rewriter: PatternRewriter) -> None:
        """Match by the types alone: these layers keep the order of elements where they keep the shape."""
        if op.input.type == op.result.type:
            _drop(op, rewriter)


class DropUnitPool(RewritePattern):
    """A pool over 1x1 windows that skips nothing: its operand."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MaxPoolOp | AveragePoolOp, rewriter: PatternRewriter) -> None:
        """Match by window and stride; such a pool cannot be padded."""
        if op.kernel.data == (1, 1) and op.stride.data == (1, 1):
            _drop(op, rewriter)


class DropRepeatedRelu(RewritePattern):
    """A relu of what is never negative: its operand. So is a relu6 of a relu6."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReluOp | Relu6Op, rewriter: PatternRewriter) -> None:
        """Match the layer before."""
        producer = op.input.owner
        if isinstance(producer, Relu6Op) or (isinstance(producer, ReluOp) and isinstance(op, ReluOp)):
            _drop(op, rewriter)


class MergeReshapes(RewritePattern):
    """A reshape of a reshape: one, whatever lies between."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: FlattenOp | ReshapeOp, rewriter: PatternRewriter) -> None:
        """Read what the reshape before read; that one is left for others, or dies."""
        producer = op.input.owner
        if isinstance(producer, FlattenOp | ReshapeOp):
            properties = dict(op.properties)
            if op.input.has_one_use():
                properties["folds"] = NamesAttr((*op.layers[1:], *producer.layers))
            merged = type(op).create(
                operands=[producer.input],
                result_types=[op.result.type],
                properties=properties,
                location=op.location,
            )
            rewriter.replace(op, merged)


def _drop(op: UnaryOp, rewriter: PatternRewriter) -> None:
    """Read the operand instead; the layer before takes over the names."""
    producer = op.input.owner
    if isinstance(producer, LayerOp):
        producer.folds = NamesAttr((*producer.layers[1:], *op.layers))
    rewriter.replace(op, [], [op.input])


@dataclass(frozen=True)
class Canonicalize(ModulePass):
    """Layers that change nothing, or that nobody reads -> gone."""

    name = "canonicalize"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run over every network of the module, until nothing changes."""
        patterns: list[RewritePattern] = [DropIdentity(), DropUnitPool(), DropRepeatedRelu(), MergeReshapes()]
        PatternRewriteWalker(GreedyRewritePatternApplier(patterns, dce_enabled=True)).rewrite_module(op)

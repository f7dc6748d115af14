"""A quantised result that only an activation widens again -> the accumulators themselves.

%conv1 = fx.quantize (%conv1.acc) ...         %relu1.acc = fx.relu (%conv1.acc) : !fx.acc<..., 40b>
%relu1.wide = fx.widen (%conv1) ...        -> %relu1 = fx.quantize (%relu1.acc) ...
%relu1.acc = fx.relu (%relu1.wide)
%relu1 = fx.quantize (%relu1.acc) ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

from binpoint.dialect.fx_accumulate import AveragePoolOp, FilterOp, MergeOp, WidenOp
from binpoint.dialect.fx_gradients import ChannelAffineOp
from binpoint.dialect.fx_values import ActivationOp, BiasOp, QuantizeOp
from binpoint.dialect.policies import PolicyAttr

FUSED_INTO = (FilterOp, AveragePoolOp, MergeOp, ChannelAffineOp)
"""The accumulating operations that an activation joins. A PE has one activation behind its accumulators."""


class FuseActivation(RewritePattern):
    """Between two layers that would otherwise meet in narrow mantissas."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: WidenOp, rewriter: PatternRewriter) -> None:
        """Match the widening, with the quantisation before it and the activation after it."""
        quantize = op.input.owner
        if not isinstance(quantize, QuantizeOp) or not op.input.has_one_use() or not op.result.has_one_use():
            return
        activation = next(iter(op.result.uses)).operation
        if not isinstance(activation, ActivationOp) or not _can_take_activation(quantize):
            return
        if quantize.input.type != op.result.type:
            return
        _keep_start(quantize, activation)
        rewriter.replace(op, [], [quantize.input])
        rewriter.erase(quantize)


def _can_take_activation(quantize: QuantizeOp) -> bool:
    """Whether the result is accumulated, with or without a bias, and has no activation yet."""
    source = quantize.input.owner
    if isinstance(source, BiasOp):
        source = source.input.owner
    return isinstance(source, FUSED_INTO)


def _keep_start(quantize: QuantizeOp, activation: Operation) -> None:
    """A start that the user gave the layer holds for the fused result, unless the activation has its own."""
    for use in activation.results[0].uses:
        after = use.operation
        if isinstance(after, QuantizeOp) and after.exponent.data.initial is None:
            initial = quantize.exponent.data.initial
            after.exponent = PolicyAttr(replace(after.exponent.data, initial=initial))


@dataclass(frozen=True)
class FuseActivations(ModulePass):
    """A quantised result that only an activation widens again -> the accumulators themselves."""

    name = "fuse-activations"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run over every program of the module."""
        PatternRewriteWalker(FuseActivation()).rewrite_module(op)

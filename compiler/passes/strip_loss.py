"""A loss at the end of a network -> its logits: inference needs no labels.

    %loss = nn.cross_entropy "loss" (%fc2) : tensor<?x10x1x1xf32>
    nn.output (%loss)
->  nn.output (%fc2)
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

from binpoint.dialect.nn_layers import CrossEntropyOp


class StripCrossEntropy(RewritePattern):
    """Reads the logits where the loss was read."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: CrossEntropyOp, rewriter: PatternRewriter) -> None:
        """Replace the loss by its operand."""
        rewriter.replace(op, [], [op.input])


@dataclass(frozen=True)
class StripLoss(ModulePass):
    """A loss at the end of a network -> its logits."""

    name = "strip-loss"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run over every network of the module."""
        PatternRewriteWalker(StripCrossEntropy()).rewrite_module(op)

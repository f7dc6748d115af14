"""Accumulators -> the same with the width that every sum needs, and whether it can leave the accumulators.

    %0 = fx.conv2d (%x, %w) kernel = 5x5, on_overflow = saturate : !fx.acc<?x6x24x24, 40b>
->  %0 = fx.conv2d (%x, %w) kernel = 5x5, on_overflow = saturate, overflow = impossible, needed = 20b
         : !fx.acc<?x6x24x24, 40b>

The proof takes widths and the length of the reduction, not values; see `compiler.bounds`. Over blocks, whose mantissas
are aligned, it takes the spread of their candidates too; where candidates of several layers meet, there is no proof.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

from binpoint.compiler.alignment import alignment_bits
from binpoint.compiler.bounds import needed_bits, needed_sum_bits
from binpoint.dialect.attributes import BitsAttr, CountAttr
from binpoint.dialect.fx_accumulate import AccumulateOp
from binpoint.dialect.fx_attributes import Overflow, OverflowAttr
from binpoint.dialect.fx_training import ChannelSumsOp
from binpoint.dialect.fx_types import width
from binpoint.dialect.fx_values import BiasOp


class ProveAccumulator(RewritePattern):
    """The accumulating operation and the bias after it."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AccumulateOp, rewriter: PatternRewriter) -> None:
        """Match what has no proof yet."""
        if op.overflow is not None:
            return
        shifts = alignment_bits(op)
        if shifts is None:
            return
        needed, available = needed_bits(op) + shifts, width(op.result)
        op.needed = BitsAttr(needed)
        op.overflow = OverflowAttr(Overflow.IMPOSSIBLE if needed <= available else Overflow.POSSIBLE)
        for use in op.result.uses:
            if isinstance(use.operation, BiasOp):
                _prove_bias(use.operation, needed)
        rewriter.notify_op_modified(op)


class ProveSums(RewritePattern):
    """Sums over images, which have 64 bits: the verifier refuses those that need more."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ChannelSumsOp, rewriter: PatternRewriter) -> None:
        """Match what has no proof yet."""
        if op.needed is None:
            op.needed = BitsAttr(needed_sum_bits(op))
            rewriter.notify_op_modified(op)


def _prove_bias(op: BiasOp, needed: int) -> None:
    """The sum of a value below 2^(A-2) and a bias below 2^(A-2) fits A bits."""
    available = width(op.input)
    shift = available - 1 - width(op.bias)
    if needed < available and shift > 0:
        op.safe_shift = CountAttr(shift)


@dataclass(frozen=True)
class ProveAccumulators(ModulePass):
    """Accumulators -> the same with the width that every sum needs, and whether it can leave the accumulators."""

    name = "prove-accumulators"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run over every program of the module."""
        for pattern in (ProveAccumulator(), ProveSums()):
            PatternRewriteWalker(pattern).rewrite_module(op)

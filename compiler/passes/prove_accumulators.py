"""Accumulators -> the same with the width that every sum needs, and whether it can leave the accumulators.

    %0 = fx.conv2d (%x, %w) kernel = 5x5, on_overflow = saturate : !fx.acc<?x6x24x24, 40b>
->  %0 = fx.conv2d (%x, %w) kernel = 5x5, on_overflow = saturate, overflow = impossible, needed = 20b
         : !fx.acc<?x6x24x24, 40b>

The proof takes widths and the length of the reduction, not values: mantissas of b bits lie in -2^(b-1) .. 2^(b-1)-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

from binpoint.backends.tables import FRACTION_BITS
from binpoint.dialect.attributes import BitsAttr, CountAttr
from binpoint.dialect.fx_accumulate import AccumulateOp, AveragePoolOp, FilterOp, MergeOp, SigmoidOp, SoftmaxOp
from binpoint.dialect.fx_attributes import Overflow, OverflowAttr
from binpoint.dialect.fx_types import parameter_sizes, width
from binpoint.dialect.fx_values import BiasOp


class ProveAccumulator(RewritePattern):
    """The accumulating operation and the bias after it."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: AccumulateOp, rewriter: PatternRewriter) -> None:
        """Match what has no proof yet."""
        if op.overflow is not None:
            return
        needed, available = needed_bits(op), width(op.result)
        op.needed = BitsAttr(needed)
        op.overflow = OverflowAttr(Overflow.IMPOSSIBLE if needed <= available else Overflow.POSSIBLE)
        for use in op.result.uses:
            if isinstance(use.operation, BiasOp):
                _prove_bias(use.operation, needed)
        rewriter.notify_op_modified(op)


def needed_bits(op: AccumulateOp) -> int:
    """The least width in bits that holds every exact sum of the operation, whatever its operands."""
    widest = max(width(operand) for operand in op.operands)
    if isinstance(op, FilterOp):
        terms = prod(parameter_sizes(op.weight)[1:])
        return signed_bits(terms << (width(op.input) + width(op.weight) - 2))
    if isinstance(op, AveragePoolOp):
        divisors, _ = op.reciprocals.data
        # A window's sum is negative at its largest: divisor * -2^(b-1).
        return max(signed_bits(-(divisor * multiplier << (widest - 1))) for divisor, multiplier in divisors)
    if isinstance(op, MergeOp):
        # Alignment leaves room for the carries of all operands and one bit of rounding; see `alignment_exponent`.
        carries = (len(op.inputs) - 1).bit_length()
        return max(width(op.result) - 1, widest + carries + 1)
    if isinstance(op, SigmoidOp | SoftmaxOp):
        return signed_bits(1 << FRACTION_BITS)
    return widest


def signed_bits(value: int) -> int:
    """The least width of a two's complement number: signed_bits(127) = 8, signed_bits(-128) = 8."""
    return (value if value >= 0 else ~value).bit_length() + 1


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
        PatternRewriteWalker(ProveAccumulator()).rewrite_module(op)

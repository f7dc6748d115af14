"""A quantisation -> the same behind a statistics circuit that sees its accumulators.

    %relu1 = fx.quantize (%relu1.acc) ...
->  fx.stats (%relu1.acc) acquires = [msb, lsb]
    %relu1 = fx.quantize (%relu1.acc) ...
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.fx_attributes import AcquiresAttr
from binpoint.dialect.fx_values import QuantizeOp, StatsOp
from binpoint.support.numeric import ACQUISITIONS


@dataclass
class AcquireBeforeQuantize(RewritePattern):
    """Statistics of the values that are about to be quantised (SEMANTICS: after bias and activation)."""

    acquires: AcquiresAttr

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: QuantizeOp, rewriter: PatternRewriter) -> None:
        """Match quantisations without statistics."""
        if not any(isinstance(use.operation, StatsOp) for use in op.input.uses):
            properties = {"acquires": self.acquires}
            rewriter.insert(StatsOp.create(operands=[op.input], properties=properties, location=op.location))


@dataclass(frozen=True)
class InsertStatistics(ModulePass):
    """A quantisation -> the same behind a statistics circuit that sees its accumulators.

    `acquires` is what the target's circuits acquire.
    """

    name = "insert-statistics"

    acquires: tuple[str, ...] = ACQUISITIONS

    def __post_init__(self) -> None:
        """Raise ValueError for what no circuit acquires."""
        try:
            AcquiresAttr(self.acquires)
        except VerifyException as error:
            raise ValueError(str(error)) from None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run over every program of the module."""
        PatternRewriteWalker(AcquireBeforeQuantize(AcquiresAttr(self.acquires))).rewrite_module(op)

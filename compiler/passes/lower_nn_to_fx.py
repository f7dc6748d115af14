"""Layers over real numbers -> fixed-point operations, every layer widened and quantised on its own.

%conv1 = nn.conv2d "conv1" (%image, %w) ...    %conv1.acc = fx.conv2d (%image, %w) ... : !fx.acc<..., 40b>
%relu1 = nn.relu "relu1" (%conv1)              %conv1 = fx.quantize (%conv1.acc) ... : !fx.tensor<..., 8b, ...>
                                               %relu1.wide = fx.widen (%conv1) ... : !fx.acc<..., 40b>
                                               %relu1.acc = fx.relu (%relu1.wide) : !fx.acc<..., 40b>
                                            -> %relu1 = fx.quantize (%relu1.acc) ... : !fx.tensor<..., 8b, ...>
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from binpoint.compiler.lowering import build_program
from binpoint.dialect.nn_network import NetworkOp


@dataclass(frozen=True)
class LowerNnToFx(ModulePass):
    """Layers over real numbers -> fixed-point operations, every layer widened and quantised on its own.

    Widths, granularity, rounding and exponent policies come from the network; what the network leaves open, the
    options say for the target.
    """

    name = "lower-nn-to-fx"

    accumulator_bits: int = 40
    accumulator_wraps: bool = False
    target: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Replace every network of the module by a program."""
        for network in [each for each in op.ops if isinstance(each, NetworkOp)]:
            program = build_program(network, self.accumulator_bits, self.accumulator_wraps, self.target)
            op.body.block.insert_op_before(program, network)
            op.body.block.erase_op(network)

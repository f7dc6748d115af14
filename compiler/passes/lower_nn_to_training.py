"""Layers over real numbers and their loss -> fixed-point operations of the forward phase, and the loss on the host.

nn.network @net ... {                          fx.training @net ..., batch = 64 {
  %image = nn.input "image" ...                  %image = fx.input "image" ...
  %w = nn.parameter "fc.weight" ...              %fc.weight = fx.parameter "fc.weight" ...
  %fc = nn.linear "fc" (%image, %w) ...     ->   fx.phase forward
  %loss = nn.cross_entropy "loss" (%fc) ...      %fc.acc = fx.linear (%image, %fc.weight) ...
  nn.output (%loss)                              %fc = fx.quantize (%fc.acc) ...
}                                                fx.phase loss
                                                 %fc.grad = fx.host.softmax_cross_entropy "fc.grad" (%fc) ...
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from binpoint.compiler.training.lowering import TrainingTarget, build_training
from binpoint.dialect.nn_network import NetworkOp
from binpoint.support.numeric import BITS_RANGE, TensorClass


@dataclass(frozen=True)
class LowerNnToTraining(ModulePass):
    """Layers over real numbers and their loss -> fixed-point operations of the forward phase, the loss on the host.

    As lower-nn-to-fx; batch normalisations become exact sums, coefficients that the host computes, and an affine
    kernel. `batch` is the number of images of a mini-batch, `coefficient_bits` the width of the coefficients of batch
    normalisation, and the gradient of the loss is scaled by 2^`scale_exponent`.
    """

    name = "lower-nn-to-training"

    accumulator_bits: int = 40
    accumulator_wraps: bool = False
    target: str | None = None
    batch: int = 64
    coefficient_bits: int = 16
    scale_exponent: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for a mini-batch without images and for coefficients that no kernel multiplies by."""
        if self.batch < 1:
            raise ValueError(f"a mini-batch of {self.batch} images")
        least, most = BITS_RANGE[TensorClass.WEIGHTS]
        if not least <= self.coefficient_bits <= most:
            raise ValueError(f"coefficients of {self.coefficient_bits} bits, expected {least} to {most}")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Replace every network of the module by a training program."""
        target = TrainingTarget(
            self.accumulator_bits,
            self.accumulator_wraps,
            self.target,
            self.batch,
            self.coefficient_bits,
            self.scale_exponent,
        )
        for network in [each for each in op.ops if isinstance(each, NetworkOp)]:
            op.body.block.insert_op_before(build_training(network, target), network)
            op.body.block.erase_op(network)

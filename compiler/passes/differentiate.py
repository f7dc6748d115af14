"""Forward kernels and the gradient of the loss -> the kernels of all gradients, in a backward phase.

%fc = fx.kernel "fc" ... { fx.linear (%x, %w) ... }       fx.phase backward
fx.phase loss                                             %fc.weight.grad = fx.kernel "fc.weight.grad" ... {
%fc.grad = fx.host.softmax_cross_entropy ... (%fc)    ->    fx.linear_weight_gradient (%x, %fc.grad) ... }
                                                          %x.grad = fx.kernel "x.grad" ... {
                                                            fx.linear_data_gradient (%fc.grad, %w) ... }
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from binpoint.compiler.training.backward import Backward
from binpoint.compiler.training.gradients import differentiate_kernel
from binpoint.dialect.assembly import location_of, value_name
from binpoint.dialect.attributes import NameAttr
from binpoint.dialect.fx_attributes import PhaseAttr
from binpoint.dialect.fx_host import SoftmaxCrossEntropyOp
from binpoint.dialect.fx_program import KernelOp
from binpoint.dialect.fx_training import PhaseOp, TrainingOp
from binpoint.support.diagnostics import user_error
from binpoint.support.phases import Phase


@dataclass(frozen=True)
class Differentiate(ModulePass):
    """Forward kernels and the gradient of the loss -> the kernels of all gradients, in a backward phase.

    The options are the accumulators where the network's policy names none.
    """

    name = "differentiate"

    accumulator_bits: int = 40
    accumulator_wraps: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run over every training program of the module. Raises UserError for what has no gradient."""
        for training in op.ops:
            if isinstance(training, TrainingOp):
                self._differentiate(training)

    def _differentiate(self, training: TrainingOp) -> None:
        loss = next((each for each in training.phase(Phase.LOSS) if isinstance(each, SoftmaxCrossEntropyOp)), None)
        kernels = [each for each in training.phase(Phase.FORWARD) if isinstance(each, KernelOp)]
        if loss is None or training.phase(Phase.BACKWARD):
            raise user_error(
                "not-differentiable",
                "a training program is differentiated once, and from its loss",
                location=location_of(training),
                found="no loss" if loss is None else "a backward phase",
            )
        numeric = training.numeric.data
        backward = Backward(numeric, self.accumulator_bits, self.accumulator_wraps, kernels, loss.logits)
        if not backward.wants(loss.logits):
            raise user_error("nothing-to-train", "no parameter lies before the loss", location=location_of(loss))
        label = backward.label(loss.logits, "loss")
        loss.label, loss.result.name_hint = NameAttr(label), value_name(label)
        backward.hand(loss.logits, loss.result)
        for kernel in reversed(kernels):
            if backward.wants(kernel.result) and backward.reached(kernel.result):
                differentiate_kernel(backward, kernel)
        mark = PhaseOp.create(properties={"phase": PhaseAttr(Phase.BACKWARD)})
        training.body.block.add_ops([mark, *backward.operations])

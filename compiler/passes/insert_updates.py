"""Gradients of parameters -> masters, velocities and the updates of stochastic gradient descent.

%w = fx.parameter "fc.weight" ...                 %w = fx.parameter "fc.weight" ...
...                                               %w.master = fx.parameter "fc.weight.master" ...
%w.grad = fx.kernel "fc.weight.grad" ...     ->   ...
                                                  fx.phase update
                                                  fx.update "fc.weight" (%w, %w.master) { ... }
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from binpoint.compiler.training.updates import Optimizer, Updates
from binpoint.dialect.assembly import location_of
from binpoint.dialect.fx_attributes import PhaseAttr
from binpoint.dialect.fx_host import BATCH_NORM_GRADIENTS, BatchNormGradientOp
from binpoint.dialect.fx_program import KernelOp, ParameterOp
from binpoint.dialect.fx_training import PhaseOp, TrainingOp
from binpoint.support.diagnostics import user_error
from binpoint.support.number_text import parse_number
from binpoint.support.phases import Phase


@dataclass(frozen=True)
class InsertUpdates(ModulePass):
    """Gradients of parameters -> masters, velocities and the updates of stochastic gradient descent.

    `momentum` and `decay`, of weights, are numbers below 1, as 0.9 or "9/10"; each becomes the nearest constant of 16
    bits. Without momentum there are no velocities.
    """

    name = "insert-updates"

    momentum: int | float | str = 0
    decay: int | float | str = 0

    def __post_init__(self) -> None:
        """Raise ValueError for what is no share."""
        for name, value in (("momentum", self.momentum), ("decay", self.decay)):
            if not 0 <= parse_number(str(value)) < 1:
                raise ValueError(f"{name} = {value} is not at least 0 and below 1")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run over every training program of the module. Raises UserError for one without a backward phase."""
        # The number that was written, not the float64 nearest to it.
        optimizer = Optimizer(parse_number(str(self.momentum)), parse_number(str(self.decay)))
        for training in op.ops:
            if isinstance(training, TrainingOp):
                _insert(training, optimizer)


def _insert(training: TrainingOp, optimizer: Optimizer) -> None:
    block, gradients = training.body.block, _gradients(training)
    if not gradients or training.phase(Phase.UPDATE):
        raise user_error(
            "no-gradients",
            "updates are inserted once, behind gradients",
            location=location_of(training),
            hint=None if gradients else "run differentiate",
        )
    updates = Updates(training.numeric.data, optimizer)
    block.add_op(PhaseOp.create(properties={"phase": PhaseAttr(Phase.UPDATE)}))
    for parameter in [op for op in block.ops if isinstance(op, ParameterOp)]:
        gradient = gradients.get(f"{parameter.label.data}.grad")
        if gradient is not None:
            declared = updates.declare(parameter)
            block.insert_ops_after(declared, parameter)
            block.add_op(updates.update(parameter, declared, gradient))


def _gradients(training: TrainingOp) -> dict[str, SSAValue]:
    """What the backward phase computes, by name."""
    found: dict[str, SSAValue] = {}
    for op in training.phase(Phase.BACKWARD):
        if isinstance(op, KernelOp):
            found[op.label.data] = op.result
        elif isinstance(op, BatchNormGradientOp):
            names = [f"{op.label.data}.{part}" for part in BATCH_NORM_GRADIENTS]
            found |= dict(zip(names, op.results, strict=True))
    return found

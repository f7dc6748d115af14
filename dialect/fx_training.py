"""The structure of a training program: one mini-batch as phases, from the forward kernels to the updates.

fx.training @tiny numeric = <...>, batch = 64, target = "dlu2048" {
  %image = fx.input "image" ...
  %fc.weight = fx.parameter "fc.weight" ...
  %fc.weight.master = fx.parameter "fc.weight.master" ...
  fx.phase forward
  %fc = fx.kernel "fc" ...
  fx.phase loss
  %fc.grad = fx.host.softmax_cross_entropy "fc.grad" (%fc) float64, ...
  fx.phase backward
  %fc.weight.grad = fx.kernel "fc.weight.grad" ...
  fx.phase update
  fx.update "fc.weight" (%fc.weight, %fc.weight.master) { ... }
}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from xdsl.ir import Operation
from xdsl.irdl import (
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsolatedFromAbove, NoTerminator
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.assembly import ReadableOp, location_here, verify_names
from binpoint.dialect.attributes import BitsAttr, CountAttr, NameAttr
from binpoint.dialect.fx_attributes import PhaseAttr, TermsAttr
from binpoint.dialect.fx_host import SoftmaxCrossEntropyOp
from binpoint.dialect.fx_program import InputOp, KernelOp, ParameterOp
from binpoint.dialect.fx_types import AccumulatorType, FixedTensorType, check_sizes, map_shape, sizes_of, width
from binpoint.dialect.fx_update import UpdateOp
from binpoint.dialect.policies import NumericAttr
from binpoint.dialect.shapes import same_shape
from binpoint.support.phases import Phase

SUM_BITS = 64
"""The accumulators of exact sums over images and pixels."""


@irdl_op_definition
class TrainingOp(ReadableOp):
    """What one mini-batch of training computes: declarations, then the operations of each phase in order.

    `numeric` is the network's numeric policy, from which passes take the formats of gradients and masters; `batch` the
    number of images, which the proofs of accumulators hold for.
    """

    name = "fx.training"
    symbol = prop_def(NameAttr)
    numeric = prop_def(NumericAttr)
    batch = prop_def(CountAttr)
    target = opt_prop_def(NameAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator())

    def phase(self, phase: Phase) -> list[Operation]:
        """The operations of one phase, in order."""
        return [op for each, op in self.steps() if each is phase]

    def steps(self) -> Iterator[tuple[Phase | None, Operation]]:
        """Every operation but the marks, with its phase; declarations have none."""
        phase = None
        for op in self.body.block.ops:
            if isinstance(op, PhaseOp):
                phase = op.phase.data
            else:
                yield phase, op

    def verify_(self) -> None:
        """Names are unique, phases in order, and the loss and the updates in theirs."""
        self._verify_names()
        found = [op.phase.data for op in self.body.block.ops if isinstance(op, PhaseOp)]
        if found != list(Phase)[: len(found)]:
            raise VerifyException(f"the phases are {', '.join(found)}, expected {', '.join(Phase)} in this order")
        for phase, op in self.steps():
            if isinstance(op, InputOp | ParameterOp) != (phase is None):
                raise VerifyException("inputs and parameters are declared before the phases, and nothing else is")
            if isinstance(op, SoftmaxCrossEntropyOp) != (phase is Phase.LOSS):
                raise VerifyException("the phase of the loss holds the loss alone")
            if isinstance(op, UpdateOp) != (phase is Phase.UPDATE):
                raise VerifyException("the phase of the update holds all updates and nothing else")
        losses = len(self.phase(Phase.LOSS))
        if Phase.LOSS in found and losses != 1:
            raise VerifyException(f"{losses} losses, expected one")

    def _verify_names(self) -> None:
        """What has a name of its own: inputs, parameters, kernels, sums and the loss."""
        named = InputOp | ParameterOp | KernelOp | ChannelSumsOp | SoftmaxCrossEntropyOp
        verify_names(op for op in self.body.block.ops if isinstance(op, named))


@irdl_op_definition
class PhaseOp(ReadableOp):
    """The mark where a phase begins: `fx.phase forward`."""

    name = "fx.phase"
    phase = prop_def(PhaseAttr)
    traits = traits_def(HasParent(TrainingOp))

    def print(self, printer: Printer) -> None:
        """Write the phase."""
        printer.print_string(" ")
        self.phase.print_value(printer)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read the phase. Raises ParseError."""
        location = location_here(parser)
        return cls.create(properties={"phase": PhaseAttr(PhaseAttr.parse_value(parser))}, location=location)


@irdl_op_definition
class ChannelSumsOp(ReadableOp):
    """Exact sums over images and pixels of each channel, one a term, read by the host: the moments of a batch.

    A term is a product of operands by number. Once proved, `needed` is the width that holds every sum.

    %bn1.sums = fx.channel_sums "bn1.sums" (%conv1) terms = [0, 0 * 0], needed = 29b : !fx.acc<2x16, 64b>
    """

    name = "fx.channel_sums"
    label = prop_def(NameAttr)
    terms = prop_def(TermsAttr)
    needed = opt_prop_def(BitsAttr)
    inputs = var_operand_def(FixedTensorType)
    result = result_def(AccumulatorType)
    traits = traits_def(HasParent(TrainingOp))

    def verify_(self) -> None:
        """Inputs of one shape, terms over them, 64 bits that hold every sum."""
        if not self.inputs:
            raise VerifyException("expected at least one feature map")
        channels = same_shape([map_shape(value) for value in self.inputs])[0]
        if not all(0 <= factor < len(self.inputs) for term in self.terms.data for factor in term):
            raise VerifyException(f"a term of operands that there are not: {len(self.inputs)} operands")
        check_sizes((len(self.terms.data), channels), sizes_of(self.result), "the result")
        needed = 0 if self.needed is None else self.needed.data
        if width(self.result) != SUM_BITS or needed > SUM_BITS:
            raise VerifyException(f"sums that need {needed} bits in {width(self.result)}, expected {SUM_BITS}")


TRAINING_OPS = [TrainingOp, PhaseOp, ChannelSumsOp]

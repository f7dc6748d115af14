"""The update of one parameter: masters, velocity, and the working copy that the next mini-batch computes with.

    fx.update "conv1.weight" (%conv1.weight, %conv1.weight.master, %conv1.weight.velocity) {
      %0 = fx.momentum (%conv1.weight.velocity, %conv1.weight.grad) momentum = 58982 * 2^-16 : !fx.acc<6x1x5x5, 63b>
      fx.stats (%0) acquires = [msb, lsb]
      %1 = fx.quantize (%0) rounding = half-even, exponent = <...> : !fx.tensor<6x1x5x5, 16b, exp = tensor>
      %2 = fx.descend (%conv1.weight.master, %1) : !fx.acc<6x1x5x5, 63b>
      fx.stats (%2) acquires = [msb, lsb]
      %3 = fx.quantize (%2) rounding = half-even, exponent = <...> : !fx.tensor<6x1x5x5, 16b, exp = tensor>
      %4 = fx.widen (%3) on_overflow = saturate : !fx.acc<6x1x5x5, 63b>
      fx.stats (%4) acquires = [msb, lsb]
      %5 = fx.quantize (%4) rounding = half-even, exponent = <...> : !fx.tensor<6x1x5x5, 8b, exp = tensor>
      fx.store (%5, %3, %1)
    }

Sums are exact at the finest exponent of their terms that the accumulators of 63 bits allow, so none overflows. The
learning rate is a fixed-point number that comes at run time.
"""

from __future__ import annotations

from abc import ABC

from xdsl.ir import Operation, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import HasParent, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.assembly import ReadableOp
from binpoint.dialect.attributes import ConstantAttr, NameAttr
from binpoint.dialect.fx_accumulate import WidenOp
from binpoint.dialect.fx_types import AccumulatorType, FixedTensorType, check_sizes, parameter_sizes, sizes_of, width
from binpoint.dialect.fx_values import QuantizeOp, StatsOp

UPDATE_BITS = 63
"""The accumulators of an update."""


class SumOp(ReadableOp, ABC):
    """A sum of parameters, some times constants, in accumulators of an update."""

    decay = opt_prop_def(ConstantAttr)
    result = result_def(AccumulatorType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        """All operands have the result's sizes; the accumulators those of an update."""
        for operand in self.operands:
            check_sizes(parameter_sizes(self.operands[0]), sizes_of(operand), "an operand")
        check_sizes(sizes_of(self.operands[0]), sizes_of(self.result), "the result")
        if width(self.result) != UPDATE_BITS:
            raise VerifyException(f"{width(self.result)}-bit accumulators, an update has {UPDATE_BITS}")


@irdl_op_definition
class MomentumOp(SumOp):
    """momentum * velocity + gradient, + decay * master with weight decay: the next velocity.

    %0 = fx.momentum (%v, %g, %w) decay = 33554 * 2^-26, momentum = 58982 * 2^-16 : !fx.acc<6x1x5x5, 63b>
    """

    name = "fx.momentum"
    momentum = prop_def(ConstantAttr)
    terms = var_operand_def(FixedTensorType)

    def verify_(self) -> None:
        """The master is read where there is a decay."""
        expected = 2 if self.decay is None else 3
        if len(self.terms) != expected:
            raise VerifyException(f"{len(self.terms)} operands, expected {expected}: velocity, gradient, master")
        super().verify_()


@irdl_op_definition
class DescendOp(SumOp):
    """master - rate * direction, - rate * decay * master with weight decay: the next master."""

    name = "fx.descend"
    master = operand_def(FixedTensorType)
    direction = operand_def(FixedTensorType)


@irdl_op_definition
class UpdateOp(ReadableOp):
    """SGD on one parameter. The operands are its places: working copy, master and, with momentum, velocity."""

    name = "fx.update"
    label = prop_def(NameAttr)
    places = var_operand_def(FixedTensorType)
    body = region_def("single_block")

    def steps(self) -> list[Operation]:
        """The operations of the body without statistics and the store."""
        return [op for op in self.body.block.ops if not isinstance(op, StatsOp | StoreOp)]

    @property
    def gradient(self) -> SSAValue:
        """The gradient of the parameter."""
        return self.steps()[0].operands[1]

    def verify_(self) -> None:
        """The body computes each place's next value from the ones before it and stores all of them."""
        if not isinstance(self.body.block.last_op, StoreOp):
            raise VerifyException("an update ends with fx.store")
        expected = self._expected()
        found = [type(op) for op in self.steps()]
        if found != expected:
            names = ", ".join(each.name for each in expected)
            raise VerifyException(f"the steps are {', '.join(op.name for op in self.steps())}, expected {names}")
        self._verify_chain(self.body.block.last_op)

    def _expected(self) -> list[type[Operation]]:
        """The steps of an update of so many places."""
        if len(self.places) not in (2, 3):
            raise VerifyException("expected a working copy, a master and, with momentum, a velocity")
        velocity = [MomentumOp, QuantizeOp] if len(self.places) == 3 else []
        return [*velocity, DescendOp, QuantizeOp, WidenOp, QuantizeOp]

    def _verify_chain(self, store: StoreOp) -> None:
        """Who reads what, who stores what."""
        steps = self.steps()
        master, copy = steps[-3].results[0], steps[-1].results[0]
        chain = [(steps[-4], self.places[1]), (steps[-3], steps[-4].results[0])]
        chain += [(steps[-2], master), (steps[-1], steps[-2].results[0])]
        stored = [copy, master]
        if len(self.places) == 3:
            velocity = steps[1].results[0]
            chain += [(steps[0], self.places[2]), (steps[1], steps[0].results[0])]
            _check_reads(steps[2], steps[2].operands[1], velocity)
            stored.append(velocity)
        for step, value in chain:
            _check_reads(step, step.operands[0], value)
        if list(store.values) != stored:
            raise VerifyException("fx.store takes the next working copy, master and velocity")
        for place, value in zip(self.places, stored, strict=True):
            if place.type != value.type:
                raise VerifyException(f"stores {value.type} where {place.type} is")
        if len({step.rounding for step in steps if isinstance(step, QuantizeOp)}) > 1:
            raise VerifyException("an update rounds everything alike")


def _check_reads(step: Operation, found: SSAValue, expected: SSAValue) -> None:
    if found is not expected:
        raise VerifyException(f"{step.name} does not read what comes before it")


@irdl_op_definition
class StoreOp(ReadableOp):
    """What the places of an update hold from now on, in their order."""

    name = "fx.store"
    values = var_operand_def(FixedTensorType)
    traits = traits_def(IsTerminator(), HasParent(UpdateOp))


UPDATE_OPS = [UpdateOp, MomentumOp, DescendOp, StoreOp]

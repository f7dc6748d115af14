"""The structure of the fx dialect: the program, its inputs and parameters, its kernels, what leaves it."""

from __future__ import annotations

from itertools import pairwise

from xdsl.ir import Operation
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
from xdsl.traits import HasParent, IsolatedFromAbove, IsTerminator
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.assembly import ReadableOp, verify_names
from binpoint.dialect.attributes import NameAttr, NamesAttr
from binpoint.dialect.block_attributes import BlocksAttr
from binpoint.dialect.fx_accumulate import AccumulateOp
from binpoint.dialect.fx_types import FixedTensorType, map_shape, parameter_sizes
from binpoint.dialect.fx_values import ActivationOp, BiasOp, ExactOp, QuantizeOp, StatsOp
from binpoint.dialect.groups import PixelInput
from binpoint.dialect.policies import PolicyAttr


@irdl_op_definition
class ProgramOp(ReadableOp):
    """A network in fixed point: inputs, parameters and kernels in data-flow order.

    fx.program @lenet target = "dlu2048" { ... }
    """

    name = "fx.program"
    symbol = prop_def(NameAttr)
    target = opt_prop_def(NameAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove())

    def verify_(self) -> None:
        """Inputs, parameters and kernels have names of their own."""
        verify_names(self.body.block.ops)


@irdl_op_definition
class InputOp(PixelInput, ReadableOp):
    """An input of the program; `exponent` says how its exponent is found, `blocks` how each block finds its own.

    %image = fx.input "image" scale = 1/255, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]>
             : !fx.tensor<?x1x28x28, 8b, exp = tensor>
    """

    name = "fx.input"
    label = prop_def(NameAttr)
    exponent = prop_def(PolicyAttr)
    blocks = opt_prop_def(BlocksAttr)
    result = result_def(FixedTensorType)

    def verify_(self) -> None:
        """The result is a feature map that mean and deviation fit."""
        self.check_pixels(map_shape(self.result)[0])


@irdl_op_definition
class ParameterOp(ReadableOp):
    """A parameter by its final name; `exponent` says how its exponent is found.

    %conv1.weight = fx.parameter "conv1.weight" exponent = <msb-max, r_max = 0, range = [-128, 127]>
                    : !fx.tensor<6x1x5x5, 8b, exp = tensor>
    """

    name = "fx.parameter"
    label = prop_def(NameAttr)
    exponent = prop_def(PolicyAttr)
    result = result_def(FixedTensorType)

    def verify_(self) -> None:
        """The result is a parameter."""
        parameter_sizes(self.result)


@irdl_op_definition
class KernelOp(ReadableOp):
    """What a PE computes for one layer without leaving it: accumulate, bias, activation, statistics, quantise.

    Or one exact operation. `layers` are the layers of the network file that are fused in it.

    %conv1 = fx.kernel "conv1" layers = ["conv1", "relu1"] { ... } : !fx.tensor<?x6x24x24, 8b, exp = tensor>
    """

    name = "fx.kernel"
    label = prop_def(NameAttr)
    layers = prop_def(NamesAttr)
    body = region_def("single_block")
    result = result_def(FixedTensorType)

    def steps(self) -> list[Operation]:
        """The operations of the body without the yield."""
        return list(self.body.block.ops)[:-1]

    def verify_(self) -> None:
        """The body is one chain in the order of the PE, and yields its end."""
        steps, end = self.steps(), self.body.block.last_op
        if not isinstance(end, YieldOp) or not steps:
            raise VerifyException("a kernel computes something and ends with fx.yield")
        _verify_order(steps)
        _verify_chain(steps, end)
        if end.value.type != self.result.type:
            raise VerifyException(f"yields {end.value.type}, expected {self.result.type}")


STAGES = (AccumulateOp, BiasOp, ActivationOp, StatsOp, QuantizeOp)
"""The stages of a PE, in order. The first and the last are in every kernel that is not exact."""


def _verify_order(steps: list[Operation]) -> None:
    if isinstance(steps[0], ExactOp):
        if len(steps) > 1:
            raise VerifyException("an exact operation is a kernel of its own")
        return
    stages = [_stage(step) for step in steps]
    if any(after <= before for before, after in pairwise(stages)):
        raise VerifyException(f"the steps {', '.join(step.name for step in steps)} are not in the order of a PE")
    if stages[0] != 0 or stages[-1] != len(STAGES) - 1:
        raise VerifyException("a kernel accumulates first and quantises last")


def _stage(step: Operation) -> int:
    for number, stage in enumerate(STAGES):
        if isinstance(step, stage):
            return number
    raise VerifyException(f"{step.name} is no step of a kernel")


def _verify_chain(steps: list[Operation], end: Operation) -> None:
    """Each step reads the one before it."""
    value = steps[0].results[0]
    for step in [*steps[1:], end]:
        if step.operands[0] is not value:
            raise VerifyException(f"{step.name} does not read the step before it")
        if step.results:
            value = step.results[0]


@irdl_op_definition
class YieldOp(ReadableOp):
    """The result of a kernel: `fx.yield (%3)`."""

    name = "fx.yield"
    value = operand_def(FixedTensorType)
    traits = traits_def(IsTerminator(), HasParent(KernelOp))


@irdl_op_definition
class OutputOp(ReadableOp):
    """What leaves the program: `fx.output (%fc2)`."""

    name = "fx.output"
    values = var_operand_def(FixedTensorType)
    traits = traits_def(IsTerminator(), HasParent(ProgramOp))

    def verify_(self) -> None:
        """At least one feature map leaves."""
        if not self.values:
            raise VerifyException("a program has at least one output")
        for value in self.values:
            map_shape(value)


PROGRAM_OPS = [ProgramOp, InputOp, ParameterOp, KernelOp, YieldOp, OutputOp]

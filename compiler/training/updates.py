"""The update of every parameter that has a gradient: its master, its velocity and the steps of SGD."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from binpoint.compiler.formats import Formats
from binpoint.dialect.assembly import value_name
from binpoint.dialect.attributes import ConstantAttr, NameAttr
from binpoint.dialect.fx_accumulate import WidenOp
from binpoint.dialect.fx_program import ParameterOp
from binpoint.dialect.fx_types import FixedTensorType, fixed_parameter, parameter_accumulator, parameter_sizes
from binpoint.dialect.fx_update import UPDATE_BITS, DescendOp, MomentumOp, StoreOp, UpdateOp
from binpoint.dialect.fx_values import QuantizeOp
from binpoint.dialect.policies import RoundingAttr
from binpoint.support.numeric import NumericPolicy, TensorClass, fixed_constant

CONSTANT_BITS = 16
"""The width of the multipliers of momentum, weight decay and learning rate."""

FILTER_DIMENSIONS = 4
"""Weights have four dimensions; biases, gamma and beta, which do not decay, have one."""


Properties = dict[str, Attribute]


@dataclass(frozen=True)
class Optimizer:
    """SGD: v' = momentum * v + g + decay * w, w' = w - rate * v'. Without momentum there is no velocity."""

    momentum: Fraction = Fraction(0)
    decay: Fraction = Fraction(0)


class Updates(Formats):
    """Makes declarations and updates in the formats of a network."""

    def __init__(self, numeric: NumericPolicy, optimizer: Optimizer) -> None:
        super().__init__(numeric, UPDATE_BITS, accumulator_wraps=False)
        self.momentum, self.decay = _constant(optimizer.momentum), _constant(optimizer.decay)

    def declare(self, parameter: ParameterOp) -> list[ParameterOp]:
        """What a parameter has besides its working copy: the master and, with momentum, the velocity."""
        parts = ["master", *(["velocity"] if self.momentum is not None else [])]
        return [self._declare(parameter, f"{parameter.label.data}.{part}") for part in parts]

    def _declare(self, parameter: ParameterOp, name: str) -> ParameterOp:
        policy, tensor_class = self.policy(parameter), TensorClass.MASTER_WEIGHTS
        assert isinstance(parameter.result.type, FixedTensorType)
        granularity = parameter.result.type.granularity.data
        bits = self.bits(policy, tensor_class, parameter)
        declared = ParameterOp.create(
            result_types=[fixed_parameter(parameter_sizes(parameter.result), bits, granularity)],
            properties={
                "label": NameAttr(name),
                "exponent": self.exponent(parameter, policy, policy.update_for(tensor_class), (name,)),
            },
            location=parameter.location,
        )
        declared.result.name_hint = value_name(name)
        return declared

    def update(self, parameter: ParameterOp, declared: list[ParameterOp], gradient: SSAValue) -> UpdateOp:
        """The steps of one parameter.

        Args:
            parameter: the working copy.
            declared: what `declare` gave for it.
            gradient: its gradient.
        """
        steps = _Steps(parameter, RoundingAttr(self.policy(parameter).rounding))
        master, decay = declared[0], self._decay(parameter)
        stored: list[SSAValue] = []
        direction = gradient
        if self.momentum is not None:
            velocity, decayed = declared[1], [master.result] if decay else []
            momentum = {"momentum": self.momentum, **decay}
            direction = steps.next(velocity, MomentumOp, [velocity.result, gradient, *decayed], momentum)
            # The velocity holds the decay from here on.
            stored, decay = [direction], {}
        moved = steps.next(master, DescendOp, [master.result, direction], decay)
        copy = steps.next(parameter, WidenOp, [moved], {"on_overflow": self.on_overflow})
        steps.add(StoreOp.create(operands=[copy, moved, *stored]))
        return UpdateOp.create(
            operands=[place.result for place in (parameter, *declared)],
            properties={"label": parameter.label},
            regions=[Region(Block(steps.operations))],
            location=parameter.location,
        )

    def _decay(self, parameter: ParameterOp) -> Properties:
        """The property of a step that lets weights decay; none for other parameters."""
        if self.decay is None or len(parameter_sizes(parameter.result)) != FILTER_DIMENSIONS:
            return {}
        return {"decay": self.decay}

    def policy(self, parameter: ParameterOp) -> NumericPolicy:
        """The policy of the layer whose parameter it is."""
        return self.numeric.for_layer(parameter.label.data.rpartition(".")[0])


class _Steps:
    """The steps of one update under construction."""

    def __init__(self, parameter: ParameterOp, rounding: RoundingAttr) -> None:
        self.operations: list[Operation] = []
        self._location, self._rounding = parameter.location, rounding
        self._accumulators = parameter_accumulator(parameter_sizes(parameter.result), UPDATE_BITS)

    def next(
        self, place: ParameterOp, operation: type[Operation], operands: list[SSAValue], properties: Properties
    ) -> SSAValue:
        """What a place holds next: an exact sum, rounded to the place's format."""
        accumulated = operation.create(operands=operands, result_types=[self._accumulators], properties=properties)
        quantized = QuantizeOp.create(
            operands=[self.add(accumulated).results[0]],
            result_types=[place.result.type],
            properties={"rounding": self._rounding, "exponent": place.exponent},
        )
        quantized.results[0].name_hint = value_name(f"{place.label.data}.next")
        return self.add(quantized).results[0]

    def add(self, operation: Operation) -> Operation:
        """Append an operation."""
        operation.location = self._location
        self.operations.append(operation)
        return operation


def _constant(value: Fraction) -> ConstantAttr | None:
    """The nearest constant; None for 0."""
    return None if value == 0 else ConstantAttr(fixed_constant(value, CONSTANT_BITS))

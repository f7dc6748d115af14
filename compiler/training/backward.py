"""The backward phase under construction: which feature maps get a gradient, who adds up, how kernels are made.

A feature map needs a gradient if a trained parameter lies before it and the loss behind it, so inputs get none. Each
kernel that reads it hands it one; where several do, an `fx.add` kernel sums them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from binpoint.compiler.formats import Formats
from binpoint.dialect.assembly import value_name
from binpoint.dialect.attributes import NameAttr
from binpoint.dialect.fx_accumulate import AccumulateOp, AddOp
from binpoint.dialect.fx_host import BatchNormOp
from binpoint.dialect.fx_program import InputOp, KernelOp, ParameterOp, YieldOp
from binpoint.dialect.fx_types import (
    FixedTensorType,
    accumulator,
    fixed_feature_map,
    fixed_parameter,
    map_shape,
    parameter_accumulator,
    parameter_sizes,
)
from binpoint.dialect.fx_values import BiasOp, ExactOp, QuantizeOp
from binpoint.dialect.policies import RoundingAttr
from binpoint.support.numeric import Granularity, NumericPolicy, TensorClass

Properties = Mapping[str, Attribute]


class Backward(Formats):
    """The operations so far, and the gradients that feature maps have been handed.

    Args:
        numeric: the network's policy.
        accumulator_bits: the width where the policy names none.
        accumulator_wraps: whether accumulators wrap instead of saturating.
        kernels: the forward kernels, in order.
        logits: what the loss reads.
    """

    def __init__(
        self,
        numeric: NumericPolicy,
        accumulator_bits: int,
        accumulator_wraps: bool,
        kernels: Sequence[KernelOp],
        logits: SSAValue,
    ) -> None:
        super().__init__(numeric, accumulator_bits, accumulator_wraps)
        self.operations: list[Operation] = []
        self._trained = _behind_parameters(kernels)
        self._readers = _readers(kernels, logits)
        self._handed: dict[SSAValue, list[SSAValue]] = defaultdict(list)
        self._labels: set[str] = set()

    def wants(self, value: SSAValue) -> bool:
        """Whether a feature map that the loss depends on needs a gradient."""
        return value in self._trained

    def reached(self, value: SSAValue) -> bool:
        """Whether a feature map has been handed a gradient."""
        return bool(self._handed[value])

    def label(self, value: SSAValue, reader: str) -> str:
        """What the gradient that a reader hands to a feature map is called: `pool1.grad`, or `pool1.grad.conv2`."""
        name = f"{name_of(value)}.grad"
        if self._readers[value] > 1:
            name = f"{name}.{reader}"
        free, number = name, 1
        while free in self._labels:
            number += 1
            free = f"{name}.{number}"
        self._labels.add(free)
        return free

    def hand(self, value: SSAValue, gradient: SSAValue) -> None:
        """Give a feature map a gradient, one of as many as it has readers."""
        self._handed[value].append(gradient)

    def total(self, kernel: KernelOp) -> SSAValue:
        """The gradient of a kernel's result: the one that it was handed, or the sum of all."""
        handed = self._handed[kernel.result]
        if len(handed) == 1:
            return handed[0]
        return self.feature_map(kernel.result, f"{name_of(kernel.result)}.grad", kernel, AddOp, handed)

    def exact(
        self,
        of: SSAValue,
        label: str,
        source: KernelOp,
        operation: type[ExactOp],
        operands: list[SSAValue],
        properties: Properties | None = None,
    ) -> SSAValue:
        """A kernel that only moves or selects mantissas of its last operand; the result has the shape of `of`."""
        type_ = operands[-1].type
        assert isinstance(type_, FixedTensorType)
        result = fixed_feature_map(map_shape(of), type_.bits.data, type_.granularity.data)
        step = operation.create(
            operands=operands, result_types=[result], properties=properties or {}, location=source.location
        )
        return self._kernel(label, source, [step])

    def feature_map(
        self,
        of: SSAValue,
        label: str,
        source: KernelOp,
        operation: type[AccumulateOp],
        operands: list[SSAValue],
        properties: Properties | None = None,
        bias: SSAValue | None = None,
    ) -> SSAValue:
        """A kernel that accumulates and quantises the gradient of a feature map.

        Args:
            of: the feature map; the gradient has its shape, and the format that its layer says.
            label: the gradient's name.
            source: the forward kernel that is differentiated.
            operation: what accumulates.
            operands: its operands.
            properties: its properties.
            bias: what is added to each channel.
        """
        assert isinstance(of.owner, KernelOp)
        policy, tensor_class, shape = self.policy(of.owner), TensorClass.GRADIENTS, map_shape(of)
        accumulators = accumulator(shape, self.bits(policy, TensorClass.ACCUMULATORS, source))
        result = fixed_feature_map(shape, self.bits(policy, tensor_class, source), Granularity())
        steps = [self._accumulate(label, source, operation, operands, accumulators, properties)]
        if bias is not None:
            biased = BiasOp.create(operands=[steps[0].results[0], bias], result_types=[accumulators])
            biased.result.name_hint = value_name(f"{label}.biased")
            steps.append(biased)
        steps.append(self._quantize(label, source, steps[-1].results[0], result, policy, tensor_class))
        return self._kernel(label, source, steps)

    def parameter(
        self,
        parameter: SSAValue,
        source: KernelOp,
        operation: type[AccumulateOp],
        operands: list[SSAValue],
        properties: Properties | None = None,
    ) -> SSAValue:
        """A kernel that accumulates and quantises the gradient of a parameter."""
        label = f"{parameter_name(parameter)}.grad"
        policy, tensor_class = self.policy_of_parameter(parameter), TensorClass.WEIGHT_GRADIENTS
        sizes = parameter_sizes(parameter)
        accumulators = parameter_accumulator(sizes, self.bits(policy, TensorClass.ACCUMULATORS, source))
        assert isinstance(parameter.type, FixedTensorType)
        granularity = parameter.type.granularity.data
        result = fixed_parameter(sizes, self.bits(policy, tensor_class, source), granularity)
        step = self._accumulate(label, source, operation, operands, accumulators, properties)
        steps = [step, self._quantize(label, source, step.results[0], result, policy, tensor_class)]
        return self._kernel(label, source, steps)

    def policy(self, kernel: KernelOp) -> NumericPolicy:
        """The policy of a kernel's result: that of the last of its layers that has one."""
        named = [name for name in kernel.layers.data if name in self.numeric.overrides]
        return self.numeric.for_layer(named[-1]) if named else self.numeric

    def policy_of_parameter(self, parameter: SSAValue) -> NumericPolicy:
        """The policy of the layer whose parameter it is."""
        return self.numeric.for_layer(parameter_name(parameter).rpartition(".")[0])

    def _accumulate(
        self,
        label: str,
        source: KernelOp,
        operation: type[AccumulateOp],
        operands: list[SSAValue],
        accumulators: Attribute,
        properties: Properties | None,
    ) -> Operation:
        step = operation.create(
            operands=operands,
            result_types=[accumulators],
            properties={"on_overflow": self.on_overflow, **(properties or {})},
            location=source.location,
        )
        step.result.name_hint = value_name(f"{label}.acc")
        return step

    def _quantize(
        self,
        label: str,
        source: KernelOp,
        accumulators: SSAValue,
        result: Attribute,
        policy: NumericPolicy,
        tensor_class: TensorClass,
    ) -> Operation:
        properties: Properties = {
            "rounding": RoundingAttr(policy.rounding),
            "exponent": self.exponent(source, policy, policy.update_for(tensor_class), (label,)),
        }
        return QuantizeOp.create(
            operands=[accumulators], result_types=[result], properties=properties, location=source.location
        )

    def _kernel(self, label: str, source: KernelOp, steps: list[Operation]) -> SSAValue:
        end = steps[-1].results[0]
        end.name_hint = value_name(f"{label}.out")
        kernel = KernelOp.create(
            result_types=[end.type],
            properties={"label": NameAttr(label), "layers": source.layers},
            regions=[Region(Block([*steps, YieldOp.create(operands=[end])]))],
            location=source.location,
        )
        kernel.result.name_hint = value_name(label)
        self.operations.append(kernel)
        return kernel.result


def name_of(value: SSAValue) -> str:
    """The name of a feature map, that of its kernel or input."""
    assert isinstance(value.owner, KernelOp | InputOp)
    return value.owner.label.data


def parameter_name(value: SSAValue) -> str:
    """The name of a parameter."""
    assert isinstance(value.owner, ParameterOp)
    return value.owner.label.data


def feature_maps_of(kernel: KernelOp) -> list[SSAValue]:
    """The feature maps that a kernel reads, once for each time that it reads them."""
    first = kernel.steps()[0]
    return [operand for operand in first.operands if isinstance(operand.owner, KernelOp | InputOp)]


def _behind_parameters(kernels: Sequence[KernelOp]) -> set[SSAValue]:
    """The results of kernels that depend on a parameter, their own or one before."""
    found: set[SSAValue] = set()
    for kernel in kernels:
        read = [operand for step in kernel.steps() for operand in step.operands]
        if any(operand in found or isinstance(operand.owner, ParameterOp | BatchNormOp) for operand in read):
            found.add(kernel.result)
    return found


def _readers(kernels: Sequence[KernelOp], logits: SSAValue) -> Counter[SSAValue]:
    """How often each feature map is read on the way to the loss."""
    readers = Counter([logits])
    for kernel in reversed(kernels):
        if readers[kernel.result]:
            readers.update(feature_maps_of(kernel))
    return readers

"""The gradient of every kernel: one rule a first step, in the table at the end.

A rule gets the kernel, its first step and dy, the gradient of what that step accumulates; it makes the kernels of the
gradients of parameters and of those feature maps that want one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Operation, SSAValue

from binpoint.compiler.training.backward import Backward, Properties
from binpoint.dialect import fx_accumulate, fx_gradients, fx_values
from binpoint.dialect.assembly import location_of, value_name
from binpoint.dialect.attributes import NameAttr
from binpoint.dialect.fx_accumulate import AccumulateOp
from binpoint.dialect.fx_attributes import ChannelAttr, TermsAttr
from binpoint.dialect.fx_host import BACKWARD_TERMS, BATCH_NORM_GRADIENTS, MOMENTS, BatchNormGradientOp, BatchNormOp
from binpoint.dialect.fx_program import KernelOp
from binpoint.dialect.fx_training import SUM_BITS, ChannelSumsOp
from binpoint.dialect.fx_types import fixed_parameter, map_shape, parameter_accumulator, sizes_of, width
from binpoint.support.diagnostics import user_error
from binpoint.support.numeric import Granularity, TensorClass


def differentiate_kernel(backward: Backward, kernel: KernelOp) -> None:
    """Add the kernels of all gradients that follow from that of a kernel's result.

    Raises:
        UserError: an operation without a gradient.
    """
    first = kernel.steps()[0]
    rule = RULES.get(type(first))
    if rule is None:
        raise user_error(
            "no-gradient",
            f'"{kernel.label.data}" cannot be trained through: {first.name} has no gradient',
            location=location_of(first),
            hint="softmax as the last layer is part of the loss"
            if isinstance(first, fx_accumulate.SoftmaxOp)
            else None,
        )
    gradient = backward.total(kernel)
    activation = next((step for step in kernel.steps() if isinstance(step, fx_values.ActivationOp)), None)
    if activation is not None:
        gradient = _activation(backward, kernel, activation, gradient)
    rule(backward, kernel, first, gradient)


def _activation(backward: Backward, kernel: KernelOp, op: fx_values.ActivationOp, dy: SSAValue) -> SSAValue:
    """The gradient of the accumulators before the activation, from the stored output."""
    first = kernel.steps()[0]
    if isinstance(first, fx_accumulate.WidenOp):
        # The accumulators are the input: no other step stands between.
        label = backward.label(first.input, kernel.label.data)
    else:
        label = f"{kernel.label.data}.acc.grad"
    of, operands = kernel.result, [kernel.result, dy]
    match op:
        case fx_values.LeakyReluOp():
            operation, slope = fx_gradients.LeakyReluGradientOp, {"slope": op.slope}
            return backward.feature_map(of, label, kernel, operation, operands, slope)
        case fx_values.ClipOp():
            return backward.exact(of, label, kernel, fx_gradients.ClipGradientOp, operands, {"limit": op.limit})
        case _:
            return backward.exact(of, label, kernel, fx_gradients.ReluGradientOp, operands)


def _convolution(backward: Backward, kernel: KernelOp, op: fx_accumulate.Conv2dOp, dy: SSAValue) -> None:
    window = _shared(op, WINDOW)
    _bias(backward, kernel, dy)
    backward.parameter(op.weight, kernel, fx_gradients.Conv2dWeightGradientOp, [op.input, dy], window)
    if backward.wants(op.input):
        _pass_on(backward, kernel, op.input, fx_gradients.Conv2dDataGradientOp, [dy, op.weight], window)


def _linear(backward: Backward, kernel: KernelOp, op: fx_accumulate.LinearOp, dy: SSAValue) -> None:
    _bias(backward, kernel, dy)
    backward.parameter(op.weight, kernel, fx_gradients.LinearWeightGradientOp, [op.input, dy])
    if backward.wants(op.input):
        _pass_on(backward, kernel, op.input, fx_gradients.LinearDataGradientOp, [dy, op.weight])


def _bias(backward: Backward, kernel: KernelOp, dy: SSAValue) -> None:
    for step in kernel.steps():
        if isinstance(step, fx_values.BiasOp):
            backward.parameter(step.bias, kernel, fx_gradients.BiasGradientOp, [dy])


def _average_pool(backward: Backward, kernel: KernelOp, op: fx_accumulate.AveragePoolOp, dy: SSAValue) -> None:
    properties = _shared(op, (*WINDOW, "include_padding", "constants", "reciprocals"))
    _pass_on(backward, kernel, op.input, fx_gradients.AveragePoolGradientOp, [dy], properties)


def _max_pool(backward: Backward, kernel: KernelOp, op: fx_values.MaxPoolOp, dy: SSAValue) -> None:
    _pass_on(backward, kernel, op.input, fx_gradients.MaxPoolGradientOp, [op.input, dy], _shared(op, WINDOW))


def _resize(backward: Backward, kernel: KernelOp, op: fx_values.ResizeOp, dy: SSAValue) -> None:
    _pass_on(backward, kernel, op.input, fx_gradients.ResizeGradientOp, [dy])


def _reshape(backward: Backward, kernel: KernelOp, op: fx_values.ReshapeOp, dy: SSAValue) -> None:
    label = backward.label(op.input, kernel.label.data)
    backward.hand(op.input, backward.exact(op.input, label, kernel, fx_values.ReshapeOp, [dy]))


def _add(backward: Backward, kernel: KernelOp, op: fx_accumulate.AddOp, dy: SSAValue) -> None:
    """Every operand takes dy as it is."""
    for value in op.inputs:
        if backward.wants(value):
            backward.hand(value, dy)


def _concat(backward: Backward, kernel: KernelOp, op: fx_accumulate.ConcatOp, dy: SSAValue) -> None:
    first = 0
    for value in op.inputs:
        if backward.wants(value):
            label, properties = backward.label(value, kernel.label.data), {"first": ChannelAttr(first)}
            part = backward.exact(value, label, kernel, fx_gradients.ChannelSliceOp, [dy], properties)
            backward.hand(value, part)
        first += map_shape(value)[0]


def _widen(backward: Backward, kernel: KernelOp, op: fx_accumulate.WidenOp, dy: SSAValue) -> None:
    """The gradient of the activation is that of the input."""
    backward.hand(op.input, dy)


def _sigmoid(backward: Backward, kernel: KernelOp, op: fx_accumulate.SigmoidOp, dy: SSAValue) -> None:
    _pass_on(backward, kernel, op.input, fx_gradients.SigmoidGradientOp, [kernel.result, dy])


def _channel_affine(backward: Backward, kernel: KernelOp, op: fx_gradients.ChannelAffineOp, dy: SSAValue) -> None:
    """Batch normalisation: exact sums -> gradients of gamma and beta, and coefficients -> an affine kernel."""
    forward = op.weight.owner
    if not isinstance(forward, BatchNormOp) or len(op.inputs) != 1:
        raise user_error(
            "no-gradient",
            f'"{kernel.label.data}" is no batch normalisation: the host does not compute its coefficients',
            location=location_of(op),
        )
    source, name = op.inputs[0], forward.label.data
    sums = ChannelSumsOp.create(
        operands=[source, dy],
        result_types=[parameter_accumulator((MOMENTS, map_shape(source)[0]), SUM_BITS)],
        properties={"label": NameAttr(f"{name}.grad.sums"), "terms": TermsAttr(BACKWARD_TERMS)},
        location=kernel.location,
    )
    sums.result.name_hint = value_name(f"{name}.grad.sums")
    host = _host_gradient(backward, forward, sums.result)
    backward.operations += [sums, host]
    if backward.wants(source):
        operands = [dy, source, host.scale]
        _pass_on(backward, kernel, source, fx_gradients.ChannelAffineOp, operands, bias=host.shift)


def _pass_on(
    backward: Backward,
    kernel: KernelOp,
    value: SSAValue,
    operation: type[AccumulateOp],
    operands: list[SSAValue],
    properties: Properties | None = None,
    bias: SSAValue | None = None,
) -> None:
    """Hand the kernel's input a gradient that is accumulated."""
    label = backward.label(value, kernel.label.data)
    backward.hand(value, backward.feature_map(value, label, kernel, operation, operands, properties, bias))


def _shared(op: Operation, names: tuple[str, ...]) -> Properties:
    """The properties that an operation shares with its gradients."""
    return {name: op.properties[name] for name in names if name in op.properties}


def _host_gradient(backward: Backward, forward: BatchNormOp, sums: SSAValue) -> BatchNormGradientOp:
    """What the host computes backwards, in the formats of its forward coefficients and of gradients of parameters."""
    channels = sizes_of(sums)[1]
    policy = backward.policy_of_parameter(forward.gamma)
    bits = backward.bits(policy, TensorClass.WEIGHT_GRADIENTS, forward)
    gradient = fixed_parameter((channels,), bits, Granularity())
    update = policy.update_for(TensorClass.WEIGHT_GRADIENTS)
    host = BatchNormGradientOp.create(
        operands=[forward.sums, sums, forward.gamma],
        result_types=[
            fixed_parameter((2, channels, 1, 1), width(forward.scale), Granularity()),
            forward.shift.type,
            gradient,
            gradient,
        ],
        properties={
            "label": forward.label,
            "float64": UnitAttr(),
            "epsilon": forward.epsilon,
            "exponent": forward.exponent,
            "gradient_exponent": backward.exponent(forward, policy, update, ()),
        },
        location=forward.location,
    )
    for result, part in zip(host.results, BATCH_NORM_GRADIENTS, strict=True):
        result.name_hint = value_name(f"{forward.label.data}.{part}")
    return host


WINDOW = ("kernel", "stride", "padding", "dilation", "groups")
"""The properties of an operation over windows, whatever of them it has."""

Rule = Callable[[Backward, KernelOp, Any, SSAValue], None]

RULES: Mapping[type[Operation], Rule] = {
    fx_accumulate.Conv2dOp: _convolution,
    fx_accumulate.LinearOp: _linear,
    fx_accumulate.AveragePoolOp: _average_pool,
    fx_accumulate.AddOp: _add,
    fx_accumulate.ConcatOp: _concat,
    fx_accumulate.WidenOp: _widen,
    fx_accumulate.SigmoidOp: _sigmoid,
    fx_gradients.ChannelAffineOp: _channel_affine,
    fx_values.MaxPoolOp: _max_pool,
    fx_values.ResizeOp: _resize,
    fx_values.ReshapeOp: _reshape,
}
"""How gradients pass each operation. A kernel is only differentiated if a trained parameter lies before or in it."""

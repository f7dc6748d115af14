"""The lowering of one network to fixed point: which format every tensor gets, which operations each layer becomes.

The table at the end names the function of every layer. A function adds operations to the program and returns
the layer's result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.utils.exceptions import VerifyException

from binpoint.backends.kernel import reciprocal_constants
from binpoint.compiler.formats import Formats
from binpoint.dialect import fx_accumulate, fx_program, fx_values, nn_layers
from binpoint.dialect.assembly import location_of, value_name
from binpoint.dialect.attributes import BitsAttr, ConstantAttr, CountAttr, NameAttr, NamesAttr, PaddingAttr, PairAttr
from binpoint.dialect.block_attributes import BlocksAttr
from binpoint.dialect.fx_attributes import ReciprocalsAttr
from binpoint.dialect.fx_types import (
    FixedTensorType,
    accumulator,
    fixed_feature_map,
    fixed_parameter,
    map_shape,
)
from binpoint.dialect.groups import Windowed
from binpoint.dialect.nn_network import NetworkOp, OutputOp
from binpoint.dialect.nn_types import feature_map_shape, parameter_shape
from binpoint.dialect.policies import RoundingAttr
from binpoint.dialect.shapes import Pair, Shape, window_divisors
from binpoint.support.blocks import BlockMove, ReshapeMove, pool_move, reshape_move, resize_move, strided
from binpoint.support.diagnostics import user_error
from binpoint.support.numeric import (
    PARAMETER_UPDATE,
    FixedConstant,
    Granularity,
    NumericPolicy,
    TensorClass,
    UpdatePolicy,
    fixed_constant,
)

Properties = dict[str, Attribute]
OpT = TypeVar("OpT", bound=IRDLOperation)


def build_program(network: NetworkOp, accumulator_bits: int, accumulator_wraps: bool, target: str | None) -> Operation:
    """The `fx.program` of a network.

    Args:
        network: a network without losses and batch normalisations.
        accumulator_bits: the width where the network's policy names none.
        accumulator_wraps: whether accumulators wrap instead of saturating.
        target: the target's name, to be shown.

    Raises:
        UserError: a layer that has no fixed-point form, a width that no type has.
    """
    lowering = Lowering(network.numeric.data, accumulator_bits, accumulator_wraps)
    for op in network.body.block.ops:
        if isinstance(op, nn_layers.InputOp):
            lowering.values[op.result] = lowering.input(op)
        elif isinstance(op, nn_layers.LayerOp):
            lowering.values[op.result] = lowering.layer(op)
        elif isinstance(op, OutputOp):
            lowering.add(fx_program.OutputOp, [lowering.values[value] for value in op.values])
    properties: Properties = {"symbol": network.symbol}
    if target is not None:
        properties["target"] = NameAttr(target)
    body = Region(Block(lowering.operations))
    return fx_program.ProgramOp.create(properties=properties, regions=[body], location=network.location)


class Lowering(Formats):
    """The program so far and the formats of its tensors."""

    def __init__(self, numeric: NumericPolicy, accumulator_bits: int, accumulator_wraps: bool) -> None:
        super().__init__(numeric, accumulator_bits, accumulator_wraps)
        self.values: dict[SSAValue, SSAValue] = {}
        self.operations: list[Operation] = []

    def add(
        self,
        operation: type[OpT],
        operands: list[SSAValue],
        result: Attribute | None = None,
        properties: Properties | None = None,
        source: Operation | None = None,
        name: str | None = None,
    ) -> OpT:
        """Append an operation, with the place of the layer that it comes from and a name for its result."""
        op = operation.create(
            operands=operands,
            result_types=[] if result is None else [result],
            properties=properties or {},
            location=None if source is None else source.location,
        )
        if name is not None:
            op.results[0].name_hint = value_name(name)
        self.operations.append(op)
        return op

    def policy(self, op: nn_layers.LayerOp) -> NumericPolicy:
        """The policy of a layer's result: that of the first of its names that has one.

        An activation without one follows the layer that it reads, into which it is going to be fused.
        """
        for name in op.layers:
            if name in self.numeric.overrides:
                return self.numeric.overrides[name]
        producer = op.operands[0].owner
        if isinstance(op, ACTIVATIONS) and isinstance(producer, nn_layers.LayerOp):
            return self.policy(producer)
        return self.numeric

    def input(self, op: nn_layers.InputOp) -> SSAValue:
        """An input in the format of activations."""
        name = op.label.data
        policy = self.numeric.for_layer(name)
        bits = self.bits(policy, TensorClass.ACTIVATIONS, op)
        update = policy.update_for(TensorClass.ACTIVATIONS)
        properties = dict(op.properties) | {"exponent": self.exponent(op, policy, update, (name,))}
        if policy.blocks is not None:
            properties["blocks"] = BlocksAttr(self.block_policy(op, policy))
        type_ = fixed_feature_map(feature_map_shape(op.result), bits, self.granularity)
        return self.add(fx_program.InputOp, [], type_, properties, op, name).result

    def layer(self, op: nn_layers.LayerOp) -> SSAValue:
        """A layer by the table. Raises UserError for one that must have been rewritten before."""
        function = LOWERINGS.get(type(op))
        if function is None:
            raise user_error(
                "not-lowered",
                f'{op.name} "{op.label.data}" has no fixed-point form',
                location=location_of(op),
                hint="run strip-loss and fold-batch-norm before lower-nn-to-fx",
            )
        try:
            return function(self, op)
        except VerifyException as error:
            message = f'{op.name} "{op.label.data}": {error}'
            raise user_error("not-lowered", message, location=location_of(op)) from None

    def parameter_update(self, policy: NumericPolicy, tensor_class: TensorClass) -> UpdatePolicy:
        """How the exponent of a parameter is found; those of inference are never updated."""
        return PARAMETER_UPDATE

    def parameter(
        self, op: nn_layers.LayerOp, short: str, shape: tuple[int, ...], tensor_class: TensorClass
    ) -> SSAValue:
        """A parameter by its final name: the layer's name and `weight` or `bias`."""
        policy, name = self.policy(op), f"{op.label.data}.{short}"
        granularity = Granularity(None, tensor_class is TensorClass.WEIGHTS and policy.weights_per_channel)
        type_ = fixed_parameter(shape, self.bits(policy, tensor_class, op), granularity)
        properties: Properties = {
            "label": NameAttr(name),
            "exponent": self.exponent(op, policy, self.parameter_update(policy, tensor_class), (name,)),
        }
        return self.add(fx_program.ParameterOp, [], type_, properties, op, name).result

    def accumulate(
        self,
        operation: type[fx_accumulate.AccumulateOp],
        op: nn_layers.LayerOp,
        operands: list[SSAValue],
        shape: Shape,
        properties: Properties | None = None,
        suffix: str = "acc",
    ) -> SSAValue:
        """An operation that makes accumulators."""
        width = self.bits(self.policy(op), TensorClass.ACCUMULATORS, op)
        shared: Properties = {"on_overflow": self.on_overflow, "layers": NamesAttr(op.layers)}
        name = f"{op.label.data}.{suffix}"
        return self.add(operation, operands, accumulator(shape, width), shared | (properties or {}), op, name).result

    def own_granularity(self, op: nn_layers.LayerOp) -> Granularity | None:
        """What the network says of the layer itself, or of the layer that an activation reads."""
        for name in op.layers:
            if name in self.numeric.overrides and self.numeric.overrides[name].granularity is not None:
                return self.numeric.overrides[name].granularity
        producer = op.operands[0].owner
        if isinstance(op, ACTIVATIONS) and isinstance(producer, nn_layers.LayerOp):
            return self.own_granularity(producer)
        return None

    def result_granularity(self, op: nn_layers.LayerOp) -> Granularity:
        """What shares an exponent in a layer's result: as the layer says, else as the network, cut by the stride."""
        own = self.own_granularity(op)
        return strided(self.granularity, _stride(op)) if own is None else own

    def quantisation(self, op: nn_layers.LayerOp, policy: NumericPolicy) -> Properties:
        """How a result is rounded and its exponents are found."""
        properties: Properties = {
            "rounding": RoundingAttr(policy.rounding),
            "exponent": self.exponent(op, policy, policy.update_for(TensorClass.ACTIVATIONS), op.layers),
        }
        if policy.blocks is not None:
            properties["blocks"] = BlocksAttr(self.block_policy(op, policy))
        return properties

    def quantize(self, op: nn_layers.LayerOp, accumulators: SSAValue) -> SSAValue:
        """The layer's result in the format of activations."""
        policy = self.policy(op)
        bits = self.bits(policy, TensorClass.ACTIVATIONS, op)
        type_ = fixed_feature_map(feature_map_shape(op.result), bits, self.result_granularity(op))
        properties = self.quantisation(op, policy)
        return self.add(fx_values.QuantizeOp, [accumulators], type_, properties, op, op.label.data).result


def _convolution(lowering: Lowering, op: nn_layers.ConvolutionOp) -> SSAValue:
    shape = parameter_shape(op.weight)
    weight = lowering.parameter(op, "weight", shape, TensorClass.WEIGHTS)
    properties: Properties = {
        "kernel": op.kernel,
        "stride": op.stride,
        "padding": op.padding,
        "dilation": op.dilation,
        "groups": CountAttr(op.group_count()),
    }
    operands = [lowering.values[op.input], weight]
    accumulated = lowering.accumulate(fx_accumulate.Conv2dOp, op, operands, op.output_shape(), properties)
    return _finish_filters(lowering, op, accumulated)


def _linear(lowering: Lowering, op: nn_layers.LinearOp) -> SSAValue:
    shape = parameter_shape(op.weight)
    weight = lowering.parameter(op, "weight", (*shape, 1, 1), TensorClass.WEIGHTS)
    operands = [lowering.values[op.input], weight]
    accumulated = lowering.accumulate(fx_accumulate.LinearOp, op, operands, op.output_shape())
    return _finish_filters(lowering, op, accumulated)


def _finish_filters(lowering: Lowering, op: nn_layers.FilterOp, accumulated: SSAValue) -> SSAValue:
    """Bias and quantise."""
    if op.bias is not None:
        bias = lowering.parameter(op, "bias", parameter_shape(op.bias), TensorClass.BIASES)
        name = f"{op.label.data}.biased"
        accumulated = lowering.add(fx_values.BiasOp, [accumulated, bias], accumulated.type, {}, op, name).result
    return lowering.quantize(op, accumulated)


def _activation(lowering: Lowering, op: nn_layers.UnaryOp) -> SSAValue:
    operation, properties = _activation_of(op, lowering.policy(op).constant_bits)
    source = lowering.values[op.input]
    wide = lowering.accumulate(fx_accumulate.WidenOp, op, [source], op.output_shape(), suffix="wide")
    properties["layers"] = NamesAttr(op.layers)
    activated = lowering.add(operation, [wide], wide.type, properties, op, f"{op.label.data}.acc").result
    return lowering.quantize(op, activated)


def _activation_of(op: nn_layers.UnaryOp, bits: int) -> tuple[type[fx_values.ActivationOp], Properties]:
    match op:
        case nn_layers.Relu6Op():
            return fx_values.ClipOp, {"limit": _constant(Fraction(6), bits)}
        case nn_layers.LeakyReluOp():
            return fx_values.LeakyReluOp, {"slope": _constant(op.slope.data, bits)}
        case _:
            return fx_values.ReluOp, {}


def _constant(value: Fraction, bits: int) -> ConstantAttr:
    """The nearest constant; 300 at 8 bits, 150 * 2^1, is shifted left, exactly, to have no negative fraction bits."""
    constant = fixed_constant(value, bits)
    if constant.fraction_bits < 0:
        constant = FixedConstant(constant.multiplier << -constant.fraction_bits, 0)
    return ConstantAttr(constant if constant.value == value else replace(constant, nearest_to=value))


def _table(operation: type[fx_accumulate.AccumulateOp]) -> Function:
    """A function that is read from a table: sigmoid, softmax."""

    def lower(lowering: Lowering, op: Any) -> SSAValue:
        return lowering.quantize(op, lowering.accumulate(operation, op, [lowering.values[op.input]], op.output_shape()))

    return lower


def _merge(operation: type[fx_accumulate.AccumulateOp]) -> Function:
    def lower(lowering: Lowering, op: Any) -> SSAValue:
        operands = [lowering.values[value] for value in op.inputs]
        return lowering.quantize(op, lowering.accumulate(operation, op, operands, op.output_shape()))

    return lower


def _average_pool(lowering: Lowering, op: nn_layers.AveragePoolOp | nn_layers.GlobalAveragePoolOp) -> SSAValue:
    bits = lowering.policy(op).constant_bits
    kernel, stride, padding = _pool_window(op)
    include_padding = isinstance(op, nn_layers.AveragePoolOp) and op.include_padding is not None
    divisors = window_divisors(feature_map_shape(op.input), kernel.data, stride.data, padding.data, include_padding)
    multipliers, fraction_bits = reciprocal_constants(divisors, bits)
    properties: Properties = {
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "constants": BitsAttr(bits),
        "reciprocals": ReciprocalsAttr((tuple(multipliers.items()), fraction_bits)),
    }
    if include_padding:
        properties["include_padding"] = UnitAttr()
    source = [lowering.values[op.input]]
    accumulated = lowering.accumulate(fx_accumulate.AveragePoolOp, op, source, op.output_shape(), properties)
    return lowering.quantize(op, accumulated)


def _max_pool(lowering: Lowering, op: nn_layers.MaxPoolOp | nn_layers.GlobalMaxPoolOp) -> SSAValue:
    kernel, stride, padding = _pool_window(op)
    return _exact(lowering, op, fx_values.MaxPoolOp, {"kernel": kernel, "stride": stride, "padding": padding})


def _resize(lowering: Lowering, op: nn_layers.UnaryOp) -> SSAValue:
    return _exact(lowering, op, fx_values.ResizeOp, {})


def _reshape(lowering: Lowering, op: nn_layers.UnaryOp) -> SSAValue:
    return _exact(lowering, op, fx_values.ReshapeOp, {})


def _exact(
    lowering: Lowering, op: nn_layers.UnaryOp, operation: type[fx_values.ExactOp], properties: Properties
) -> SSAValue:
    """The operand's width stays, and its exponents where blocks move whole; else the result is quantised."""
    source = lowering.values[op.input]
    assert isinstance(source.type, FixedTensorType)
    before, shape = source.type.granularity.data, op.output_shape()
    move = _move(op, map_shape(source), shape)
    granularity = move.granularity(before)
    if isinstance(move, BlockMove):
        granularity = lowering.own_granularity(op) or granularity
        if granularity is None or not move.keeps(before, granularity):
            granularity = granularity or lowering.result_granularity(op)
            properties |= lowering.quantisation(op, lowering.policy(op))
    assert granularity is not None
    type_ = fixed_feature_map(shape, source.type.bits.data, granularity)
    layers: Properties = {"layers": NamesAttr(op.layers)}
    return lowering.add(operation, [source], type_, layers | properties, op, op.label.data).result


def _move(op: nn_layers.UnaryOp, before: Shape, after: Shape) -> BlockMove | ReshapeMove:
    """Which elements of its input each element of an exact operation's result reads."""
    match op:
        case nn_layers.MaxPoolOp() | nn_layers.GlobalMaxPoolOp():
            kernel, stride, padding = _pool_window(op)
            return pool_move(before, after, kernel.data, stride.data, padding.data)
        case nn_layers.UpsampleOp() | nn_layers.ResizeOp():
            return resize_move(before, after)
        case _:
            return reshape_move(before)


def _stride(op: nn_layers.LayerOp) -> Pair:
    """By how much a layer's result is smaller than its input; an activation follows the layer that it reads."""
    if isinstance(op, Windowed):
        return op.stride.data
    producer = op.operands[0].owner
    if isinstance(op, ACTIVATIONS) and isinstance(producer, nn_layers.LayerOp):
        return _stride(producer)
    return 1, 1


def _pool_window(op: nn_layers.UnaryOp) -> tuple[PairAttr, PairAttr, PaddingAttr]:
    """A pool's kernel, stride and padding; a global pool's kernel is the whole feature map."""
    if isinstance(op, Windowed):
        return op.kernel, op.stride, op.padding
    size = PairAttr(feature_map_shape(op.input)[1:])
    return size, size, PaddingAttr((0, 0, 0, 0))


ACTIVATIONS = (nn_layers.ReluOp, nn_layers.Relu6Op, nn_layers.LeakyReluOp)
"""The layers that are fused into the layer before them."""

Function = Callable[[Lowering, Any], SSAValue]

LOWERINGS: Mapping[type[nn_layers.LayerOp], Function] = {
    nn_layers.Conv2dOp: _convolution,
    nn_layers.DepthwiseOp: _convolution,
    nn_layers.LinearOp: _linear,
    **dict.fromkeys(ACTIVATIONS, _activation),
    nn_layers.SigmoidOp: _table(fx_accumulate.SigmoidOp),
    nn_layers.SoftmaxOp: _table(fx_accumulate.SoftmaxOp),
    nn_layers.AveragePoolOp: _average_pool,
    nn_layers.GlobalAveragePoolOp: _average_pool,
    nn_layers.MaxPoolOp: _max_pool,
    nn_layers.GlobalMaxPoolOp: _max_pool,
    nn_layers.AddOp: _merge(fx_accumulate.AddOp),
    nn_layers.ConcatOp: _merge(fx_accumulate.ConcatOp),
    nn_layers.UpsampleOp: _resize,
    nn_layers.ResizeOp: _resize,
    nn_layers.FlattenOp: _reshape,
    nn_layers.ReshapeOp: _reshape,
}
"""What each layer becomes. Losses and batch normalisations are rewritten before."""

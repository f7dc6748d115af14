"""The lowering of one network to a training program: as for inference, with batch statistics and the loss on the host.

Parameters are declared before the phases, so that everything that lasts from one mini-batch to the next stands
together.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from binpoint.compiler.lowering import Lowering, Properties
from binpoint.dialect import fx_values, nn_layers
from binpoint.dialect.assembly import location_of, value_name
from binpoint.dialect.attributes import CountAttr, NameAttr
from binpoint.dialect.fx_attributes import ExponentAttr, PhaseAttr, TermsAttr
from binpoint.dialect.fx_gradients import ChannelAffineOp
from binpoint.dialect.fx_host import BATCH_NORM_COEFFICIENTS, FORWARD_TERMS, MOMENTS, BatchNormOp, SoftmaxCrossEntropyOp
from binpoint.dialect.fx_training import SUM_BITS, ChannelSumsOp, PhaseOp, TrainingOp
from binpoint.dialect.fx_types import fixed_feature_map, fixed_parameter, parameter_accumulator
from binpoint.dialect.nn_network import NetworkOp, OutputOp
from binpoint.dialect.nn_types import feature_map_shape
from binpoint.support.diagnostics import user_error
from binpoint.support.numeric import PARAMETER_UPDATE, Granularity, NumericPolicy, TensorClass, UpdatePolicy
from binpoint.support.phases import Phase


@dataclass(frozen=True)
class TrainingTarget:
    """What the target and the user add to a network: accumulators, batch, coefficients of batch norm, loss scaling."""

    accumulator_bits: int
    accumulator_wraps: bool
    target: str | None
    batch: int
    coefficient_bits: int
    scale_exponent: int


def build_training(network: NetworkOp, target: TrainingTarget) -> TrainingOp:
    """The `fx.training` of a network, with the phases forward and loss.

    Args:
        network: a network whose one output is its loss.
        target: what the network leaves open.

    Raises:
        UserError: a layer that has no fixed-point form, a width that no type has, no loss.
    """
    lowering = TrainingLowering(network.numeric.data, target)
    lowering.add(PhaseOp, [], properties={"phase": PhaseAttr(Phase.FORWARD)})
    for op in network.body.block.ops:
        if isinstance(op, nn_layers.InputOp):
            lowering.values[op.result] = lowering.input(op)
        elif isinstance(op, nn_layers.CrossEntropyOp):
            lowering.loss(op)
        elif isinstance(op, nn_layers.LayerOp):
            lowering.values[op.result] = lowering.layer(op)
        elif isinstance(op, OutputOp) and not (len(op.values) == 1 and op.values[0] in lowering.losses):
            raise user_error(
                "no-loss", "the network's output is not its loss", location=location_of(op), hint="run insert-loss"
            )
    properties: Properties = {
        "symbol": network.symbol,
        "numeric": network.numeric,
        "batch": CountAttr(target.batch),
    }
    if target.target is not None:
        properties["target"] = NameAttr(target.target)
    body = Region(Block([*lowering.declarations, *lowering.operations]))
    return TrainingOp.create(properties=properties, regions=[body], location=network.location)


class TrainingLowering(Lowering):
    """A lowering that keeps declarations apart and trains batch normalisations."""

    def __init__(self, numeric: NumericPolicy, target: TrainingTarget) -> None:
        super().__init__(numeric, target.accumulator_bits, target.accumulator_wraps)
        self.target = target
        self.declarations: list[Operation] = []
        self.losses: list[SSAValue] = []

    def parameter_update(self, policy: NumericPolicy, tensor_class: TensorClass) -> UpdatePolicy:
        """As the policy says for its class: working copies move with every update."""
        return policy.update_for(tensor_class)

    def input(self, op: nn_layers.InputOp) -> SSAValue:
        """Declared before the phases."""
        value = super().input(op)
        self.declarations.append(self.operations.pop())
        return value

    def parameter(
        self, op: nn_layers.LayerOp, short: str, shape: tuple[int, ...], tensor_class: TensorClass
    ) -> SSAValue:
        """Declared before the phases."""
        value = super().parameter(op, short, shape, tensor_class)
        self.declarations.append(self.operations.pop())
        return value

    def layer(self, op: nn_layers.LayerOp) -> SSAValue:
        """Batch normalisations too."""
        return self.batch_norm(op) if isinstance(op, nn_layers.BatchNormOp) else super().layer(op)

    def loss(self, op: nn_layers.CrossEntropyOp) -> None:
        """The gradient of the mean loss, in the format of gradients. Raises UserError for logits that are no vector."""
        logits, shape, policy = self.values[op.input], feature_map_shape(op.input), self.loss_policy(op)
        if shape[1:] != (1, 1):
            raise user_error(
                "no-vector",
                f'the loss "{op.label.data}" reads a feature map',
                location=location_of(op),
                found="x".join(map(str, shape)),
                expected="H = W = 1: one label an image",
                hint="put a global pool or flatten(...) before it",
            )
        name = f"{producer_name(op.input)}.grad"
        self.add(PhaseOp, [], properties={"phase": PhaseAttr(Phase.LOSS)})
        update = policy.update_for(TensorClass.GRADIENTS)
        properties: Properties = {
            "label": NameAttr(name),
            "float64": UnitAttr(),
            "exponent": self.exponent(op, policy, update, (name,)),
            "scale_exponent": ExponentAttr(self.target.scale_exponent),
        }
        type_ = fixed_feature_map(shape, self.bits(policy, TensorClass.GRADIENTS, op), Granularity())
        self.add(SoftmaxCrossEntropyOp, [logits], type_, properties, op, name)
        self.losses.append(op.result)

    def loss_policy(self, op: nn_layers.CrossEntropyOp) -> NumericPolicy:
        """That of the first of its names that has one, else that of the logits."""
        source = op.input.owner
        named = any(name in self.numeric.overrides for name in op.layers)
        return self.policy(op if named or not isinstance(source, nn_layers.LayerOp) else source)

    def batch_norm(self, op: nn_layers.BatchNormOp) -> SSAValue:
        """Exact sums -> coefficients on the host -> an affine kernel."""
        name, source, shape = op.label.data, self.values[op.input], feature_map_shape(op.input)
        channels = (shape[0],)
        gamma = self.parameter(op, "gamma", channels, TensorClass.BIASES)
        beta = self.parameter(op, "beta", channels, TensorClass.BIASES)
        sums = self.add(
            ChannelSumsOp,
            [source],
            parameter_accumulator((MOMENTS, *channels), SUM_BITS),
            {"label": NameAttr(f"{name}.sums"), "terms": TermsAttr(FORWARD_TERMS)},
            op,
            f"{name}.sums",
        ).result
        host = self._host_batch_norm(op, [sums, gamma, beta], channels[0])
        accumulated = self.accumulate(ChannelAffineOp, op, [source, host.scale], shape)
        biased = self.add(
            fx_values.BiasOp, [accumulated, host.shift], accumulated.type, {}, op, f"{name}.biased"
        ).result
        return self.quantize(op, biased)

    def _host_batch_norm(self, op: nn_layers.BatchNormOp, operands: list[SSAValue], channels: int) -> BatchNormOp:
        policy = self.policy(op)
        host = BatchNormOp.create(
            operands=operands,
            result_types=[
                fixed_parameter((1, channels, 1, 1), self.target.coefficient_bits, Granularity()),
                fixed_parameter((channels,), self.bits(policy, TensorClass.BIASES, op), Granularity()),
            ],
            properties={
                "label": op.label,
                "float64": UnitAttr(),
                "epsilon": op.epsilon,
                "exponent": self.exponent(op, policy, PARAMETER_UPDATE, ()),
            },
            location=op.location,
        )
        for result, short in zip(host.results, BATCH_NORM_COEFFICIENTS, strict=True):
            result.name_hint = value_name(f"{op.label.data}.{short}")
        self.operations.append(host)
        return host


def producer_name(value: SSAValue) -> str:
    """The name of the layer or input that computes a value."""
    owner = value.owner
    assert isinstance(owner, nn_layers.LayerOp | nn_layers.InputOp)
    return owner.label.data

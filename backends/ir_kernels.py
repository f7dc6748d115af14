"""Kernels of the fx dialect -> what backends compile; shared by programs of inference and of training.

Valid IR may say more than this version's kernels can do; what they cannot do is refused here, with its place.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation, SSAValue

from binpoint.backends.gradients import (
    AveragePoolGradient,
    BiasGradient,
    ChannelAffine,
    ChannelSlice,
    ClipGradient,
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    GradientOperation,
    LeakyReluGradient,
    MaxPoolGradient,
    ReluGradient,
    ResizeGradient,
    SigmoidGradient,
)
from binpoint.backends.kernel import (
    Accumulator,
    Activation,
    Add,
    AveragePool,
    Clip,
    Concat,
    Convolution,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    Relu,
    Reshape,
    Resize,
    Sigmoid,
    Softmax,
    TensorSpec,
    Widen,
    reciprocal_constants,
)
from binpoint.backends.kernel import Operation as KernelOperation
from binpoint.backends.program import KernelCall, ProgramInput
from binpoint.dialect import fx_accumulate, fx_gradients, fx_values
from binpoint.dialect.assembly import location_of
from binpoint.dialect.fx_attributes import Overflow
from binpoint.dialect.fx_program import InputOp, KernelOp, ParameterOp
from binpoint.dialect.fx_types import FixedTensorType, is_feature_map, map_shape, parameter_sizes, width
from binpoint.dialect.groups import Convolved, Windowed
from binpoint.support.diagnostics import UserError, user_error
from binpoint.support.numeric import BITS_RANGE, Granularity, OnOverflow, Rounding, TensorClass


class KernelReader:
    """Reads inputs, parameters and kernels in data-flow order and keeps the names of tensors."""

    def __init__(self, blocks: bool = False) -> None:
        """`blocks`: whether there are kernels for tensors with more than one exponent."""
        self.blocks = blocks
        self.names: dict[SSAValue, str] = {}
        self.parameters: set[SSAValue] = set()
        """What kernels may read as a weight or bias."""
        self._refused: set[Granularity] = set()
        """Granularities that have been reported: one message each is enough."""

    def input(self, op: InputOp) -> ProgramInput:
        """A declared input."""
        self.names[op.result] = op.label.data
        tensor = self.feature_map(op, op.result)
        blocks = None if op.blocks is None else op.blocks.data
        return ProgramInput(op.label.data, tensor, op.scale.data, op.mean.data, op.deviation.data, blocks)

    def parameter(self, op: ParameterOp) -> None:
        """A declared parameter; its format is checked where it is used."""
        self.declare(op.result, op.label.data)

    def declare(self, value: SSAValue, name: str) -> None:
        """Name what kernels may read as a weight or bias."""
        self.names[value] = name
        self.parameters.add(value)

    def call(self, kernel: KernelOp, tensor_class: TensorClass) -> KernelCall:
        """One kernel, whose result is of this class. Its verifier has checked the order of the steps."""
        # Named first: what is wrong with one kernel is not wrong with its readers.
        self.names[kernel.result] = kernel.label.data
        steps = kernel.steps()
        first = steps[0]
        sources, weight = _operands(first)
        bias = next((step for step in steps if isinstance(step, fx_values.BiasOp)), None)
        end = steps[-1]
        rounding, blocks = None, None
        if isinstance(end, fx_values.QuantizeOp | fx_values.BlockMoveOp):
            rounding, blocks = end.rounding, end.blocks
        activation = next((step for step in steps if isinstance(step, fx_values.ActivationOp)), None)
        spec = KernelSpec(
            name=kernel.label.data,
            operation=_kernel_operation(first, None if bias is None else bias.bias),
            inputs=tuple(self.feature_map(first, source) for source in sources),
            output=self._output(kernel, tensor_class),
            activation=None if activation is None else _activation(activation),
            accumulator=_accumulator(first),
            rounding=Rounding.HALF_EVEN if rounding is None else rounding.data,
            statistics=any(isinstance(step, fx_values.StatsOp) for step in steps),
            blocks=None if blocks is None else blocks.data,
        )
        return KernelCall(
            spec=spec,
            inputs=tuple(self.name(first, source) for source in sources),
            weight=None if weight is None else self._parameter(first, weight, TensorClass.WEIGHTS),
            bias=None if bias is None else self._parameter(bias, bias.bias, TensorClass.BIASES),
            fused=kernel.layers.data,
            weight_per_channel=weight is not None and _granularity(weight).per_channel,
        )

    def name(self, op: Operation, value: SSAValue) -> str:
        """The name of a feature map that has been read before."""
        if value not in self.names or value in self.parameters:
            raise refusal(op, "reads what is no input and no result of a kernel before it")
        return self.names[value]

    def feature_map(self, op: Operation, value: SSAValue) -> TensorSpec:
        """The format of a feature map. Activations and gradients have the same widths."""
        if not is_feature_map(value):
            raise refusal(op, f"{value.type} is no feature map")
        self.check_tensor(op, value, TensorClass.ACTIVATIONS)
        return TensorSpec(*map_shape(value), width(value), _granularity(value))

    def check_tensor(self, op: Operation, value: SSAValue, tensor_class: TensorClass) -> None:
        """Refuse formats that no kernel computes with."""
        assert isinstance(value.type, FixedTensorType)
        granularity = value.type.granularity.data
        known = self.blocks if tensor_class is not TensorClass.BIASES else False
        if granularity != Granularity() and not known and granularity not in self._refused:
            self._refused.add(granularity)
            raise user_error(
                "unsupported-granularity",
                f"{op.name}: exponents of granularity {granularity}",
                location=location_of(op),
                found=str(value.type),
                expected="exp = tensor: these kernels run one exponent per tensor",
            )
        _check_bits(op, value.type.bits.data, tensor_class)

    def _output(self, kernel: KernelOp, tensor_class: TensorClass) -> TensorSpec:
        """The result: a feature map, or the gradient of a parameter, whose rows take the place of images."""
        if is_feature_map(kernel.result):
            return self.feature_map(kernel, kernel.result)
        self.check_tensor(kernel, kernel.result, tensor_class)
        channels, height, width_ = (*parameter_sizes(kernel.result)[1:], 1, 1, 1)[:3]
        return TensorSpec(channels, height, width_, width(kernel.result))

    def _parameter(self, op: Operation, value: SSAValue, tensor_class: TensorClass) -> str:
        if value not in self.parameters:
            raise refusal(op, "reads a weight or bias that is no fx.parameter before it")
        assert isinstance(value.owner, Operation)
        self.check_tensor(value.owner, value, tensor_class)
        return self.names[value]


def refusal(op: Operation, message: str, hint: str | None = None) -> UserError:
    """What is refused because it makes no program."""
    return user_error("not-a-program", f"{op.name}: {message}", location=location_of(op), hint=hint)


def _granularity(value: SSAValue) -> Granularity:
    assert isinstance(value.type, FixedTensorType)
    return value.type.granularity.data


def _operands(op: Operation) -> tuple[list[SSAValue], SSAValue | None]:
    """The feature maps and the weights that a kernel's first step reads, which reads weights last."""
    weighted = fx_accumulate.FilterOp | fx_gradients.DataGradientOp | fx_gradients.ChannelAffineOp
    if isinstance(op, weighted):
        return list(op.operands[:-1]), op.weight
    return list(op.operands), None


def _kernel_operation(op: Operation, bias: SSAValue | None) -> KernelOperation | GradientOperation:
    match op:
        case fx_accumulate.Conv2dOp() | fx_accumulate.LinearOp():
            return _convolution(op, width(op.weight), None if bias is None else width(bias))
        case fx_gradients.DataGradientOp():
            return ConvolutionDataGradient(_convolution(op, width(op.weight), None))
        case fx_gradients.WeightGradientOp():
            # No weights are read, so their width in the convolution is that of the class's default.
            return ConvolutionWeightGradient(_convolution(op))
        case fx_gradients.ChannelAffineOp():
            return _affine(op, bias)
        case fx_accumulate.AveragePoolOp():
            return _average_pool(op)
        case fx_gradients.AveragePoolGradientOp():
            return AveragePoolGradient(_average_pool(op))
        case fx_values.MaxPoolOp():
            return _max_pool(op)
        case fx_gradients.MaxPoolGradientOp():
            return MaxPoolGradient(_max_pool(op))
        case fx_gradients.ClipGradientOp():
            return ClipGradient(op.limit.data)
        case fx_gradients.LeakyReluGradientOp():
            return LeakyReluGradient(op.slope.data)
        case fx_gradients.ChannelSliceOp():
            return ChannelSlice(op.first.data)
    return SIMPLE_OPERATIONS[type(op)]


SIMPLE_OPERATIONS: Mapping[type[Operation], KernelOperation | GradientOperation] = {
    fx_accumulate.AddOp: Add(),
    fx_accumulate.ConcatOp: Concat(),
    fx_accumulate.WidenOp: Widen(),
    fx_accumulate.SigmoidOp: Sigmoid(),
    fx_accumulate.SoftmaxOp: Softmax(),
    fx_values.ResizeOp: Resize(),
    fx_values.ReshapeOp: Reshape(),
    fx_gradients.BiasGradientOp: BiasGradient(),
    fx_gradients.ResizeGradientOp: ResizeGradient(),
    fx_gradients.ReluGradientOp: ReluGradient(),
    fx_gradients.SigmoidGradientOp: SigmoidGradient(),
}
"""The operations without properties of their own."""


def _convolution(op: Operation, weight_bits: int = 8, bias_bits: int | None = None) -> Convolution:
    """The convolution that an operation computes, or whose gradient it is; a linear layer has 1x1 windows."""
    if not isinstance(op, Convolved):
        return Convolution((1, 1), weight_bits=weight_bits, bias_bits=bias_bits)
    window = (op.kernel.data, op.stride.data, op.padding.data, op.dilation.data, op.groups.data)
    return Convolution(*window, weight_bits, bias_bits)


def _affine(op: fx_gradients.ChannelAffineOp, bias: SSAValue | None) -> ChannelAffine:
    if bias is None:
        raise refusal(op, "channel-wise coefficients without a constant: expected fx.bias behind it")
    return ChannelAffine(width(op.weight), width(bias))


def _max_pool(op: Windowed) -> MaxPool:
    return MaxPool(op.kernel.data, op.stride.data, op.padding.data)


def _average_pool(op: fx_accumulate.Averaging) -> AveragePool:
    """An average pool; kernels derive its reciprocals, so the IR must say the same."""
    entries, fraction_bits = op.reciprocals.data
    derived, derived_bits = reciprocal_constants([divisor for divisor, _ in entries], op.constants.data)
    if (dict(entries), fraction_bits) != (derived, derived_bits):
        values = ", ".join(f"1/{divisor} = {multiplier}" for divisor, multiplier in derived.items())
        raise refusal(
            op, f"reciprocals other than the nearest of {op.constants.data} bits", f"[{values}] * 2^-{derived_bits}"
        )
    include_padding = op.include_padding is not None
    return AveragePool(op.kernel.data, op.stride.data, op.padding.data, include_padding, op.constants.data)


def _activation(op: fx_values.ActivationOp) -> Activation:
    match op:
        case fx_values.ClipOp():
            return Clip(op.limit.data)
        case fx_values.LeakyReluOp():
            return LeakyRelu(op.slope.data)
        case _:
            return Relu()


def _accumulator(op: Operation) -> Accumulator:
    """The accumulators of a kernel's first step; without a proof they count as able to overflow."""
    if not isinstance(op, fx_accumulate.AccumulateOp):
        return Accumulator()
    bits = width(op.result)
    _check_bits(op, bits, TensorClass.ACCUMULATORS)
    possible = op.overflow is None or op.overflow.data is Overflow.POSSIBLE
    return Accumulator(bits, op.on_overflow.data is OnOverflow.WRAP, possible)


def _check_bits(op: Operation, bits: int, tensor_class: TensorClass) -> None:
    least, most = BITS_RANGE[tensor_class]
    if not least <= bits <= most:
        raise user_error(
            "unsupported-width",
            f"{op.name}: {tensor_class} of {bits} bits",
            location=location_of(op),
            found=f"{bits}b",
            expected=f"{least} to {most} bits",
        )

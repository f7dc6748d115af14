"""A verified fx module -> the program that backends and the runtime read.

Valid IR may say more than this version's kernels can do; what they cannot do is refused here, with its place.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

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
from binpoint.backends.program import KernelCall, Program, ProgramInput
from binpoint.dialect import fx_accumulate, fx_values
from binpoint.dialect.assembly import location_of
from binpoint.dialect.fx_attributes import OnOverflow, Overflow
from binpoint.dialect.fx_program import InputOp, KernelOp, OutputOp, ParameterOp, ProgramOp
from binpoint.dialect.fx_types import FixedTensorType, map_shape, width
from binpoint.support.diagnostics import Collector, UserError, user_error
from binpoint.support.numeric import BITS_RANGE, Granularity, Rounding, TensorClass, TensorPolicy


def program_from_module(module: ModuleOp) -> Program:
    """The module's one program.

    Args:
        module: a verified module (see `binpoint.dialect.text.parse_module`).

    Raises:
        UserError: with everything in the module that is no program or that no kernel computes.
    """
    programs = [op for op in module.ops if isinstance(op, ProgramOp)]
    if len(programs) != 1:
        found = f"{len(programs)} of {len(list(module.ops))} operations are fx.program"
        hint = "run lower-nn-to-fx and the passes after it" if not programs else None
        raise user_error("not-a-program", "a module must hold one program", found=found, hint=hint)
    return _Reader(programs[0]).read()


class _Reader:
    """Reads one program in data-flow order."""

    def __init__(self, program: ProgramOp) -> None:
        self.program = program
        self.names: dict[SSAValue, str] = {}
        self.policies: dict[str, TensorPolicy] = {}
        self.inputs: list[ProgramInput] = []
        self.calls: list[KernelCall] = []
        self.outputs: tuple[str, ...] = ()
        self.collector = Collector()
        self.refused: set[Granularity] = set()
        """Granularities that have been reported: one message each is enough."""

    def read(self) -> Program:
        for op in self.program.body.block.ops:
            with self.collector.catch():
                self._operation(op)
        self.collector.raise_any()
        for what, found in (("input", self.inputs), ("kernel", self.calls)):
            if not found:
                raise _refusal(self.program, f"the program has no {what}")
        name = self.program.symbol.data
        return Program(name, tuple(self.inputs), tuple(self.calls), self.outputs, self.policies)

    def _operation(self, op: Operation) -> None:
        match op:
            case InputOp():
                self.names[op.result] = op.label.data
                self.policies[op.label.data] = op.exponent.data
                spec = self._feature_map(op, op.result)
                self.inputs.append(ProgramInput(op.label.data, spec, op.scale.data, op.mean.data, op.deviation.data))
            case ParameterOp():
                self.names[op.result] = op.label.data
                self.policies[op.label.data] = op.exponent.data
            case KernelOp():
                self.names[op.result] = op.label.data
                self.calls.append(self._call(op))
            case OutputOp():
                # Two layers of the network file may have become one tensor; it leaves once.
                self.outputs = tuple(dict.fromkeys(self._name(op, value) for value in op.values))
            case _:
                hint = "run outline-kernels"
                raise _refusal(op, f"{op.name} stands outside of a kernel", hint)

    def _call(self, kernel: KernelOp) -> KernelCall:
        """One kernel. Its verifier has checked the order of the steps."""
        steps = kernel.steps()
        first = steps[0]
        sources, weight = _operands(first)
        bias = next((step for step in steps if isinstance(step, fx_values.BiasOp)), None)
        quantize = steps[-1] if isinstance(steps[-1], fx_values.QuantizeOp) else None
        activation = next((step for step in steps if isinstance(step, fx_values.ActivationOp)), None)
        spec = KernelSpec(
            name=kernel.label.data,
            operation=_kernel_operation(first, None if bias is None else bias.bias),
            inputs=tuple(self._feature_map(first, source) for source in sources),
            output=self._feature_map(kernel, kernel.result),
            activation=None if activation is None else _activation(activation),
            accumulator=_accumulator(first),
            rounding=Rounding.HALF_EVEN if quantize is None else quantize.rounding.data,
            statistics=any(isinstance(step, fx_values.StatsOp) for step in steps),
        )
        if quantize is not None:
            self.policies[spec.name] = quantize.exponent.data
        return KernelCall(
            spec=spec,
            inputs=tuple(self._name(first, source) for source in sources),
            weight=None if weight is None else self._parameter(first, weight, TensorClass.WEIGHTS),
            bias=None if bias is None else self._parameter(bias, bias.bias, TensorClass.BIASES),
            fused=kernel.layers.data,
        )

    def _name(self, op: Operation, value: SSAValue) -> str:
        """The name of a feature map that has been read before."""
        if value not in self.names or isinstance(value.owner, ParameterOp):
            raise _refusal(op, "reads what is no input and no result of a kernel before it")
        return self.names[value]

    def _parameter(self, op: Operation, value: SSAValue, tensor_class: TensorClass) -> str:
        if not isinstance(value.owner, ParameterOp) or value not in self.names:
            raise _refusal(op, "reads a weight or bias that is no fx.parameter before it")
        self._check_tensor(value.owner, value, tensor_class)
        return self.names[value]

    def _feature_map(self, op: Operation, value: SSAValue) -> TensorSpec:
        self._check_tensor(op, value, TensorClass.ACTIVATIONS)
        return TensorSpec(*map_shape(value), width(value))

    def _check_tensor(self, op: Operation, value: SSAValue, tensor_class: TensorClass) -> None:
        """Refuse formats that no kernel computes with."""
        assert isinstance(value.type, FixedTensorType)
        granularity = value.type.granularity.data
        if granularity != Granularity() and granularity not in self.refused:
            self.refused.add(granularity)
            raise user_error(
                "unsupported-granularity",
                f"{op.name}: exponents of granularity {granularity}",
                location=location_of(op),
                found=str(value.type),
                expected="exp = tensor: the kernels of this version run one exponent per tensor",
            )
        _check_bits(op, value.type.bits.data, tensor_class)


def _operands(op: Operation) -> tuple[list[SSAValue], SSAValue | None]:
    """The feature maps and the weights that a kernel's first step reads."""
    if isinstance(op, fx_accumulate.FilterOp):
        return [op.input], op.weight
    return list(op.operands), None


def _kernel_operation(op: Operation, bias: SSAValue | None) -> KernelOperation:
    match op:
        case fx_accumulate.Conv2dOp():
            return Convolution(
                kernel=op.kernel.data,
                stride=op.stride.data,
                padding=op.padding.data,
                dilation=op.dilation.data,
                groups=op.groups.data,
                weight_bits=width(op.weight),
                bias_bits=None if bias is None else width(bias),
            )
        case fx_accumulate.LinearOp():
            bias_bits = None if bias is None else width(bias)
            return Convolution((1, 1), weight_bits=width(op.weight), bias_bits=bias_bits)
        case fx_accumulate.AveragePoolOp():
            return _average_pool(op)
        case fx_values.MaxPoolOp():
            return MaxPool(op.kernel.data, op.stride.data, op.padding.data)
    return SIMPLE_OPERATIONS[type(op)]


SIMPLE_OPERATIONS: dict[type[Operation], KernelOperation] = {
    fx_accumulate.AddOp: Add(),
    fx_accumulate.ConcatOp: Concat(),
    fx_accumulate.WidenOp: Widen(),
    fx_accumulate.SigmoidOp: Sigmoid(),
    fx_accumulate.SoftmaxOp: Softmax(),
    fx_values.ResizeOp: Resize(),
    fx_values.ReshapeOp: Reshape(),
}
"""The operations without properties of their own."""


def _average_pool(op: fx_accumulate.AveragePoolOp) -> AveragePool:
    """An average pool; kernels derive its reciprocals, so the IR must say the same."""
    entries, fraction_bits = op.reciprocals.data
    derived, derived_bits = reciprocal_constants([divisor for divisor, _ in entries], op.constants.data)
    if (dict(entries), fraction_bits) != (derived, derived_bits):
        values = ", ".join(f"1/{divisor} = {multiplier}" for divisor, multiplier in derived.items())
        raise _refusal(
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


def _refusal(op: Operation, message: str, hint: str | None = None) -> UserError:
    return user_error("not-a-program", f"{op.name}: {message}", location=location_of(op), hint=hint)

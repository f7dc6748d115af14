"""A verified fx module of training -> the program that host and accelerator execute."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from binpoint.backends.gradients import SumsSpec, UpdateSpec
from binpoint.backends.ir_kernels import KernelReader, refusal
from binpoint.backends.program import ProgramInput
from binpoint.backends.training_program import (
    BatchNormBackwardStep,
    BatchNormForwardStep,
    KernelStep,
    LossStep,
    ParameterFormat,
    Step,
    SumsStep,
    TensorFormat,
    TrainingProgram,
    UpdateStep,
)
from binpoint.dialect.fx_attributes import TermsAttr
from binpoint.dialect.fx_host import (
    BACKWARD_TERMS,
    BATCH_NORM_COEFFICIENTS,
    BATCH_NORM_GRADIENTS,
    FORWARD_TERMS,
    BatchNormGradientOp,
    BatchNormOp,
    SoftmaxCrossEntropyOp,
)
from binpoint.dialect.fx_program import InputOp, KernelOp, ParameterOp
from binpoint.dialect.fx_training import ChannelSumsOp, TrainingOp
from binpoint.dialect.fx_types import is_feature_map, parameter_sizes, width
from binpoint.dialect.fx_update import DescendOp, MomentumOp, UpdateOp
from binpoint.dialect.fx_values import QuantizeOp
from binpoint.support.diagnostics import Collector, user_error
from binpoint.support.numeric import TensorClass, TensorPolicy
from binpoint.support.phases import Phase


def training_program_from_module(module: ModuleOp) -> TrainingProgram:
    """The module's one training program.

    Args:
        module: a verified module (see `binpoint.dialect.text.parse_module`).

    Raises:
        UserError: with everything in the module that is no training program or that no kernel computes.
    """
    programs = [op for op in module.ops if isinstance(op, TrainingOp)]
    if len(programs) != 1:
        found = f"{len(programs)} of {len(list(module.ops))} operations are fx.training"
        hint = "run lower-nn-to-training and the passes after it" if not programs else None
        raise user_error("not-a-program", "a module must hold one training program", found=found, hint=hint)
    return _Reader(programs[0]).read()


class _Reader:
    """Reads one training program in the order of its operations."""

    def __init__(self, training: TrainingOp) -> None:
        self.training = training
        self.kernels = KernelReader()
        self.inputs: list[ProgramInput] = []
        self.declared: dict[SSAValue, ParameterOp] = {}
        self.gradients: dict[SSAValue, str] = {}
        """Gradients of parameters by name."""
        self.steps: list[Step] = []
        self.parameters: list[ParameterFormat] = []
        self.formats: dict[str, TensorFormat] = {}
        self.logits: list[str] = []

    def read(self) -> TrainingProgram:
        collector = Collector()
        for phase, op in self.training.steps():
            with collector.catch():
                self._declaration(op) if phase is None else self._operation(phase, op)
        collector.raise_any()
        for what, found in (("input", self.inputs), ("loss", self.logits), ("update", self.parameters)):
            if not found:
                raise refusal(self.training, f"the program has no {what}", "run differentiate and insert-updates")
        return TrainingProgram(
            name=self.training.symbol.data,
            inputs=tuple(self.inputs),
            steps=tuple(self.steps),
            logits=self.logits[0],
            parameters=tuple(self.parameters),
            formats=self.formats,
            batch=self.training.batch.data,
        )

    def _declaration(self, op: Operation) -> None:
        if isinstance(op, InputOp):
            self.inputs.append(self.kernels.input(op))
            self._format(op.label.data, TensorClass.ACTIVATIONS, op.result, op.exponent.data)
        elif isinstance(op, ParameterOp):
            self.kernels.parameter(op)
            self.declared[op.result] = op

    def _operation(self, phase: Phase, op: Operation) -> None:
        match op:
            case KernelOp():
                self._kernel(phase, op)
            case ChannelSumsOp():
                inputs = tuple(self.kernels.feature_map(op, value) for value in op.inputs)
                spec = SumsSpec(op.label.data, inputs, op.terms.data)
                names = tuple(self.kernels.name(op, value) for value in op.inputs)
                self.steps.append(SumsStep(phase, op.label.data, spec, names))
            case SoftmaxCrossEntropyOp():
                self._loss(op)
            case BatchNormOp():
                self._batch_norm(op)
            case BatchNormGradientOp():
                self._batch_norm_gradient(op)
            case UpdateOp():
                self._update(op)
            case _:
                raise refusal(op, f"{op.name} stands outside of a kernel", "run outline-kernels")

    def _kernel(self, phase: Phase, op: KernelOp) -> None:
        tensor_class = TensorClass.ACTIVATIONS
        if phase is Phase.BACKWARD:
            tensor_class = TensorClass.GRADIENTS if is_feature_map(op.result) else TensorClass.WEIGHT_GRADIENTS
        self.steps.append(KernelStep(phase, self.kernels.call(op, tensor_class)))
        if tensor_class is TensorClass.WEIGHT_GRADIENTS:
            self.gradients[op.result] = op.label.data
        end = op.steps()[-1]
        if isinstance(end, QuantizeOp):
            self._format(op.label.data, tensor_class, op.result, end.exponent.data)

    def _loss(self, op: SoftmaxCrossEntropyOp) -> None:
        name = op.label.data
        self.logits.append(self.kernels.name(op, op.logits))
        self.kernels.names[op.result] = name
        self.steps.append(LossStep(self.logits[0], name, width(op.result), op.scale_exponent.data))
        self._format(name, TensorClass.GRADIENTS, op.result, op.exponent.data)

    def _batch_norm(self, op: BatchNormOp) -> None:
        sums = self._sums(op, op.sums, FORWARD_TERMS)
        scale, shift = (f"{op.label.data}.{part}" for part in BATCH_NORM_COEFFICIENTS)
        self.steps.append(
            BatchNormForwardStep(
                layer=op.label.data,
                source=self.kernels.name(op, sums.inputs[0]),
                sums=sums.label.data,
                weight=scale,
                bias=shift,
                weight_bits=width(op.scale),
                bias_bits=width(op.shift),
                epsilon=op.epsilon.data,
                momentum=op.momentum.data,
            )
        )
        self._coefficients((scale, op.scale), (shift, op.shift), op.exponent.data)

    def _batch_norm_gradient(self, op: BatchNormGradientOp) -> None:
        sums = self._sums(op, op.gradient_sums, BACKWARD_TERMS)
        scale, shift, gamma, beta = (f"{op.label.data}.{part}" for part in BATCH_NORM_GRADIENTS)
        source, gradient = (self.kernels.name(op, value) for value in sums.inputs)
        self.steps.append(
            BatchNormBackwardStep(
                layer=op.label.data,
                source=source,
                gradient=gradient,
                sums=sums.label.data,
                weight=scale,
                bias=shift,
                weight_bits=width(op.scale),
                bias_bits=width(op.shift),
                parameter_gradient_bits=width(op.gamma_gradient),
            )
        )
        self._coefficients((scale, op.scale), (shift, op.shift), op.exponent.data)
        for name, value in ((gamma, op.gamma_gradient), (beta, op.beta_gradient)):
            self.gradients[value] = name
            self._format(name, TensorClass.WEIGHT_GRADIENTS, value, op.gradient_exponent.data)

    def _sums(self, op: Operation, value: SSAValue, terms: tuple[tuple[int, ...], ...]) -> ChannelSumsOp:
        sums = value.owner
        if not isinstance(sums, ChannelSumsOp) or sums.terms.data != terms:
            raise refusal(op, "reads other sums than the host needs", f"terms = {TermsAttr(terms)} of fx.channel_sums")
        return sums

    def _coefficients(self, scale: tuple[str, SSAValue], shift: tuple[str, SSAValue], policy: TensorPolicy) -> None:
        for (name, value), tensor_class in ((scale, TensorClass.WEIGHTS), (shift, TensorClass.BIASES)):
            self.kernels.declare(value, name)
            self._format(name, tensor_class, value, policy)

    def _update(self, op: UpdateOp) -> None:
        """One parameter: its places are declared, and they and its gradient have its name."""
        name, sizes, gradient = op.label.data, parameter_sizes(op.places[0]), op.gradient
        places = [self.declared[place] for place in op.places if place in self.declared]
        expected = [name, f"{name}.master", f"{name}.velocity"][: len(op.places)]
        if [place.label.data for place in places] != expected:
            raise refusal(op, f"the places of {name} are no parameters called {', '.join(expected)}")
        if self.gradients.get(gradient) != f"{name}.grad":
            raise refusal(op, f"{name} is not updated by its gradient, {name}.grad")
        steps = op.steps()
        momentum = next((step for step in steps if isinstance(step, MomentumOp)), None)
        decayed = momentum or next(step for step in steps if isinstance(step, DescendOp))
        end = steps[-1]
        assert isinstance(end, QuantizeOp)
        spec = UpdateSpec(
            name=name,
            master_bits=width(op.places[1]),
            gradient_bits=width(gradient),
            velocity_bits=None if momentum is None else width(op.places[2]),
            working_bits=width(op.places[0]),
            momentum=None if momentum is None else momentum.momentum.data,
            decay=None if decayed.decay is None else decayed.decay.data,
        )
        self.steps.append(UpdateStep(name, spec, end.rounding.data))
        self.parameters.append(ParameterFormat(name, sizes, spec.working_bits, spec.master_bits))
        working = TensorClass.WEIGHTS if len(sizes) > 1 else TensorClass.BIASES
        classes = (working, TensorClass.MASTER_WEIGHTS, TensorClass.MASTER_WEIGHTS)
        for place, tensor_class in zip(places, classes, strict=False):
            self.kernels.check_tensor(op, place.result, tensor_class)
            self._format(place.label.data, tensor_class, place.result, place.exponent.data)

    def _format(self, name: str, tensor_class: TensorClass, value: SSAValue, policy: TensorPolicy) -> None:
        self.formats[name] = TensorFormat(tensor_class, width(value), policy)

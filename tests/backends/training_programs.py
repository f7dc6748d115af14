"""Training programs built by hand, one layer at a time, with a reverse mode of their own: for tests of backends."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from binpoint.backends.gradients import (
    AveragePoolGradient,
    BiasGradient,
    ChannelAffine,
    ChannelSlice,
    ClipGradient,
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    LeakyReluGradient,
    MaxPoolGradient,
    ReluGradient,
    ResizeGradient,
    SigmoidGradient,
    SumsSpec,
    UpdateSpec,
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
    Operation,
    Relu,
    Reshape,
    Resize,
    Sigmoid,
    TensorSpec,
    Widen,
)
from binpoint.backends.program import KernelCall, ProgramInput
from binpoint.backends.training_program import (
    BatchNormBackwardStep,
    BatchNormForwardStep,
    KernelStep,
    LossStep,
    ParameterFormat,
    Phase,
    SumsStep,
    TrainingProgram,
    UpdateStep,
)
from binpoint.support.numeric import FixedConstant, fixed_constant


@dataclass
class TrainingBuilder:
    """Collects layers, then adds loss, backward and update. Every method of a layer returns its name."""

    bits: int = 16
    accumulator: Accumulator = field(default_factory=lambda: Accumulator(64))
    momentum: FixedConstant | None = None
    decay: FixedConstant | None = None
    scale_exponent: int = 0

    def __post_init__(self) -> None:
        self.inputs: list[ProgramInput] = []
        self.maps: dict[str, TensorSpec] = {}
        self.forward: list[KernelStep | SumsStep | BatchNormForwardStep] = []
        self.parameters: dict[str, tuple[int, ...]] = {}

    def input(self, channels: int, height: int, width: int) -> str:
        self.maps["image"] = TensorSpec(channels, height, width, self.bits)
        self.inputs.append(ProgramInput("image", self.maps["image"]))
        return "image"

    def layer(
        self, name: str, operation: Operation, inputs: list[str], shape: tuple[int, ...], activation: Activation | None
    ) -> str:
        """Any kernel without parameters, or a convolution with weights and perhaps a bias."""
        weight = bias = None
        if isinstance(operation, Convolution):
            channels = self.maps[inputs[0]].channels // operation.groups
            weight = f"{name}.weight"
            self.parameters[weight] = (shape[0], channels, *operation.kernel)
            if operation.bias_bits is not None:
                bias = f"{name}.bias"
                self.parameters[bias] = (shape[0],)
        self._call(name, operation, inputs, shape, activation, weight, bias)
        return name

    def batch_norm(self, name: str, source: str, activation: Activation | None = None) -> str:
        tensor = self.maps[source]
        for each in ("gamma", "beta"):
            self.parameters[f"{name}.{each}"] = (tensor.channels,)
        sums = SumsSpec(f"{name}.sums", (tensor,), ((0,), (0, 0)))
        self.forward.append(SumsStep(Phase.FORWARD, sums.name, sums, (source,)))
        weight, bias = f"{name}.scale", f"{name}.shift"
        self.forward.append(
            BatchNormForwardStep(name, source, sums.name, weight, bias, 16, 16, epsilon=Fraction(1, 100))
        )
        self._call(name, ChannelAffine(16, 16), [source], tensor.shape, activation, weight, bias)
        return name

    def program(self, logits: str) -> TrainingProgram:
        """The layers with loss, gradients of everything that has a parameter before it, and updates."""
        loss = LossStep(logits, f"{logits}.grad", self.bits, self.scale_exponent)
        backward = _Backward(self, {logits: [loss.gradient]})
        for step in reversed(self.forward):
            if isinstance(step, KernelStep):
                backward.differentiate(step.call)
        updates = [
            UpdateStep(
                name, UpdateSpec(name, 32, 16, None if self.momentum is None else 32, 16, self.momentum, self.decay)
            )
            for name in self.parameters
        ]
        return TrainingProgram(
            "network",
            tuple(self.inputs),
            (*self.forward, loss, *backward.steps, *updates),
            logits,
            tuple(ParameterFormat(name, shape, 16, 32) for name, shape in self.parameters.items()),
        )

    def _call(self, name, operation, inputs, shape, activation, weight, bias) -> None:
        output = TensorSpec(*shape, self.bits)
        self.maps[name] = output
        spec = KernelSpec(
            name, operation, tuple(self.maps[each] for each in inputs), output, activation, self.accumulator
        )
        self.forward.append(KernelStep(Phase.FORWARD, KernelCall(spec, tuple(inputs), weight, bias)))


class _Backward:
    """Reverse mode over the forward kernels; `found` maps a feature map to the names of the gradients it was handed."""

    def __init__(self, builder: TrainingBuilder, found: dict[str, list[str]]) -> None:
        self.builder = builder
        self.found = defaultdict(list, found)
        self.steps: list[KernelStep | SumsStep | BatchNormBackwardStep] = []
        self.trained = self._trained()

    def _trained(self) -> set[str]:
        """Feature maps with a parameter before them."""
        trained: set[str] = set()
        for step in self.builder.forward:
            if isinstance(step, KernelStep):
                call = step.call
                if call.weight is not None or trained & set(call.inputs):
                    trained.add(call.spec.name)
        return trained

    def differentiate(self, call: KernelCall) -> None:
        spec, name = call.spec, call.spec.name
        if name not in self.found:
            return
        gradient = self._total(name)
        gradient = self._activation(spec, gradient)
        if isinstance(spec.operation, Convolution):
            self._convolution(call, spec.operation, gradient)
        elif isinstance(spec.operation, ChannelAffine):
            self._batch_norm(call, gradient)
        else:
            self._others(call, gradient)

    def _total(self, name: str) -> str:
        handed = self.found[name]
        if len(handed) == 1:
            return handed[0]
        tensor = self.builder.maps[name]
        return self.kernel(f"{name}.grad.sum", Add(), [(each, tensor) for each in handed], tensor)

    def _activation(self, spec: KernelSpec, gradient: str) -> str:
        match spec.activation:
            case Relu():
                operation = ReluGradient()
            case Clip(limit):
                operation = ClipGradient(limit)
            case LeakyRelu(slope):
                operation = LeakyReluGradient(slope)
            case _:
                return gradient
        return self.kernel(
            f"{spec.name}.grad.mask", operation, [(spec.name, spec.output), (gradient, spec.output)], spec.output
        )

    def _convolution(self, call: KernelCall, convolution: Convolution, gradient: str) -> None:
        spec, source = call.spec, call.inputs[0]
        x, y = spec.inputs[0], spec.output
        dw = TensorSpec(x.channels // convolution.groups, *convolution.kernel, 16)
        self.kernel(f"{call.weight}.grad", ConvolutionWeightGradient(convolution), [(source, x), (gradient, y)], dw)
        if call.bias is not None:
            self.kernel(f"{call.bias}.grad", BiasGradient(), [(gradient, y)], TensorSpec(1, 1, 1, 16))
        self._hand(call, 0, ConvolutionDataGradient(convolution), [(gradient, y)], call.weight)

    def _batch_norm(self, call: KernelCall, gradient: str) -> None:
        spec, source, name = call.spec, call.inputs[0], call.spec.name
        x, y = spec.inputs[0], spec.output
        sums = SumsSpec(f"{name}.grad.sums", (x, y), ((1,), (1, 0)))
        self.steps.append(SumsStep(Phase.BACKWARD, sums.name, sums, (source, gradient)))
        weight, bias = f"{name}.grad.scale", f"{name}.grad.shift"
        self.steps.append(
            BatchNormBackwardStep(name, source, gradient, sums.name, weight, bias, 16, 16, parameter_gradient_bits=16)
        )
        self._hand(call, 0, ChannelAffine(16, 16), [(gradient, y), (source, x)], weight, bias)

    def _others(self, call: KernelCall, gradient: str) -> None:
        spec, y = call.spec, call.spec.output
        dy = gradient, y
        start = 0
        for index, (source, x) in enumerate(zip(call.inputs, spec.inputs, strict=True)):
            match spec.operation:
                case Add() | Widen():
                    if source in self.trained:
                        self.found[source].append(gradient)
                case Concat():
                    self._hand(call, index, ChannelSlice(start), [dy])
                    start += x.channels
                case MaxPool() as pool:
                    self._hand(call, index, MaxPoolGradient(pool), [(source, x), dy])
                case AveragePool() as pool:
                    self._hand(call, index, AveragePoolGradient(pool), [dy])
                case Resize():
                    self._hand(call, index, ResizeGradient(), [dy])
                case Reshape():
                    self._hand(call, index, Reshape(), [dy])
                case Sigmoid():
                    self._hand(call, index, SigmoidGradient(), [(spec.name, y), dy])

    def _hand(self, call: KernelCall, index: int, operation, inputs, weight=None, bias=None) -> None:
        """A kernel that gives the gradient of one input, where somebody needs it."""
        source = call.inputs[index]
        if source in self.trained:
            name = self.kernel(
                f"{call.spec.name}.grad.{index}", operation, inputs, call.spec.inputs[index], weight, bias
            )
            self.found[source].append(name)

    def kernel(self, name, operation, inputs, output, weight=None, bias=None) -> str:
        tensors = tuple(tensor for _, tensor in inputs)
        spec = KernelSpec(name, operation, tensors, output, accumulator=self.builder.accumulator)
        call = KernelCall(spec, tuple(each for each, _ in inputs), weight, bias)
        self.steps.append(KernelStep(Phase.BACKWARD, call))
        return name


LINEAR = Convolution((1, 1), bias_bits=16)
LEAKY, RELU6 = LeakyRelu(fixed_constant(Fraction(1, 10), 8)), Clip(fixed_constant(Fraction(1, 2), 8))


def network(middle, **options):
    """stem -> middle -> linear: the stem's gradient passes through the layer under test.

    `middle` takes the builder and the stem's name, a map of 4x5x6, and returns the name and size of its result.
    """
    builder = TrainingBuilder(**options)
    stem = builder.layer("stem", LINEAR, [builder.input(2, 5, 6)], (4, 5, 6), None)
    name, (channels, height, width) = middle(builder, stem)
    flat = builder.layer("flat", Reshape(), [name], (channels * height * width, 1, 1), None)
    return builder.program(builder.layer("head", LINEAR, [flat], (3, 1, 1), None))


def single(operation, shape, activation=None):
    return lambda builder, stem: (builder.layer("layer", operation, [stem], shape, activation), shape)


def fan_out(builder, stem):
    """The stem is read three times, twice by the same sum."""
    side = builder.layer("side", Convolution((3, 3), padding=(1, 1, 1, 1)), [stem], (4, 5, 6), Relu())
    return builder.layer("sum", Add(), [stem, side, stem], (4, 5, 6), Relu()), (4, 5, 6)


def joined(builder, stem):
    side = builder.layer("side", Convolution((3, 3), padding=(1, 1, 1, 1)), [stem], (3, 5, 6), None)
    return builder.layer("join", Concat(), [side, stem, side], (10, 5, 6), Relu()), (10, 5, 6)


def normalised(activation):
    def middle(builder, stem):
        conv = builder.layer("conv", Convolution((3, 3)), [stem], (5, 3, 4), None)
        return builder.batch_norm("norm", conv, activation), (5, 3, 4)

    return middle


LAYERS = {
    "conv": single(Convolution((3, 3), padding=(1, 1, 1, 1), bias_bits=16), (3, 5, 6)),
    "conv-stride-asymmetric": single(Convolution((3, 2), (2, 3), (2, 0, 1, 1), bias_bits=16), (3, 3, 2), Relu()),
    "conv-groups-dilation": single(Convolution((2, 3), (1, 2), (0, 2, 1, 2), (3, 2), groups=2), (6, 3, 3)),
    "depthwise": single(Convolution((3, 3), (2, 1), groups=4), (8, 2, 4), LEAKY),
    "relu": single(Widen(), (4, 5, 6), Relu()),
    "relu6": single(Widen(), (4, 5, 6), RELU6),
    "leaky": single(Widen(), (4, 5, 6), LEAKY),
    "sigmoid": single(Sigmoid(), (4, 5, 6)),
    "max-pool": single(MaxPool((3, 2), (2, 1), (1, 0, 1, 1)), (4, 3, 6)),
    "average-pool": single(AveragePool((3, 3), (2, 1), (1, 1, 1, 1), constant_bits=16), (4, 3, 6)),
    "average-pool-padding": single(AveragePool((2, 3), (1, 2), (1, 1, 0, 0), True, 16), (4, 5, 3), Relu()),
    "global-max-pool": single(MaxPool((5, 6), (5, 6)), (4, 1, 1)),
    "global-average-pool": single(AveragePool((5, 6), (5, 6), constant_bits=16), (4, 1, 1)),
    "upsample": single(Resize(), (4, 10, 12)),
    "resize": single(Resize(), (4, 7, 4)),
    "reshape": single(Reshape(), (10, 4, 3)),
    "add": fan_out,
    "concat": joined,
    "batch-norm": normalised(None),
    "batch-norm-relu": normalised(Relu()),
}
"""Every kind of layer that has a gradient; linear is the head of each network, cross-entropy its loss."""


def mini_batch(program, images=4, seed=3):
    rng = np.random.default_rng(seed)
    tensor = program.inputs[0].tensor
    return {"image": rng.normal(size=(images, *tensor.shape))}, rng.integers(0, 3, images)


def lenet(bits: int = 8) -> TrainingProgram:
    """LeNet-5 with ReLU and max pools on 28x28 digits."""
    builder = TrainingBuilder(bits, Accumulator())
    image = builder.input(1, 28, 28)
    pool, relu = MaxPool((2, 2), (2, 2)), Relu()
    conv = Convolution((5, 5), padding=(2, 2, 2, 2), bias_bits=16)
    x = builder.layer("conv1", conv, [image], (6, 28, 28), relu)
    x = builder.layer("pool1", pool, [x], (6, 14, 14), None)
    x = builder.layer("conv2", replace(conv, padding=(0, 0, 0, 0)), [x], (16, 10, 10), relu)
    x = builder.layer("pool2", pool, [x], (16, 5, 5), None)
    x = builder.layer("flat", Reshape(), [x], (400, 1, 1), None)
    x = builder.layer("fc1", LINEAR, [x], (120, 1, 1), relu)
    x = builder.layer("fc2", LINEAR, [x], (84, 1, 1), relu)
    return builder.program(builder.layer("fc3", LINEAR, [x], (10, 1, 1), None))


def first_parameters(program: TrainingProgram, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights of variance 2 / fan-in, biases near 0, gammas near 1."""
    rng = np.random.default_rng(seed)
    found = {}
    for each in program.parameters:
        spread = np.sqrt(2 / np.prod(each.shape[1:])) if len(each.shape) == 4 else 0.1
        found[each.name] = rng.normal(0, spread, each.shape) + each.name.endswith("gamma")
    return found

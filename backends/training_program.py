"""A training program: forward, loss, backward and update as steps in order, as host and accelerator execute them.

Tensors have names: `conv1` is a layer's result, `conv1.grad` its gradient, `conv1.weight.grad` that of a parameter.
Every step reads names that earlier steps wrote. A kernel step runs on the accelerator; a host step is arithmetic that
stays in floating point, and the IR marks it so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from binpoint.backends.gradients import SumsSpec, UpdateSpec
from binpoint.backends.program import KernelCall, ProgramInput
from binpoint.support.numeric import Rounding, TensorClass, TensorPolicy
from binpoint.support.phases import Phase as Phase


@dataclass(frozen=True)
class KernelStep:
    """One kernel on the accelerator. `call.spec.name` names the result; gradients of parameters have K rows."""

    phase: Phase
    call: KernelCall


@dataclass(frozen=True)
class SumsStep:
    """Exact sums over images and pixels of each channel, read back by the host: the moments of a batch norm.

    `name` names the int64 result (terms, C); it has the exponents of its inputs, not one of its own.
    """

    phase: Phase
    name: str
    spec: SumsSpec
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class LossStep:
    """Host, float64: softmax and cross-entropy of `logits` against the labels, the mean over the mini-batch.

    Writes `gradient`, (softmax - one hot) / N times 2^`scale_exponent`, quantised half-even to `bits`.
    """

    logits: str
    gradient: str
    bits: int
    scale_exponent: int = 0


@dataclass(frozen=True)
class BatchNormForwardStep:
    """Host, float64: mean and variance of a channel from exact sums, then the coefficients of the affine kernel.

    Reads `sums` = (sum x, sum x^2) of `source`, and the parameters gamma and beta. Writes the quantised parameters
    `weight` (1, C, 1, 1) = gamma / sqrt(variance + epsilon) and `bias` (C,) = beta - mean * weight; moves the running
    mean and variance of `layer` by `momentum`.
    """

    layer: str
    source: str
    sums: str
    weight: str
    bias: str
    weight_bits: int
    bias_bits: int
    epsilon: Fraction
    momentum: Fraction = Fraction(1, 10)


@dataclass(frozen=True)
class BatchNormBackwardStep:
    """Host, float64: gradients of gamma and beta, and the coefficients of dx = A * dy + B * x + C.

    Reads `sums` = (sum dy, sum dy * x) and what the forward step kept. Writes `weight` (2, C, 1, 1) = (A, B) and
    `bias` (C,) = C, and the quantised gradients of the parameters gamma and beta.
    """

    layer: str
    source: str
    gradient: str
    sums: str
    weight: str
    bias: str
    weight_bits: int
    bias_bits: int
    parameter_gradient_bits: int


@dataclass(frozen=True)
class UpdateStep:
    """SGD on one parameter, on the accelerator: masters, velocity and the working copy of the next mini-batch.

    Reads `<parameter>.grad`; moves `<parameter>.master`, `<parameter>.velocity` (with momentum) and `<parameter>`.
    """

    parameter: str
    spec: UpdateSpec
    rounding: Rounding = Rounding.HALF_EVEN


Step = KernelStep | SumsStep | LossStep | BatchNormForwardStep | BatchNormBackwardStep | UpdateStep


@dataclass(frozen=True)
class ParameterFormat:
    """A trained parameter: its shape (4-D for weights, (C,) for biases, gamma and beta) and its widths in bits."""

    name: str
    shape: tuple[int, ...]
    bits: int
    master_bits: int


@dataclass(frozen=True)
class TensorFormat:
    """A tensor with an exponent of its own: its class, width and policy."""

    tensor_class: TensorClass
    bits: int
    policy: TensorPolicy = TensorPolicy()


@dataclass(frozen=True)
class TrainingProgram:
    """Everything that one mini-batch does.

    `formats` has an entry for every tensor with an exponent of its own: inputs, results of kernels that quantise,
    gradients, working parameters (`conv1.weight`), masters (`conv1.weight.master`), velocities
    (`conv1.weight.velocity`), gradients of parameters, batch-norm coefficients. `logits` names what accuracy is
    measured on. `batch` is the number of images of a mini-batch, which the proofs of accumulators hold for.
    """

    name: str
    inputs: tuple[ProgramInput, ...]
    steps: tuple[Step, ...]
    logits: str
    parameters: tuple[ParameterFormat, ...]
    formats: Mapping[str, TensorFormat] = field(default_factory=dict)
    batch: int = 64

"""A training program in floating point: the yardstick of `train --float`, and the trial that gives first exponents.

Every step of the program is computed for what it stands for, in NumPy with BLAS. The difference to fixed point is
quantisation alone: constants of activations, momentum, decay and rate are the same fixed-point numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from binpoint.backends.float_kernels import run_kernel
from binpoint.backends.float_reference import FloatArray, real
from binpoint.backends.gradients import PARAMETER_GRADIENTS
from binpoint.backends.training_program import (
    BatchNormBackwardStep,
    BatchNormForwardStep,
    KernelStep,
    LossStep,
    Phase,
    Step,
    SumsStep,
    TrainingProgram,
    UpdateStep,
)
from binpoint.backends.workspace import Workspace
from binpoint.support.numeric import FixedConstant

Labels = NDArray[np.integer]


@dataclass(frozen=True)
class FloatStep:
    """One mini-batch: the mean cross-entropy in nats, and how many images have their highest score at their label."""

    loss: float
    correct: int


@dataclass(frozen=True)
class _Normalised:
    """What the backward pass needs of a batch norm's forward pass, by channel, in float64."""

    count: int
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]


class FloatTraining:
    """SGD in floating point.

    Args:
        program: what a mini-batch does. A scale of the loss changes exponents alone, so it only shows in `tensors`.
        parameters: first values by name, of any shape with the right elements in order.
        running: first running means and variances of batch norms (`bn1.mean`, `bn1.variance`), (C,) each.
        dtype: the type to compute in. The loss and the coefficients of batch norms are computed in float64, as the
            host does.
    """

    def __init__(
        self,
        program: TrainingProgram,
        parameters: Mapping[str, FloatArray],
        running: Mapping[str, FloatArray] | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.program = program
        self.parameters: dict[str, FloatArray] = {
            each.name: np.array(parameters[each.name], dtype).reshape(each.shape) for each in program.parameters
        }
        self.velocities: dict[str, FloatArray] = {
            step.parameter: np.zeros_like(self.parameters[step.parameter])
            for step in program.steps
            if isinstance(step, UpdateStep) and step.spec.momentum is not None
        }
        self.running = {name: np.array(values, np.float64) for name, values in (running or {}).items()}
        self._dtype = np.dtype(dtype)
        self._workspace = Workspace(dtype)
        self._maps: dict[str, FloatArray] = {}
        """Feature maps and their gradients of the latest mini-batch, (C, N, H, W)."""
        self._others: dict[str, FloatArray] = {}
        """Everything else that steps read: working parameters, coefficients, sums, gradients of parameters."""
        self._normalised: dict[str, _Normalised] = {}
        self._loss = FloatStep(0.0, 0)

    def step(self, inputs: Mapping[str, FloatArray], labels: Labels, rate: FixedConstant) -> FloatStep:
        """Train on one mini-batch.

        Args:
            inputs: (N, C, H, W) numbers by input name, scaled and centred.
            labels: (N,).
            rate: the learning rate.
        """
        self._begin(inputs)
        for step in self.program.steps:
            match step:
                case LossStep():
                    self._cross_entropy(step, labels)
                case UpdateStep():
                    self._update(step, rate)
                case BatchNormForwardStep():
                    self._normalise(step)
                case BatchNormBackwardStep():
                    self._normalise_backward(step)
                case _:
                    self._accelerate(step)
        return self._loss

    def logits(self, inputs: Mapping[str, FloatArray]) -> FloatArray:
        """The scores (N, K) of any number of images, normalised by the running statistics; nothing moves."""
        self._begin(inputs)
        for step in self.program.steps:
            if isinstance(step, BatchNormForwardStep):
                self._coefficients(step, self.running[f"{step.layer}.mean"], self.running[f"{step.layer}.variance"])
            elif isinstance(step, KernelStep) and step.phase is Phase.FORWARD:
                self._accelerate(step)
        return np.array(self._maps[self.program.logits][:, :, 0, 0].T)

    def tensors(self) -> dict[str, FloatArray]:
        """Every tensor of the latest mini-batch by name.

        Feature maps are (N, C, H, W). A parameter is what the mini-batch read, `.master` what the update left.
        Gradients are 2^scale as large as those of the loss, as in fixed point. The arrays are read-only views.
        """
        scale = 2.0 ** self._scale_exponent()
        scaled = self._gradients()
        found = {name: maps.transpose(1, 0, 2, 3) for name, maps in self._maps.items()} | self._others
        found = {name: values * scale if name in scaled else values.view() for name, values in found.items()}
        found |= {f"{name}.master": values.view() for name, values in self.parameters.items()}
        found |= {f"{name}.velocity": values.view() for name, values in self.velocities.items()}
        for values in found.values():
            values.setflags(write=False)
        return found

    def _begin(self, inputs: Mapping[str, FloatArray]) -> None:
        self._maps = {
            each.name: np.ascontiguousarray(inputs[each.name].transpose(1, 0, 2, 3), self._dtype)
            for each in self.program.inputs
        }
        self._others = dict(self.parameters)

    def _scale_exponent(self) -> int:
        return next((step.scale_exponent for step in self.program.steps if isinstance(step, LossStep)), 0)

    def _gradients(self) -> set[str]:
        """What the backward pass writes: gradients of feature maps and of parameters, but no coefficients."""
        names = set()
        for step in self.program.steps:
            match step:
                case LossStep():
                    names.add(step.gradient)
                case KernelStep(Phase.BACKWARD, call):
                    names.add(call.spec.name)
                case SumsStep(Phase.BACKWARD, name):
                    names.add(name)
                case BatchNormBackwardStep():
                    names |= {f"{step.layer}.gamma.grad", f"{step.layer}.beta.grad"}
        return names

    def _accelerate(self, step: Step) -> None:
        """A step that fixed point computes on the accelerator."""
        if isinstance(step, SumsStep):
            maps = [self._maps[name] for name in step.inputs]
            terms = [_channel_sums([maps[index] for index in term]) for term in step.spec.terms]
            self._others[step.name] = np.stack(terms)
        elif isinstance(step, KernelStep):
            call = step.call
            weight, bias = (None if name is None else self._others[name] for name in (call.weight, call.bias))
            result = run_kernel(call.spec, [self._maps[name] for name in call.inputs], weight, bias, self._workspace)
            home = self._others if isinstance(call.spec.operation, PARAMETER_GRADIENTS) else self._maps
            home[call.spec.name] = result

    def _cross_entropy(self, step: LossStep, labels: Labels) -> None:
        scores = self._maps[step.logits][:, :, 0, 0].T.astype(np.float64)
        shifted = scores - scores.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        sums = exponentials.sum(axis=1, keepdims=True)
        images = np.arange(len(scores))
        gradient = exponentials / sums
        gradient[images, labels] -= 1
        self._maps[step.gradient] = (gradient / len(scores)).T.astype(self._dtype)[:, :, np.newaxis, np.newaxis]
        loss = float(np.mean(np.log(sums[:, 0]) - shifted[images, labels]))
        self._loss = FloatStep(loss, int(np.count_nonzero(scores.argmax(axis=1) == labels)))

    def _normalise(self, step: BatchNormForwardStep) -> None:
        """Normalise by the mini-batch; the running statistics move."""
        count = self._maps[step.source][0].size
        mean, square = self._others[step.sums] / count
        variance = np.maximum(square - mean * mean, 0)
        self._normalised[step.layer] = _Normalised(count, mean, self._coefficients(step, mean, variance))
        unbiased = variance * (count / max(count - 1, 1))
        for name, value in ((f"{step.layer}.mean", mean), (f"{step.layer}.variance", unbiased)):
            if name in self.running:
                self.running[name] += float(step.momentum) * (value - self.running[name])

    def _coefficients(
        self, step: BatchNormForwardStep, mean: NDArray[np.float64], variance: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Write those of y = A * x + B; returns the deviation."""
        deviation = np.sqrt(variance + float(step.epsilon))
        gamma, beta = (self._others[f"{step.layer}.{name}"].astype(np.float64) for name in ("gamma", "beta"))
        self._write(step, [gamma / deviation], beta - mean * gamma / deviation)
        return deviation

    def _normalise_backward(self, step: BatchNormBackwardStep) -> None:
        """dx = A * dy + B * x + C, and the gradients of gamma and beta; see Ioffe and Szegedy, ICML 2015."""
        kept = self._normalised[step.layer]
        gradient_sum, product_sum = self._others[step.sums]
        along = product_sum - kept.mean * gradient_sum  # the sum of dy * (x - mean)
        scale = self._others[f"{step.layer}.gamma"].astype(np.float64) / kept.deviation
        slope = -scale * along / kept.deviation**2 / kept.count
        self._write(step, [scale, slope], -scale * gradient_sum / kept.count - slope * kept.mean)
        self._others[f"{step.layer}.gamma.grad"] = (along / kept.deviation).astype(self._dtype)
        self._others[f"{step.layer}.beta.grad"] = gradient_sum.astype(self._dtype)

    def _write(
        self,
        step: BatchNormForwardStep | BatchNormBackwardStep,
        coefficients: list[NDArray[np.float64]],
        constants: NDArray[np.float64],
    ) -> None:
        """The parameters of an affine kernel: (inputs, C, 1, 1) and (C,)."""
        self._others[step.weight] = np.stack(coefficients)[:, :, np.newaxis, np.newaxis].astype(self._dtype)
        self._others[step.bias] = constants.astype(self._dtype)

    def _update(self, step: UpdateStep, rate: FixedConstant) -> None:
        name, spec = step.parameter, step.spec
        parameter, direction = self.parameters[name], self._others[f"{name}.grad"]
        direction = direction.reshape(parameter.shape)
        if spec.decay is not None:
            direction = direction + real(spec.decay) * parameter
        if spec.momentum is not None:
            direction = real(spec.momentum) * self.velocities[name] + direction
            self.velocities[name] = direction
        self.parameters[name] = parameter - real(rate) * direction


def _channel_sums(factors: list[FloatArray]) -> NDArray[np.float64]:
    """The sum of the factors' products over images and pixels of each channel, (C,), in float64."""
    rows = [factor.reshape(len(factor), -1) for factor in factors]
    subscripts = ",".join("cp" for _ in rows) + "->c"
    return np.asarray(np.einsum(subscripts, *rows, dtype=np.float64))

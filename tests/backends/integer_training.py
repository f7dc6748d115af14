"""A training program on the oracle, its host steps in float64: for tests that follow a whole mini-batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from binpoint.backends.gradients import ChannelAffine
from binpoint.backends.kernel import KernelExponents, KernelParameters
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.training_backend import UpdateExponents, UpdateResult
from binpoint.backends.training_program import (
    BatchNormBackwardStep,
    BatchNormForwardStep,
    KernelStep,
    LossStep,
    Phase,
    SumsStep,
    TrainingProgram,
    UpdateStep,
)
from binpoint.support.numeric import FixedConstant, Rounding

BACKEND = OracleBackend()


def fitting_exponent(values: np.ndarray, bits: int) -> int:
    """The finest exponent at which the largest of the values fits."""
    return int(np.frexp(np.abs(values).max())[1]) - (bits - 1)


@dataclass
class Mantissas:
    values: np.ndarray
    exponent: int

    @property
    def real(self) -> np.ndarray:
        return np.ldexp(self.values.astype(np.float64), self.exponent)


@dataclass
class IntegerTraining:
    """One mini-batch at given exponents; gradients are 2^scale as large as those of the loss."""

    program: TrainingProgram
    exponents: dict[str, int]
    bits: int = 16
    scale: int = 0
    tensors: dict[str, Mantissas] = field(default_factory=dict)
    updates: dict[str, UpdateResult] = field(default_factory=dict)

    def quantise(self, name: str, values: np.ndarray, bits: int | None = None) -> None:
        exponent, half = self.exponents[name], 1 << ((bits or self.bits) - 1)
        mantissas = np.clip(np.rint(np.ldexp(values, -exponent)), -half, half - 1).astype(np.int64)
        self.tensors[name] = Mantissas(mantissas, exponent)

    def step(self, inputs: dict, parameters: dict, labels: np.ndarray, rate: FixedConstant) -> None:
        for name, values in {**inputs, **parameters}.items():
            self.quantise(name, values)
        for each in self.program.parameters:
            self.quantise(f"{each.name}.master", parameters[each.name], each.master_bits)
        epsilons = {}
        for step in self.program.steps:
            match step:
                case KernelStep():
                    self._kernel(step)
                case SumsStep(_, name, spec, sources):
                    buffers = [
                        BACKEND.upload(self.tensors[each].values, tensor)
                        for each, tensor in zip(sources, spec.inputs, strict=True)
                    ]
                    exponents = [sum(self.tensors[sources[index]].exponent for index in term) for term in spec.terms]
                    sums = BACKEND.prepare_sums(spec)(buffers)
                    self.tensors[name] = Mantissas(sums, np.reshape(exponents, (-1, 1)))
                case LossStep():
                    scores = self.tensors[step.logits].real[:, :, 0, 0]
                    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
                    shares /= shares.sum(axis=1, keepdims=True)
                    shares[np.arange(len(labels)), labels] -= 1
                    self.quantise(step.gradient, np.ldexp(shares / len(labels), self.scale)[:, :, None, None])
                case BatchNormForwardStep():
                    epsilons[step.layer] = float(step.epsilon)
                    mean, variance = self._moments(step.source)
                    factor = self.tensors[f"{step.layer}.gamma"].real / np.sqrt(variance + epsilons[step.layer])
                    self.quantise(step.weight, factor.reshape(1, -1, 1, 1))
                    self.quantise(step.bias, self.tensors[f"{step.layer}.beta"].real - mean * factor)
                case BatchNormBackwardStep():
                    self._batch_norm_backward(step, epsilons[step.layer])
                case UpdateStep():
                    self._update(step, rate)

    def _kernel(self, step: KernelStep) -> None:
        call, spec = step.call, step.call.spec
        sources = [self.tensors[name] for name in call.inputs]
        weight, bias = (None if name is None else self.tensors[name] for name in (call.weight, call.bias))
        shifts = [0] * len(sources)
        if isinstance(spec.operation, ChannelAffine) and step.phase is Phase.BACKWARD:
            shifts = [0, self.scale]  # the coefficients are those of the unscaled loss
        exponents = KernelExponents(
            tuple(each.exponent + shift for each, shift in zip(sources, shifts, strict=True)),
            self.exponents[spec.name],
            weight.exponent if weight else 0,
            bias.exponent + shifts[-1] if bias else 0,
        )
        parameters = KernelParameters(weight.values if weight else None, bias.values if bias else None)
        buffers = [BACKEND.upload(each.values, tensor) for each, tensor in zip(sources, spec.inputs, strict=True)]
        result = BACKEND.prepare(spec, parameters)(buffers, exponents)
        exponent = sources[-1].exponent if spec.exact else self.exponents[spec.name]
        self.tensors[spec.name] = Mantissas(BACKEND.download(result.output).astype(np.int64), exponent)

    def _moments(self, source: str) -> tuple[np.ndarray, np.ndarray]:
        x = self.tensors[source].real
        return x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))

    def _batch_norm_backward(self, step: BatchNormBackwardStep, epsilon: float) -> None:
        mean, variance = self._moments(step.source)
        count, deviation = self.tensors[step.source].values[:, 0].size, np.sqrt(variance + epsilon)
        gradients, products = np.ldexp(self.tensors[step.sums].real, -self.scale)
        along = products - mean * gradients
        factor = self.tensors[f"{step.layer}.gamma"].real / deviation
        slope = -factor * along / deviation**2 / count
        self.quantise(step.weight, np.stack([factor, slope])[:, :, None, None])
        self.quantise(step.bias, -factor * gradients / count - slope * mean)
        self.quantise(f"{step.layer}.gamma.grad", np.ldexp(along / deviation, self.scale))
        self.quantise(f"{step.layer}.beta.grad", np.ldexp(gradients, self.scale))

    def _update(self, step: UpdateStep, rate: FixedConstant) -> None:
        name, spec = step.parameter, step.spec
        master, gradient = self.tensors[f"{name}.master"], self.tensors[f"{name}.grad"]
        shape = master.values.shape if master.values.ndim == 4 else (-1, 1, 1, 1)
        velocity = None if spec.momentum is None else np.zeros_like(master.values).reshape(shape)
        exponents = UpdateExponents(
            master.exponent,
            gradient.exponent - self.scale,
            master.exponent,
            self.exponents[name],
            new_velocity=self.exponents.get(f"{name}.velocity", 0),
        )
        mantissas = master.values.reshape(shape), velocity, gradient.values.reshape(shape)
        self.updates[name] = BACKEND.prepare_update(spec, Rounding.HALF_EVEN)(*mantissas, exponents, rate)


def exponents_of_trial(program: TrainingProgram, tensors: dict[str, np.ndarray], bits: int = 16) -> dict[str, int]:
    """One for every tensor, from the values of a float trial; masters hold what they were and what they became."""
    exponents = {name: fitting_exponent(values, bits) for name, values in tensors.items()}
    for each in program.parameters:
        name = f"{each.name}.master"
        exponents[name] = max(fitting_exponent(tensors[key], each.master_bits) for key in (each.name, name))
    return exponents

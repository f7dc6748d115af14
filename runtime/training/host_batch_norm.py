"""Batch normalisation during training: the host's steps between the accelerator's sums and its affine kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from binpoint.backends.training_program import BatchNormBackwardStep, BatchNormForwardStep
from binpoint.runtime.conversion import dequantize
from binpoint.runtime.training.areas import Area
from binpoint.runtime.training.batch_norm import Affine, Array, Moments, backward_part, forward_affine, moments
from binpoint.runtime.training.exponent_table import ExponentTable
from binpoint.runtime.training.host_tensors import HostTensors, fitting_exponent
from binpoint.runtime.training.link import Link
from binpoint.runtime.training.messages import Stage
from binpoint.runtime.training.names import beta_of, gamma_of, gradient_of, mean_of, variance_of


class HostBatchNorm:
    """Computes in float64 what the affine kernels multiply by, and keeps running statistics.

    Args:
        link: to the accelerator.
        areas: where tensors lie.
        tensors: writes the host's results.
        exponents: of all tensors.
        running: running mean and variance by name, (C,) each; moved by every mini-batch.
    """

    def __init__(
        self,
        link: Link,
        areas: Mapping[str, Area],
        tensors: HostTensors,
        exponents: ExponentTable,
        running: Mapping[str, Array],
    ) -> None:
        self._link, self._areas, self._tensors, self._exponents = link, areas, tensors, exponents
        self.running = {name: np.array(values, np.float64) for name, values in running.items()}
        self._moments: dict[str, Moments] = {}
        self._gammas: dict[str, Array] = {}

    def forward(self, step: BatchNormForwardStep, count: int) -> None:
        """Normalise by the mini-batch, which has `count` values a channel; the running statistics move."""
        sums = self._link.read(self._areas[step.sums].address, Stage.CALL_FORWARD, step.layer)
        found = moments(sums.mantissas, count, sums.exponent)
        gamma, beta = self._parameters(step.layer, Stage.CALL_FORWARD)
        affine = forward_affine(found.mean, found.variance, gamma, beta, float(step.epsilon))
        self._write(step, affine, Stage.CALL_FORWARD)
        self._moments[step.layer], self._gammas[step.layer] = found, gamma
        momentum = float(step.momentum)
        self._move(mean_of(step.layer), found.mean, momentum)
        self._move(variance_of(step.layer), found.unbiased_variance, momentum)

    def infer(self, step: BatchNormForwardStep) -> None:
        """Normalise by the running statistics. Coefficients get the exponents at which they fit; nothing moves."""
        gamma, beta = self._parameters(step.layer, Stage.EVALUATE)
        mean, variance = self.running[mean_of(step.layer)], self.running[variance_of(step.layer)]
        affine = forward_affine(mean, variance, gamma, beta, float(step.epsilon))
        for name, values, bits in (
            (step.weight, affine.coefficients, step.weight_bits),
            (step.bias, affine.constants, step.bias_bits),
        ):
            self._tensors.write(name, values, fitting_exponent(values, bits), bits, Stage.EVALUATE)

    def backward(self, step: BatchNormBackwardStep, epsilon: float, gradient_input: int, scale: int) -> int:
        """Gradients of gamma and beta, and the coefficients of dx. The loss, so dy, is 2^scale times as large.

        `gradient_input` says which input of the sums dy is.

        The coefficients are those of the unscaled loss: A multiplies dy, which has the scale already, and the kernel
        is told that x and C stand for 2^scale times as much. So a scale moves exponents alone.

        B multiplies x, which is many times as large as dy: at the exponent of A it would be all but 0. It is written
        2^s times as large, as large as A, and the kernel has to be told that x stands for 2^-s times as much. Gives s.
        """
        sums = self._link.read(self._areas[step.sums].address, Stage.CALL_BACKWARD, step.layer)
        exponent = sums.exponents[gradient_input] - scale
        part = backward_part(self._moments[step.layer], sums.mantissas, exponent, self._gammas[step.layer], epsilon)
        shift = part.affine.raised()
        self._write(step, part.affine.raise_last(shift), Stage.CALL_BACKWARD)
        for parameter, values in ((gamma_of(step.layer), part.gamma), (beta_of(step.layer), part.beta)):
            name = gradient_of(parameter)
            scaled, bits = np.ldexp(values, scale), step.parameter_gradient_bits
            self._tensors.write(name, scaled, self._exponents[name], bits, Stage.CALL_BACKWARD, observe=True)
        return shift

    def _write(self, step: BatchNormForwardStep | BatchNormBackwardStep, affine: Affine, stage: Stage) -> None:
        for name, values, bits in (
            (step.weight, affine.coefficients, step.weight_bits),
            (step.bias, affine.constants, step.bias_bits),
        ):
            self._tensors.write(name, values, self._exponents[name], bits, stage, observe=True)

    def _parameters(self, layer: str, stage: Stage) -> tuple[Array, Array]:
        gamma, beta = (
            self._link.read(self._areas[name].address, stage, layer) for name in (gamma_of(layer), beta_of(layer))
        )
        return dequantize(gamma.mantissas, gamma.exponent), dequantize(beta.mantissas, beta.exponent)

    def _move(self, name: str, value: Array, momentum: float) -> None:
        # A new array: snapshots keep the old one.
        self.running[name] = self.running[name] + momentum * (value - self.running[name])

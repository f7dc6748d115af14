"""Training in floating point as an engine: the yardstick, from the same start and in the same data order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.float_training import FloatTraining
from binpoint.backends.training_program import TrainingProgram
from binpoint.runtime.data import Labels
from binpoint.runtime.training.engine import MiniBatch, Snapshot, TrainedNetwork
from binpoint.runtime.training.host_tensors import FloatArray
from binpoint.runtime.training.names import velocity_of
from binpoint.support.numeric import FixedConstant


class FloatEngine:
    """Trains a program in float32.

    Args:
        program: what a mini-batch does.
        parameters: first values by name.
        running: running mean and variance of batch normalisations.
        velocities: of a snapshot; None where training begins.
        step: mini-batches so far.
    """

    def __init__(
        self,
        program: TrainingProgram,
        parameters: Mapping[str, NDArray[Any]],
        running: Mapping[str, NDArray[np.float64]],
        velocities: Mapping[str, NDArray[Any]] | None = None,
        step: int = 0,
    ) -> None:
        self._training = FloatTraining(program, parameters, running)
        self._training.velocities.update(velocities or {})
        self.step = step

    @classmethod
    def restore(cls, program: TrainingProgram, snapshot: Snapshot) -> FloatEngine:
        """The engine that left a snapshot; it goes on as if it had never stopped."""
        document, arrays = snapshot.document, snapshot.arrays
        return cls(
            program,
            {parameter.name: arrays[parameter.name] for parameter in program.parameters},
            {name: arrays[name] for name in document["running"]},
            {name: arrays[velocity_of(name)] for name in document["velocities"]},
            document["step"],
        )

    @property
    def exponents(self) -> dict[str, int]:
        """Floating point has none."""
        return {}

    def train(self, inputs: Mapping[str, FloatArray], labels: Labels, rate: FixedConstant) -> MiniBatch:
        """One mini-batch and its update."""
        with np.errstate(over="ignore", invalid="ignore"):  # the loss shows it
            result = self._training.step(inputs, labels, rate)
        self.step += 1
        return MiniBatch(result.loss, result.correct, len(labels))

    def scores(self, inputs: Mapping[str, FloatArray], first: int = 0) -> NDArray[np.float64]:
        """The logits (N, K) in evaluation."""
        return self._training.logits(inputs).astype(np.float64)

    def snapshot(self) -> Snapshot:
        """Everything to go on from here."""
        training = self._training
        velocities = {velocity_of(name): values for name, values in training.velocities.items()}
        running = {name: values.copy() for name, values in training.running.items()}
        return Snapshot(
            training.parameters | velocities | running,
            {"step": self.step, "running": list(training.running), "velocities": list(training.velocities)},
        )

    def trained(self) -> TrainedNetwork:
        """The parameters and running statistics."""
        values = {name: array.astype(np.float64) for name, array in self._training.parameters.items()}
        running = {name: array.copy() for name, array in self._training.running.items()}
        return TrainedNetwork(values, values, running, {})

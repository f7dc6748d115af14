"""Training in dynamic fixed point: a host and an accelerator as one engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.training_program import TrainingProgram
from binpoint.runtime.conversion import dequantize
from binpoint.runtime.data import Labels
from binpoint.runtime.training.accelerator import Accelerator
from binpoint.runtime.training.engine import MiniBatch, Snapshot, TrainedNetwork
from binpoint.runtime.training.exponent_table import ExponentTable
from binpoint.runtime.training.host import Host, StoredTensor
from binpoint.runtime.training.host_tensors import FloatArray
from binpoint.runtime.training.link import Link
from binpoint.runtime.training.machine import Machine
from binpoint.runtime.training.names import master_of
from binpoint.runtime.training.start import first_tensors
from binpoint.support.numeric import FixedConstant


class FixedPointEngine:
    """Trains a program on a machine.

    Args:
        program: what a mini-batch does.
        machine: what it runs on.
        tensors: masters, velocities and working copies.
        exponents: of all tensors.
        running: running mean and variance of batch normalisations.
        step: mini-batches so far.
    """

    def __init__(
        self,
        program: TrainingProgram,
        machine: Machine,
        tensors: Mapping[str, StoredTensor],
        exponents: ExponentTable,
        running: Mapping[str, NDArray[np.float64]],
        step: int = 0,
    ) -> None:
        accelerator = Accelerator(machine.backend, machine.target, machine.acquisition, machine.trace)
        self._host = Host(program, machine, Link(accelerator, machine.trace), exponents, running, step)
        self._host.build()
        self._host.initialise(tensors)

    @classmethod
    def start(
        cls,
        program: TrainingProgram,
        machine: Machine,
        parameters: Mapping[str, NDArray[Any]],
        running: Mapping[str, NDArray[np.float64]],
        exponents: Mapping[str, int],
    ) -> FixedPointEngine:
        """The engine before the first mini-batch: float parameters, running statistics, exponents of all tensors."""
        table = ExponentTable.start(program.formats, exponents)
        return cls(program, machine, first_tensors(program, parameters, exponents), table, running)

    @classmethod
    def restore(cls, program: TrainingProgram, machine: Machine, snapshot: Snapshot) -> FixedPointEngine:
        """The engine that left a snapshot; it goes on as if it had never stopped."""
        document, arrays = snapshot.document, snapshot.arrays
        return cls(
            program,
            machine,
            {name: StoredTensor(arrays[name], exponent) for name, exponent in document["stored"].items()},
            ExponentTable.restore(program.formats, document["exponents"]),
            {name: arrays[name] for name in document["running"]},
            document["step"],
        )

    @property
    def step(self) -> int:
        """Mini-batches so far."""
        return self._host.step

    @property
    def exponents(self) -> dict[str, int]:
        """The exponents at which the next mini-batch stores its results, by tensor."""
        return {name: self._host.exponents[name] for name in self._host.exponents}

    def train(self, inputs: Mapping[str, FloatArray], labels: Labels, rate: FixedConstant) -> MiniBatch:
        """One mini-batch, S3 to S11."""
        return self._host.train(inputs, labels, rate)

    def scores(self, inputs: Mapping[str, FloatArray], first: int = 0) -> NDArray[np.float64]:
        """The logits (N, K) in evaluation."""
        return self._host.scores(inputs, first)

    def snapshot(self) -> Snapshot:
        """Everything to go on from here, read back from the accelerator."""
        tensors = self._host.tensors()
        running = self._host.running
        return Snapshot(
            {name: tensor.mantissas for name, tensor in tensors.items()} | dict(running),
            {
                "step": self.step,
                "stored": {name: tensor.exponent for name, tensor in tensors.items()},
                "running": list(running),
                "exponents": self._host.exponents.state(),
            },
        )

    def trained(self) -> TrainedNetwork:
        """Working copies, masters and running statistics as numbers, and all exponents."""
        program, tensors = self._host.program, self._host.tensors()
        values = {name: dequantize(tensor.mantissas, tensor.exponent) for name, tensor in tensors.items()}
        names = [parameter.name for parameter in program.parameters]
        return TrainedNetwork(
            parameters={name: values[name] for name in names},
            masters={name: values[master_of(name)] for name in names},
            running=dict(self._host.running),
            exponents=self.exponents | {name: tensors[name].exponent for name in names},
        )

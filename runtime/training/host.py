"""The host of JP7367595B2 fig. 1: it drives the accelerator through S1 to S11 of fig. 9, by messages alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import Events, IntArray, TensorSpec
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
from binpoint.runtime.conversion import dequantize
from binpoint.runtime.data import Labels
from binpoint.runtime.policies import Decision
from binpoint.runtime.training.areas import plan_areas
from binpoint.runtime.training.batch_norm import Array
from binpoint.runtime.training.calls import Calls
from binpoint.runtime.training.engine import MiniBatch
from binpoint.runtime.training.exponent_table import ExponentTable
from binpoint.runtime.training.host_batch_norm import HostBatchNorm
from binpoint.runtime.training.host_tensors import FloatArray, HostTensors
from binpoint.runtime.training.link import Link
from binpoint.runtime.training.loss import Loss, cross_entropy
from binpoint.runtime.training.machine import Machine
from binpoint.runtime.training.messages import ReserveArea, SetExponents, Stage, Write
from binpoint.runtime.training.names import master_of, velocity_of
from binpoint.support.numeric import FixedConstant


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """Mantissas and the exponent that they stand at."""

    mantissas: IntArray
    exponent: int


class Host:
    """Trains a program on the accelerator at the other end of a link.

    Args:
        program: what a mini-batch does.
        machine: how it is done.
        link: to the accelerator.
        exponents: of all tensors; the host moves them.
        running: running mean and variance of batch normalisations by name, (C,) each; the host moves copies of them.
        step: mini-batches before the first one.
    """

    def __init__(
        self,
        program: TrainingProgram,
        machine: Machine,
        link: Link,
        exponents: ExponentTable,
        running: Mapping[str, Array],
        step: int = 0,
    ) -> None:
        self.program, self.exponents, self.step = program, exponents, step
        self._link = link
        self._areas = plan_areas(program, machine.batch)
        self._calls = Calls(program, machine, link, self._areas)
        self._tensors = HostTensors(link, self._areas, exponents)
        self._norms = HostBatchNorm(link, self._areas, self._tensors, exponents, running)
        self._epsilons = {
            step.layer: float(step.epsilon) for step in program.steps if isinstance(step, BatchNormForwardStep)
        }
        self._sums = {step.name: step for step in program.steps if isinstance(step, SumsStep)}
        self._pixels = {name: tensor.height * tensor.width for name, tensor in feature_maps(program).items()}
        self._results = _results(program)

    @property
    def running(self) -> Mapping[str, Array]:
        """Running mean and variance of batch normalisations, by name."""
        return self._norms.running

    def build(self) -> None:
        """S1: areas for all tensors and programs for all operations."""
        for area in self._areas.values():
            self._link.tell(ReserveArea(area), Stage.BUILD, area.name)
        self._calls.load(self.program)

    def initialise(self, tensors: Mapping[str, StoredTensor]) -> None:
        """S2: masters, velocities and working copies, and the exponents of everything that the accelerator stores."""
        for name, tensor in tensors.items():
            address = self._areas[name].address
            self._link.tell(Write(address, tensor.mantissas, tensor.exponent), Stage.INITIALISE, name)
        self._set_exponents(self._results, Stage.INITIALISE)

    def train(self, inputs: Mapping[str, FloatArray], labels: Labels, rate: FixedConstant) -> MiniBatch:
        """S3 to S11: one mini-batch, its update, and the exponents of the next.

        Args:
            inputs: (N, C, H, W) by input name.
            labels: (N,).
            rate: the learning rate.
        """
        self._link.trace.step = self.step + 1
        images = self._load(inputs, Stage.LOAD, observe=True)
        events: dict[str, Events] = {}
        loss: Loss | None = None
        for step in self.program.steps:
            match step:
                case KernelStep():
                    events |= self._calls.kernel(step, images, self.step, self.exponents)
                case SumsStep():
                    self._calls.sums(step)
                case LossStep():
                    loss = self._lose(step, labels)
                case BatchNormForwardStep():
                    self._norms.forward(step, images * self._pixels[step.source])
                case BatchNormBackwardStep():
                    self._norm_backward(step)
                case UpdateStep():
                    events |= self._calls.update(step, self.step, rate, self.exponents)
        if loss is None:
            raise ValueError(f"the training program {self.program.name} has no loss")
        decisions = self._follow()
        self.step += 1
        return MiniBatch(loss.value, loss.correct, images, events | self._tensors.take_events(), decisions)

    def scores(self, inputs: Mapping[str, FloatArray], first: int = 0) -> NDArray[np.float64]:
        """The logits (N, K) of images of an evaluation, the first of which has that number.

        The forward part alone, batch norm by its running statistics; nothing is acquired and nothing moves.
        """
        images = self._load(inputs, Stage.EVALUATE, observe=False)
        for step in self.program.steps:
            match step:
                case KernelStep(phase=Phase.FORWARD):
                    self._calls.evaluate(step, images, first)
                case BatchNormForwardStep():
                    self._norms.infer(step)
                case _:
                    continue
        logits = self._logits(Stage.EVALUATE)
        return logits.reshape(len(logits), -1)

    def tensors(self) -> dict[str, StoredTensor]:
        """Masters, velocities and working copies, read back from the accelerator."""
        tensors = {}
        for name in persistent_tensors(self.program):
            data = self._link.read(self._areas[name].address, Stage.CHECKPOINT, name)
            tensors[name] = StoredTensor(data.mantissas, data.exponent)
        return tensors

    def _load(self, inputs: Mapping[str, FloatArray], stage: Stage, *, observe: bool) -> int:
        """S3: write the mini-batch. Gives its number of images."""
        for declared in self.program.inputs:
            name = declared.name
            self._tensors.write(
                name,
                inputs[name],
                self.exponents[name],
                declared.tensor.bits,
                stage,
                observe=observe and self.exponents.follows(name),
            )
        return len(next(iter(inputs.values())))

    def _lose(self, step: LossStep, labels: Labels) -> Loss:
        """The loss of the mini-batch; its gradient goes to the accelerator."""
        loss = cross_entropy(self._logits(Stage.CALL_FORWARD), labels)
        gradient = np.ldexp(loss.gradient, step.scale_exponent)
        exponent = self.exponents[step.gradient]
        self._tensors.write(step.gradient, gradient, exponent, step.bits, Stage.CALL_BACKWARD, observe=True)
        return loss

    def _norm_backward(self, step: BatchNormBackwardStep) -> None:
        gradient_input = self._sums[step.sums].spec.terms[0][0]
        scale = self._calls.scale_exponent
        raised = self._norms.backward(step, self._epsilons[step.layer], gradient_input, scale)
        self._calls.raised_coefficients[step.weight] = raised

    def _logits(self, stage: Stage) -> NDArray[np.float64]:
        name = self.program.logits
        data = self._link.read(self._areas[name].address, stage, name)
        return dequantize(data.mantissas, data.exponent)

    def _follow(self) -> dict[str, Decision]:
        """S10: read statistics, decide, tell the accelerator which exponents moved (S11)."""
        names = {self._areas[name].address: name for name in self._results if self.exponents.follows(name)}
        records = self._tensors.take_records()
        if names:
            acquired = self._link.read_statistics(tuple(names), Stage.DECIDE).records
            records |= {names[address]: record for address, record in acquired.items()}
        decisions = self.exponents.follow(records)
        self._set_exponents(
            [name for name in self._results if name in decisions and decisions[name].new != decisions[name].old],
            Stage.DECIDE,
        )
        return decisions

    def _set_exponents(self, names: list[str], stage: Stage) -> None:
        exponents = {self._areas[name].address: self.exponents[name] for name in names}
        if exponents:
            self._link.tell(SetExponents(exponents), stage)


def persistent_tensors(program: TrainingProgram) -> list[str]:
    """What lasts from one mini-batch to the next on the accelerator: masters, velocities, working copies."""
    names = []
    updates = {step.parameter: step.spec for step in program.steps if isinstance(step, UpdateStep)}
    for parameter in program.parameters:
        names += [master_of(parameter.name), parameter.name]
        if parameter.name in updates and updates[parameter.name].velocity_bits is not None:
            names.append(velocity_of(parameter.name))
    return names


def feature_maps(program: TrainingProgram) -> dict[str, TensorSpec]:
    """One row of every input and of every kernel's result, by name."""
    maps = {declared.name: declared.tensor for declared in program.inputs}
    return maps | {step.call.spec.name: step.call.spec.output for step in program.steps if isinstance(step, KernelStep)}


def _results(program: TrainingProgram) -> list[str]:
    """The tensors that the accelerator stores at exponents of their own."""
    kernels = [step.call.spec for step in program.steps if isinstance(step, KernelStep)]
    return [spec.name for spec in kernels if not spec.exact] + persistent_tensors(program)

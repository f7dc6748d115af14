"""How the host calls operations: the messages of S4, S6 and S8, and the allocations that go with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from binpoint.backends.gradients import ChannelAffine, result_rows
from binpoint.backends.kernel import Draw, Events, Reshape
from binpoint.backends.training_program import KernelStep, LossStep, Phase, SumsStep, TrainingProgram, UpdateStep
from binpoint.runtime.training.allocation import PeAllocation, PeAllocator
from binpoint.runtime.training.areas import Area
from binpoint.runtime.training.exponent_table import ExponentTable
from binpoint.runtime.training.link import Link
from binpoint.runtime.training.machine import Machine
from binpoint.runtime.training.messages import (
    CallKernel,
    CallStage,
    CallSums,
    CallUpdate,
    LoadProgram,
    Party,
    Stage,
)
from binpoint.runtime.training.names import gradient_of, master_of, velocity_of
from binpoint.support.numeric import FixedConstant, Rounding
from binpoint.support.target import Allocator

UPDATED_TENSORS = 3
"""An update draws for velocity, master and working copy."""

EVALUATION_STEP = -1
"""Draws of evaluation count down from here, so that they meet none of training."""

CALL_STAGES = {Phase.FORWARD: Stage.CALL_FORWARD, Phase.BACKWARD: Stage.CALL_BACKWARD, Phase.UPDATE: Stage.CALL_UPDATE}


class Calls:
    """Calls the operations of a program.

    Args:
        program: the operations.
        machine: how they are executed; the allocator of its target says whether the host allocates.
        link: to the accelerator.
        areas: where tensors lie.
    """

    def __init__(self, program: TrainingProgram, machine: Machine, link: Link, areas: Mapping[str, Area]) -> None:
        self._machine, self._link = machine, link
        self._addresses = {name: area.address for name, area in areas.items()}
        self._names = {area.address: name for name, area in areas.items()}
        self._allocator = PeAllocator(machine.target) if machine.target.allocator is Allocator.HOST else None
        self._call = CallStage.CALL if self._allocator is None else CallStage.CALL_WITH_ALLOCATION
        self._draws = dict(_numbered(program))
        self._shapes = {parameter.name: parameter.shape for parameter in program.parameters}
        self.raised_coefficients: dict[str, int] = {}
        """By which power of two the coefficients of x are larger than they stand for, see `HostBatchNorm.backward`."""
        self.scale_exponent = next((step.scale_exponent for step in program.steps if isinstance(step, LossStep)), 0)

    def load(self, program: TrainingProgram) -> None:
        """S1: the programs of all operations."""
        for step in program.steps:
            match step:
                case KernelStep():
                    load = LoadProgram(step.call.spec.name, step.call.spec)
                case SumsStep():
                    load = LoadProgram(step.name, step.spec)
                case UpdateStep():
                    load = LoadProgram(update_program(step), step.spec, step.rounding)
                case _:
                    continue
            self._link.tell(load, Stage.BUILD, load.name)

    def kernel(self, step: KernelStep, images: int, number: int, exponents: ExponentTable) -> dict[str, Events]:
        """S4 or S6: one kernel of mini-batch `number`. Gives what overflowed, by tensor."""
        spec = step.call.spec
        acquires = spec.statistics and not spec.exact and exponents.follows(spec.name)
        return self._kernel(step, images, CALL_STAGES[step.phase], number, acquires=acquires)

    def evaluate(self, step: KernelStep, images: int, first: int) -> None:
        """One kernel for images of an evaluation, the first of which has that number; nothing is acquired."""
        self._kernel(step, images, Stage.EVALUATE, EVALUATION_STEP - first, acquires=False)

    def sums(self, step: SumsStep) -> None:
        """The sums of a batch normalisation, in S4 or S6."""
        inputs = tuple(self._addresses[name] for name in step.inputs)
        request = CallSums(step.name, inputs, self._addresses[step.name])
        self._link.call(request, CALL_STAGES[step.phase], step.name)

    def update(self, step: UpdateStep, number: int, rate: FixedConstant, exponents: ExponentTable) -> dict[str, Events]:
        """S8: one parameter. Gives what overflowed, by tensor."""
        program, master = update_program(step), master_of(step.parameter)
        velocity = None if step.spec.velocity_bits is None else velocity_of(step.parameter)
        updated = [name for name in (master, step.parameter, velocity) if name is not None]
        rows, channels = (*self._shapes[step.parameter], 1)[:2]
        request = CallUpdate(
            program=program,
            master=self._addresses[master],
            velocity=None if velocity is None else self._addresses[velocity],
            gradient=self._addresses[gradient_of(step.parameter)],
            working=self._addresses[step.parameter],
            rate=rate,
            allocation=self._allocate(program, rows, channels, number, Stage.CALL_UPDATE),
            mini_batch=number,
            statistics=any(exponents.follows(name) for name in updated),
            everywhere=self._machine.whole_updates,
            draw=self._draw(program, step.rounding, number),
            gradient_shift=-self.scale_exponent,
        )
        return self._named(self._link.call(request, Stage.CALL_UPDATE, step.parameter, self._call).events)

    def _kernel(self, step: KernelStep, images: int, stage: Stage, number: int, *, acquires: bool) -> dict[str, Events]:
        call, spec = step.call, step.call.spec
        allocation = None
        if not isinstance(spec.operation, Reshape):
            rows = result_rows(spec, images)
            allocation = self._allocate(spec.name, rows, spec.output.channels, max(number, 0), stage)
        # The backward affine kernel of a batch norm has the coefficients of the unscaled loss.
        scaled = isinstance(spec.operation, ChannelAffine) and step.phase is Phase.BACKWARD
        request = CallKernel(
            program=spec.name,
            inputs=tuple(self._addresses[name] for name in call.inputs),
            output=self._addresses[spec.name],
            weight=None if call.weight is None else self._addresses[call.weight],
            bias=None if call.bias is None else self._addresses[call.bias],
            allocation=allocation,
            mini_batch=max(number, 0),
            statistics=acquires,
            draw=self._draw(spec.name, spec.rounding, number),
            shifts=(0, self.scale_exponent - self.raised_coefficients[call.weight]) if scaled and call.weight else (),
            bias_shift=self.scale_exponent if scaled else 0,
        )
        return self._named(self._link.call(request, stage, spec.name, self._call).events)

    def _allocate(self, name: str, rows: int, channels: int, number: int, stage: Stage) -> PeAllocation | None:
        """S21, where the host allocates."""
        if self._allocator is None:
            return None
        self._link.trace.record(stage, Party.HOST, Party.HOST, "allocate", name, call=CallStage.HOST_ALLOCATES)
        return self._allocator.allocate(name, rows, channels, number)

    def _draw(self, name: str, rounding: Rounding, number: int) -> Draw | None:
        return Draw(self._machine.seed, self._draws[name], number) if rounding is Rounding.STOCHASTIC else None

    def _named(self, events: Mapping[int, Events]) -> dict[str, Events]:
        return {self._names[address]: counts for address, counts in events.items()}


def update_program(step: UpdateStep) -> str:
    """The name of an update's program."""
    return f"{step.parameter}.update"


def _numbered(program: TrainingProgram) -> Iterator[tuple[str, int]]:
    """Each operation that may draw, and the number of the first tensor that it draws for."""
    number = 0
    for step in program.steps:
        match step:
            case KernelStep():
                yield step.call.spec.name, number
                number += 1
            case UpdateStep():
                yield update_program(step), number
                number += UPDATED_TENSORS
            case _:
                continue

"""The accelerator board of JP7367595B2 fig. 1: DRAM, controller and PEs, reachable by messages alone.

The kernels of a backend stand for the programs of the PEs. What the board knows of training came in a message: where
tensors lie, which operations there are, at which exponents results are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from binpoint.backends.gradients import SumsSpec, UpdateSpec, result_rows
from binpoint.backends.kernel import (
    EMPTY_RECORD,
    Events,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    Reshape,
    StatisticsRecord,
)
from binpoint.backends.training_backend import (
    Sums,
    TrainableKernel,
    TrainingBackend,
    Update,
    Updated,
    UpdateExponents,
)
from binpoint.runtime.training.allocation import PeAllocation, PeAllocator
from binpoint.runtime.training.areas import Area
from binpoint.runtime.training.messages import (
    NUMBER_BYTES,
    CallKernel,
    CallStage,
    CallSums,
    CallUpdate,
    Data,
    Finished,
    LoadProgram,
    Party,
    Read,
    ReadStatistics,
    Reply,
    Request,
    ReserveArea,
    SetExponents,
    Stage,
    Statistics,
    Write,
)
from binpoint.runtime.training.trace import Trace
from binpoint.support.target import Allocator, Target

EXECUTED: Mapping[Stage, Stage] = {
    Stage.CALL_FORWARD: Stage.FORWARD,
    Stage.CALL_BACKWARD: Stage.BACKWARD,
    Stage.CALL_UPDATE: Stage.UPDATE,
    Stage.DECIDE: Stage.SET_EXPONENTS,
}
"""The step of fig. 9 in which the accelerator does what the host asks for in another."""


class Acquisition(StrEnum):
    """How the statistics PEs acquire: by circuits that the controller reads out, or by instructions, into the DRAM."""

    CIRCUITS = "circuits"
    INSTRUCTIONS = "instructions"


@dataclass(frozen=True, eq=False)
class _Stored:
    """A tensor in the DRAM: a feature map of the backend or an array, its exponent, and a number that no other has."""

    data: Any
    exponents: tuple[int, ...]
    version: int

    @property
    def exponent(self) -> int:
        return self.exponents[0]


@dataclass
class _Kernel:
    """A kernel, and the versions of the parameters that it holds."""

    kernel: TrainableKernel
    bound: tuple[int | None, int | None]


class Accelerator:
    """Executes what messages ask for.

    Args:
        backend: generates the programs of the PEs.
        target: the array, and who allocates: the host, or this board's controller.
        acquisition: where statistics are kept.
        trace: records what happens inside.
    """

    def __init__(
        self,
        backend: TrainingBackend,
        target: Target,
        acquisition: Acquisition = Acquisition.CIRCUITS,
        trace: Trace | None = None,
    ) -> None:
        self._backend = backend
        self._allocator = PeAllocator(target) if target.allocator is Allocator.CONTROLLER else None
        self._acquisition = acquisition
        self._trace = trace or Trace()
        self._areas: dict[int, Area] = {}
        self._dram: dict[int, _Stored] = {}
        self._versions = 0
        self._exponents: dict[int, int] = {}
        self._records: dict[int, StatisticsRecord] = {}
        self._specs: dict[str, KernelSpec] = {}
        self._kernels: dict[str, _Kernel] = {}
        self._sums: dict[str, Sums] = {}
        self._updates: dict[str, Update] = {}

    @property
    def front(self) -> Party:
        """Who answers the host: the board as a whole, or its controller where that allocates."""
        return Party.ACCELERATOR if self._allocator is None else Party.CONTROLLER

    def receive(self, request: Request, stage: Stage, layer: str | None = None) -> Reply:
        """Do what a message asks for, and answer. `stage` and `layer` only label the trace."""
        executed = EXECUTED.get(stage, stage)
        match request:
            case ReserveArea():
                self._areas[request.area.address] = request.area
            case LoadProgram():
                self._load(request)
            case Write():
                self._write(request)
            case SetExponents():
                self._exponents.update(request.exponents)
                self._trace.record(executed, self.front, self.front, "set-exponents", layer)
            case CallKernel():
                return self._call_kernel(request, executed, layer)
            case CallSums():
                return self._call_sums(request, executed, layer)
            case CallUpdate():
                return self._call_update(request, executed, layer)
            case Read():
                return self._read(request)
            case ReadStatistics():
                return self._read_statistics(request, stage)
        return None

    def _load(self, request: LoadProgram) -> None:
        match request.spec:
            case KernelSpec():
                # A kernel is compiled when it is first called, with the parameters that it then has.
                self._specs[request.name] = request.spec
            case SumsSpec():
                self._sums[request.name] = self._backend.prepare_sums(request.spec)
            case UpdateSpec():
                self._updates[request.name] = self._backend.prepare_update(request.spec, request.rounding)

    def _write(self, request: Write) -> None:
        tensor = self._areas[request.address].tensor
        data = request.mantissas if tensor is None else self._backend.upload(request.mantissas, tensor)
        self._store(request.address, data, request.exponent)

    def _read(self, request: Read) -> Data:
        return Data(self._array(request.address), self._dram[request.address].exponents)

    def _read_statistics(self, request: ReadStatistics, stage: Stage) -> Statistics:
        records = {address: self._records.pop(address) for address in request.addresses if address in self._records}
        reply = Statistics(records)
        source = Party.PES if self._acquisition is Acquisition.CIRCUITS else Party.DRAM
        self._trace.record(stage, source, self.front, "collect-statistics", payload_bytes=reply.payload_bytes)
        return reply

    def _call_kernel(self, request: CallKernel, stage: Stage, layer: str | None) -> Finished:
        spec = self._specs[request.program]
        inputs = [self._dram[address] for address in request.inputs]
        weight = None if request.weight is None else self._dram[request.weight]
        bias = None if request.bias is None else self._dram[request.bias]
        shifts = request.shifts or (0,) * len(inputs)
        exponents = KernelExponents(
            inputs=tuple(stored.exponent + shift for stored, shift in zip(inputs, shifts, strict=True)),
            output=inputs[-1].exponent if spec.exact else self._exponents[request.output],
            weight=0 if weight is None else weight.exponent,
            bias=0 if bias is None else bias.exponent + request.bias_shift,
        )
        kernel = self._kernel(request.program, spec, weight, bias)
        allocation = request.allocation
        if not isinstance(spec.operation, Reshape):
            rows = result_rows(spec, inputs[0].data.batch)
            allocation = self._begin(request, request.program, rows, spec.output.channels, stage, layer)
        sample = allocation.sample if request.statistics and allocation is not None else None
        result = kernel([stored.data for stored in inputs], exponents, sample=sample, draw=request.draw)
        self._end(stage, layer)
        self._store(request.output, result.output, exponents.output)
        self._acquire(request.output, result.statistics)
        return Finished({request.output: result.events})

    def _call_sums(self, request: CallSums, stage: Stage, layer: str | None) -> Finished:
        inputs = [self._dram[address] for address in request.inputs]
        self._trace.record(stage, self.front, self.front, "execute", layer)
        sums = self._sums[request.program]([stored.data for stored in inputs])
        self._versions += 1
        exponents = tuple(stored.exponent for stored in inputs)
        self._dram[request.output] = _Stored(sums, exponents, self._versions)
        return Finished({})

    def _call_update(self, request: CallUpdate, stage: Stage, layer: str | None) -> Finished:
        master, gradient = self._dram[request.master], self._dram[request.gradient]
        velocity = None if request.velocity is None else self._dram[request.velocity]
        shape = _four(master.data.shape)
        exponents = UpdateExponents(
            master=master.exponent,
            gradient=gradient.exponent + request.gradient_shift,
            new_master=self._exponents[request.master],
            working=self._exponents[request.working],
            velocity=0 if velocity is None else velocity.exponent,
            new_velocity=0 if request.velocity is None else self._exponents[request.velocity],
        )
        allocation = self._begin(request, request.program, shape[0], shape[1], stage, layer)
        sample = np.ones(shape[:2], np.bool_) if request.everywhere else allocation.sample
        result = self._updates[request.program](
            master.data.reshape(shape),
            None if velocity is None else velocity.data.reshape(shape),
            self._array(request.gradient).reshape(shape),
            exponents,
            request.rate,
            sample=sample if request.statistics else None,
            draw=request.draw,
        )
        self._end(stage, layer)
        events = {
            request.master: self._keep(request.master, result.master, exponents.new_master, master.data.shape),
            request.working: self._keep(request.working, result.working, exponents.working, master.data.shape),
        }
        if request.velocity is not None and result.velocity is not None:
            shape = master.data.shape
            events[request.velocity] = self._keep(request.velocity, result.velocity, exponents.new_velocity, shape)
        return Finished(events)

    def _keep(self, address: int, updated: Updated, exponent: int, shape: tuple[int, ...]) -> Events:
        """Store one of the tensors of an update and its statistics; gives its events."""
        self._store(address, updated.mantissas.reshape(shape), exponent)
        self._acquire(address, updated.statistics)
        return updated.events

    def _begin(
        self,
        request: CallKernel | CallUpdate,
        name: str,
        rows: int,
        channels: int,
        stage: Stage,
        layer: str | None,
    ) -> PeAllocation:
        """What happens before the PEs compute: in the derived form the controller allocates and calls them."""
        front = self.front
        if self._allocator is None:
            if request.allocation is None:
                raise ValueError(f"the host calls {name} without an allocation")
            self._trace.record(stage, front, front, "execute", layer, call=CallStage.EXECUTE)
            return request.allocation
        allocation = self._allocator.allocate(name, rows, channels, request.mini_batch)
        call_bytes = 2 * NUMBER_BYTES * allocation.schedule.pe.size
        self._trace.record(stage, front, front, "allocate", layer, call=CallStage.CONTROLLER_ALLOCATES)
        self._trace.record(stage, front, Party.PES, "call-pes", layer, call_bytes, CallStage.CALL_PES)
        self._trace.record(stage, Party.PES, Party.PES, "execute", layer, call=CallStage.PES_EXECUTE)
        return allocation

    def _end(self, stage: Stage, layer: str | None) -> None:
        """What happens after the PEs have computed: in the derived form the controller waits for all of them."""
        if self._allocator is not None:
            self._trace.record(stage, Party.PES, self.front, "done", layer, call=CallStage.WAIT)

    def _kernel(self, name: str, spec: KernelSpec, weight: _Stored | None, bias: _Stored | None) -> TrainableKernel:
        """The kernel with these parameters."""
        versions = (None if weight is None else weight.version, None if bias is None else bias.version)
        known = self._kernels.get(name)
        if known is not None and known.bound == versions:
            return known.kernel
        parameters = KernelParameters(
            weight=None if weight is None else weight.data, bias=None if bias is None else bias.data
        )
        if known is None:
            known = self._kernels[name] = _Kernel(self._backend.prepare(spec, parameters), versions)
        else:
            known.kernel.bind(parameters)
            known.bound = versions
        return known.kernel

    def _store(self, address: int, data: Any, exponent: int) -> None:
        self._versions += 1
        self._dram[address] = _Stored(data, (exponent,), self._versions)

    def _array(self, address: int) -> IntArray:
        """The mantissas of a feature map or an array."""
        data = self._dram[address].data
        array: IntArray = data if self._areas[address].tensor is None else self._backend.download(data)
        return array

    def _acquire(self, address: int, record: StatisticsRecord | None) -> None:
        if record is not None:
            self._records[address] = self._records.get(address, EMPTY_RECORD).merge(record)


def _four(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The shape of a parameter as (K, C, R, S); that of a vector is (K, 1, 1, 1)."""
    k, c, r, s = (*shape, *(1,) * (4 - len(shape)))
    return k, c, r, s

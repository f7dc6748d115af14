"""What host and accelerator say to each other: the messages of JP7367595B2 figs. 9 and 10.

Nothing else passes between the two. Tensors are named by their address in the accelerator's DRAM. `payload_bytes` is
what a message takes on the link: mantissas, 8 bytes an address, count or constant, 2 an exponent, 4 a PE or round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from binpoint.backends.gradients import SumsSpec, UpdateSpec
from binpoint.backends.kernel import Draw, Events, IntArray, KernelSpec, StatisticsRecord
from binpoint.runtime.training.allocation import PeAllocation
from binpoint.runtime.training.areas import Area
from binpoint.support.numeric import FixedConstant, Rounding

WORD_BYTES = 8
"""An address, a count, or one number of a draw or constant."""

EXPONENT_BYTES = 2
NUMBER_BYTES = 4
"""The number of a PE or of a round."""


class Stage(StrEnum):
    """The steps of fig. 9; evaluation is none of them."""

    BUILD = "S1"
    INITIALISE = "S2"
    LOAD = "S3"
    CALL_FORWARD = "S4"
    FORWARD = "S5"
    CALL_BACKWARD = "S6"
    BACKWARD = "S7"
    CALL_UPDATE = "S8"
    UPDATE = "S9"
    DECIDE = "S10"
    SET_EXPONENTS = "S11"
    EVALUATE = "evaluation"
    CHECKPOINT = "checkpoint"


class CallStage(StrEnum):
    """The steps of a call, fig. 10: S21 to S23 in the basic form, S26 to S30 in the derived form."""

    HOST_ALLOCATES = "S21"
    CALL_WITH_ALLOCATION = "S22"
    EXECUTE = "S23"
    CALL = "S26"
    CONTROLLER_ALLOCATES = "S27"
    CALL_PES = "S28"
    PES_EXECUTE = "S29"
    WAIT = "S30"


class Party(StrEnum):
    """Who sends and who receives. The accelerator shows its inside only where its controller allocates."""

    HOST = "host"
    ACCELERATOR = "accelerator"
    CONTROLLER = "controller"
    PES = "pes"
    DRAM = "dram"


@dataclass(frozen=True)
class ReserveArea:
    """Host: keep this part of the DRAM for one tensor."""

    area: Area
    kind: ClassVar[str] = "reserve"

    @property
    def payload_bytes(self) -> int:
        """Address and size."""
        return 2 * WORD_BYTES


@dataclass(frozen=True)
class LoadProgram:
    """Host: keep the program of one operation. Its size depends on the backend that generates the code."""

    name: str
    spec: KernelSpec | SumsSpec | UpdateSpec
    rounding: Rounding = Rounding.HALF_EVEN
    """Of an update; a kernel's specification has its own."""
    kind: ClassVar[str] = "load-program"

    @property
    def payload_bytes(self) -> None:
        """Unknown."""
        return None


@dataclass(frozen=True, eq=False)
class Write:
    """Host: store these mantissas, which stand at this exponent."""

    address: int
    mantissas: IntArray
    exponent: int
    kind: ClassVar[str] = "write"

    @property
    def payload_bytes(self) -> int:
        """Address, exponent, mantissas."""
        return WORD_BYTES + EXPONENT_BYTES + self.mantissas.nbytes


@dataclass(frozen=True)
class SetExponents:
    """Host: store the next results of these tensors at these exponents."""

    exponents: Mapping[int, int]
    kind: ClassVar[str] = "set-exponents"

    @property
    def payload_bytes(self) -> int:
        """Addresses and exponents."""
        return len(self.exponents) * (WORD_BYTES + EXPONENT_BYTES)


@dataclass(frozen=True)
class CallKernel:
    """Host: compute one kernel.

    `allocation` comes in the basic form alone; in the derived form the controller makes that of `mini_batch`. `shifts`
    raise the exponents of the inputs, and `bias_shift` that of the bias: the tensors stand for 2 to that power times as
    much.
    """

    program: str
    inputs: tuple[int, ...]
    output: int
    weight: int | None
    bias: int | None
    allocation: PeAllocation | None
    mini_batch: int
    statistics: bool
    draw: Draw | None = None
    shifts: tuple[int, ...] = ()
    bias_shift: int = 0
    kind: ClassVar[str] = "call-kernel"

    @property
    def payload_bytes(self) -> int:
        """Addresses, mini-batch, draw, shifts, allocation."""
        addresses = len(self.inputs) + 1 + (self.weight is not None) + (self.bias is not None)
        shifts = EXPONENT_BYTES * len(self.shifts)
        return WORD_BYTES * (addresses + 1) + shifts + _draw_bytes(self.draw) + _allocation_bytes(self.allocation)


@dataclass(frozen=True)
class CallSums:
    """Host: add up each channel exactly; the result is stored as int64 (terms, C)."""

    program: str
    inputs: tuple[int, ...]
    output: int
    kind: ClassVar[str] = "call-sums"

    @property
    def payload_bytes(self) -> int:
        """Addresses."""
        return WORD_BYTES * (len(self.inputs) + 1)


@dataclass(frozen=True)
class CallUpdate:
    """Host: update one parameter. The gradient stands for 2^`gradient_shift` times its stored values.

    With `statistics` the statistics PEs acquire; with `everywhere` all PEs do, by instructions in their programs.
    """

    program: str
    master: int
    velocity: int | None
    gradient: int
    working: int
    rate: FixedConstant
    allocation: PeAllocation | None
    mini_batch: int
    statistics: bool
    everywhere: bool = False
    draw: Draw | None = None
    gradient_shift: int = 0
    kind: ClassVar[str] = "call-update"

    @property
    def payload_bytes(self) -> int:
        """Addresses, rate, mini-batch, shift, draw, allocation."""
        words = 3 + (self.velocity is not None) + 2 + 1
        return WORD_BYTES * words + EXPONENT_BYTES + _draw_bytes(self.draw) + _allocation_bytes(self.allocation)


@dataclass(frozen=True)
class Read:
    """Host: send a tensor."""

    address: int
    kind: ClassVar[str] = "read"

    @property
    def payload_bytes(self) -> int:
        """The address."""
        return WORD_BYTES


@dataclass(frozen=True)
class ReadStatistics:
    """Host: send what was acquired of these tensors since the last time, and clear it."""

    addresses: tuple[int, ...]
    kind: ClassVar[str] = "read-statistics"

    @property
    def payload_bytes(self) -> int:
        """The addresses."""
        return WORD_BYTES * len(self.addresses)


@dataclass(frozen=True)
class Finished:
    """Accelerator: a call is done; what overflowed, by the address of the result."""

    events: Mapping[int, Events]
    kind: ClassVar[str] = "finished"

    @property
    def payload_bytes(self) -> int:
        """An address and four counts a result."""
        return len(self.events) * 5 * WORD_BYTES


@dataclass(frozen=True, eq=False)
class Data:
    """Accelerator: a tensor and the exponent that it stands at; sums have those of their inputs."""

    mantissas: IntArray
    exponents: tuple[int, ...]
    kind: ClassVar[str] = "data"

    @property
    def exponent(self) -> int:
        """That of a tensor that has one."""
        return self.exponents[0]

    @property
    def payload_bytes(self) -> int:
        """Mantissas and exponents."""
        return self.mantissas.nbytes + EXPONENT_BYTES * len(self.exponents)


@dataclass(frozen=True)
class Statistics:
    """Accelerator: records by address; tensors without samples are left out."""

    records: Mapping[int, StatisticsRecord]
    kind: ClassVar[str] = "statistics"

    @property
    def payload_bytes(self) -> int:
        """An address and two counts a record, a position and a count an entry of a histogram."""
        entries = sum(len(record.msb) + len(record.lsb) for record in self.records.values())
        return len(self.records) * 3 * WORD_BYTES + entries * (EXPONENT_BYTES + WORD_BYTES)


Request = ReserveArea | LoadProgram | Write | SetExponents | CallKernel | CallSums | CallUpdate | Read | ReadStatistics
Reply = Finished | Data | Statistics | None
"""What the accelerator answers; nothing to what it only has to keep."""


def _draw_bytes(draw: Draw | None) -> int:
    return 0 if draw is None else 3 * WORD_BYTES


def _allocation_bytes(allocation: PeAllocation | None) -> int:
    return 0 if allocation is None else 2 * NUMBER_BYTES * allocation.schedule.pe.size

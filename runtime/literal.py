"""Execution as the array would: round by round, PE by PE, one call of the PE program a tile.

Results and statistics are those of the fast path, bit for bit. It exists to show that the schedule is what it says,
and is slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from binpoint.backends.kernel import (
    EMPTY_RECORD,
    Backend,
    Draw,
    Events,
    IntArray,
    KernelExponents,
    KernelResult,
    PeProgram,
    Reshape,
    StatisticsRecord,
    TensorSpec,
    Tile,
)
from binpoint.backends.memory import aligned_copy, aligned_empty
from binpoint.backends.program import KernelCall, Program
from binpoint.runtime.execution import parameters_of
from binpoint.runtime.tensors import mantissa_dtype
from binpoint.scheduling.schedule import LayerSchedule


@dataclass
class StatisticsPe:
    """The statistics circuit of one PE: a record that accumulates from a clear command until it is read."""

    record: StatisticsRecord = EMPTY_RECORD

    def clear(self) -> None:
        """The clear command."""
        self.record = EMPTY_RECORD

    def acquire(self, record: StatisticsRecord) -> None:
        """Add what one tile left."""
        self.record = self.record.merge(record)

    def read(self) -> StatisticsRecord:
        """What was acquired since the last clear command."""
        return self.record


@dataclass(frozen=True)
class Dram:
    """A feature map in the array's memory: (N, C, H, W) mantissas."""

    mantissas: IntArray

    @property
    def batch(self) -> int:
        """N, the number of images."""
        return len(self.mantissas)


@dataclass(frozen=True)
class Step:
    """One PE in one round: the tile that it computes, and whether it samples."""

    round: int
    pe: int
    tile: Tile
    sampled: bool


def steps(schedule: LayerSchedule) -> Iterator[Step]:
    """A layer's tiles in the order of rounds, within a round in the order of PEs."""
    tiling = schedule.tiling
    for index in np.lexsort((schedule.pe.ravel(), schedule.round.ravel())).tolist():
        position = divmod(index, tiling.counts[1])
        images, channels = tiling.pairs_of(position)
        tile = Tile(images.start, len(images), channels.start, len(channels))
        round_, pe, sampled = (array[position] for array in (schedule.round, schedule.pe, schedule.sampled))
        yield Step(int(round_), int(pe), tile, bool(sampled))


class LiteralExecutor:
    """Executes every tile of a schedule on the PE that it names.

    Args:
        backend: compiles the PE programs.
        program: the network.
        mantissas: its parameters.
        tile: (images, channels) of the target's tiles.
    """

    def __init__(
        self, backend: Backend, program: Program, mantissas: Mapping[str, IntArray], tile: tuple[int, int]
    ) -> None:
        self.pes: dict[int, StatisticsPe] = {}
        """The statistics PEs that have been used, by number."""
        self._programs: dict[str, PeProgram] = {}
        for call in program.calls:
            spec = call.spec
            if not isinstance(spec.operation, Reshape):
                channels = min(tile[1], spec.output.channels)
                parameters = parameters_of(call, mantissas)
                self._programs[spec.name] = backend.prepare_pe_program(spec, parameters, tile[0], channels)

    def store(self, mantissas: IntArray, spec: TensorSpec) -> Dram:
        """Mantissas in the array's memory, where PE programs read them in place."""
        return Dram(aligned_copy(mantissas.astype(mantissa_dtype(spec.bits), copy=False)))

    def fetch(self, feature_map: Dram) -> IntArray:
        """The mantissas of a feature map."""
        return feature_map.mantissas

    def execute(
        self,
        call: KernelCall,
        inputs: Sequence[Dram],
        exponents: KernelExponents,
        schedule: LayerSchedule | None,
        draw: Draw | None,
        *,
        statistics: bool,
    ) -> KernelResult:
        """Execute one call tile by tile; without a schedule no PE computes it and the map only changes its shape."""
        spec = call.spec
        if schedule is None:
            mantissas = inputs[0].mantissas
            return KernelResult(Dram(mantissas.reshape(-1, *spec.output.shape)), None, Events(mantissas.size))
        output = aligned_empty((inputs[0].batch, *spec.output.shape), mantissa_dtype(spec.output.bits))
        events = Events(0)
        self._clear()
        for step in steps(schedule):
            tile = step.tile
            result = self._programs[spec.name](
                [feature_map.mantissas for feature_map in inputs],
                tile,
                exponents,
                sampled=statistics and step.sampled,
                draw=draw,
            )
            images = slice(tile.first_image, tile.first_image + tile.images)
            output[images, tile.first_channel : tile.first_channel + tile.channels] = result.output
            events = events.merge(result.events)
            if result.statistics is not None:
                self.pes.setdefault(step.pe, StatisticsPe()).acquire(result.statistics)
        return KernelResult(Dram(output), self._read() if statistics else None, events)

    def _clear(self) -> None:
        for pe in self.pes.values():
            pe.clear()

    def _read(self) -> StatisticsRecord:
        """Read back every statistics PE and merge what they hold."""
        record = EMPTY_RECORD
        for pe in self.pes.values():
            record = record.merge(pe.read())
        return record

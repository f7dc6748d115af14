"""A backend that also takes the statistics that other allocations would have taken of the same results.

Each kernel that samples is called again with the pairs that another target's statistics PEs compute. Results are the
same, only records differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from binpoint.backends.gradients import SumsSpec, UpdateSpec
from binpoint.backends.kernel import (
    EMPTY_RECORD,
    BoolArray,
    Draw,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelResult,
    KernelSpec,
    PeProgram,
    StatisticsRecord,
    TensorSpec,
)
from binpoint.backends.training_backend import (
    Sums,
    TrainableKernel,
    TrainingBackend,
    Update,
    UpdateExponents,
    UpdateResult,
)
from binpoint.runtime.training.names import master_of, velocity_of
from binpoint.scheduling.allocation import in_mini_batch, schedule_layer
from binpoint.scheduling.schedule import LayerSchedule
from binpoint.support.numeric import FixedConstant, Rounding
from binpoint.support.target import Target

Records = dict[str, dict[str, StatisticsRecord]]
"""Of each target, by name, the record of each tensor."""


class Masks:
    """Which pairs the statistics PEs of some targets compute in mini-batch number `mini_batch`."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self.mini_batch = 0
        self._targets = targets
        self._first: dict[tuple[str, int, int], LayerSchedule] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def sample(self, target: str, rows: int, channels: int) -> BoolArray:
        """(rows, channels) of any tensor: allocations know sizes alone."""
        key = (target, rows, channels)
        if key not in self._first:
            self._first[key] = schedule_layer("shadow", rows, channels, self._targets[target])
        return in_mini_batch(self._first[key], self._targets[target], self.mini_batch).sample_mask()


class ShadowBackend:
    """Wraps a backend.

    `records` holds what the statistics PEs of each target would have seen of each tensor in the last mini-batch;
    `masks.mini_batch` is to be moved on by whoever trains.
    """

    def __init__(self, backend: TrainingBackend, targets: Mapping[str, Target]) -> None:
        self.name = f"shadow of {backend.name}"
        self.masks = Masks(targets)
        self.records: Records = {target: {} for target in targets}
        self._backend = backend

    def upload(self, mantissas: IntArray, spec: TensorSpec) -> Any:
        """As the wrapped backend."""
        return self._backend.upload(mantissas, spec)

    def download(self, buffer: Any) -> IntArray:
        """As the wrapped backend."""
        return self._backend.download(buffer)

    def prepare(self, spec: KernelSpec, parameters: KernelParameters) -> TrainableKernel:
        """A kernel that leaves more records."""
        return _ShadowKernel(self._backend.prepare(spec, parameters), spec.name, self.masks, self.records)

    def prepare_pe_program(
        self, spec: KernelSpec, parameters: KernelParameters, images: int, channels: int
    ) -> PeProgram:
        """As the wrapped backend."""
        return self._backend.prepare_pe_program(spec, parameters, images, channels)

    def prepare_sums(self, spec: SumsSpec) -> Sums:
        """As the wrapped backend."""
        return self._backend.prepare_sums(spec)

    def prepare_update(self, spec: UpdateSpec, rounding: Rounding) -> Update:
        """An update that leaves more records."""
        return _ShadowUpdate(self._backend.prepare_update(spec, rounding), spec.name, self.masks, self.records)


@dataclass
class _ShadowKernel:
    kernel: TrainableKernel
    name: str
    masks: Masks
    records: Records

    def bind(self, parameters: KernelParameters) -> None:
        self.kernel.bind(parameters)

    def __call__(
        self,
        inputs: Sequence[Any],
        exponents: KernelExponents,
        *,
        sample: BoolArray | None = None,
        draw: Draw | None = None,
        first_image: int = 0,
    ) -> KernelResult:
        result = self.kernel(inputs, exponents, sample=sample, draw=draw, first_image=first_image)
        if sample is None or result.statistics is None:
            return result
        for target in self.masks:
            other = self.masks.sample(target, *sample.shape)
            shadow = self.kernel(inputs, exponents, sample=other, draw=draw, first_image=first_image)
            self.records[target][self.name] = shadow.statistics or EMPTY_RECORD
        return result


@dataclass
class _ShadowUpdate:
    update: Update
    name: str
    masks: Masks
    records: Records

    def __call__(
        self,
        master: IntArray,
        velocity: IntArray | None,
        gradient: IntArray,
        exponents: UpdateExponents,
        rate: FixedConstant,
        *,
        sample: BoolArray | None = None,
        draw: Draw | None = None,
    ) -> UpdateResult:
        result = self.update(master, velocity, gradient, exponents, rate, sample=sample, draw=draw)
        if sample is None:
            return result
        for target in self.masks:
            other = self.masks.sample(target, *sample.shape)
            shadow = self.update(master, velocity, gradient, exponents, rate, sample=other, draw=draw)
            named = {self.name: shadow.working, master_of(self.name): shadow.master}
            if shadow.velocity is not None:
                named[velocity_of(self.name)] = shadow.velocity
            self.records[target] |= {name: each.statistics or EMPTY_RECORD for name, each in named.items()}
        return result

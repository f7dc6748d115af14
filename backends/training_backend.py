"""What training asks of a backend beyond inference: new weights without recompiling, exact sums, updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from binpoint.backends.gradients import SumsSpec, UpdateSpec
from binpoint.backends.kernel import (
    Backend,
    BoolArray,
    Draw,
    Events,
    IntArray,
    Kernel,
    KernelParameters,
    KernelSpec,
    StatisticsRecord,
)
from binpoint.support.numeric import FixedConstant, Rounding


class TrainableKernel(Kernel, Protocol):
    """A kernel whose parameters change from mini-batch to mini-batch."""

    def bind(self, parameters: KernelParameters) -> None:
        """Take new mantissas of the same shapes and widths; nothing is compiled again."""


class Sums(Protocol):
    """Exact channel-wise sums."""

    def __call__(self, inputs: Sequence[Any]) -> IntArray:
        """int64 (terms, C) over all images and pixels of the inputs, the backend's buffers."""


@dataclass(frozen=True)
class UpdateExponents:
    """Exponents before and after: those of the stored mantissas, and those to store the new ones at."""

    master: int
    gradient: int
    new_master: int
    working: int
    velocity: int = 0
    new_velocity: int = 0


@dataclass(frozen=True)
class Updated:
    """One tensor after the update: mantissas, sampled statistics of the value before quantisation, events."""

    mantissas: IntArray
    statistics: StatisticsRecord | None
    events: Events


@dataclass(frozen=True)
class UpdateResult:
    """Masters, velocity (None without momentum) and the working copy of the next mini-batch."""

    master: Updated
    velocity: Updated | None
    working: Updated


class Update(Protocol):
    """SGD on one parameter tensor of a fixed shape."""

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
        """One step. Arrays are (K, C, R, S); `sample` is (K, C). Without `sample` nothing is acquired.

        Stochastic rounding draws with `draw` for velocity, master and working copy in this order: the tensor
        numbers `draw.tensor`, `draw.tensor + 1`, `draw.tensor + 2`.
        """


class TrainingBackend(Backend, Protocol):
    """A backend that also trains."""

    def prepare(self, spec: KernelSpec, parameters: KernelParameters) -> TrainableKernel:
        """Compile a kernel, also of a gradient, and bind its first parameters."""

    def prepare_sums(self, spec: SumsSpec) -> Sums:
        """Compile exact sums."""

    def prepare_update(self, spec: UpdateSpec, rounding: Rounding) -> Update:
        """Compile an update; shapes come with the call."""

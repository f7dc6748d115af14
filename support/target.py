"""The target model: a PE array as the scheduler and the runtime see it.

The constructors check every value and how the values fit together; `binpoint.support.target_file` reads and
writes the same model as TOML.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from binpoint.support.numeric import ACQUISITIONS
from binpoint.support.target_blocks import TargetBlocks
from binpoint.support.target_faults import Fault as Fault
from binpoint.support.target_faults import InvalidTargetError as InvalidTargetError
from binpoint.support.target_faults import out_of_range

MAXIMUM_PES = 2**22
"""The largest array that is accepted; schedules stay in 32-bit integers far beyond it."""

MAXIMUM_TILE = 2**20
"""The largest tile along either axis."""

REGISTER_BITS = (2, 32)
ACCUMULATOR_BITS = (32, 64)
"""The widths that kernels exist for, both ends included."""


class Strategy(StrEnum):
    """The allocation flows of JP7367595B2 (figs. 11, 13, 15)."""

    MECHANICAL = "mechanical"
    ROTATED = "rotated"
    THINNED_ROTATED = "thinned-rotated"


class RotationCount(StrEnum):
    """What the rotation counts: images from the start of the batch, or within the round as figs. 13, 15 print.

    `continuous` counts images as `global` does and goes on across mini-batches: each begins one PE further.
    """

    GLOBAL = "global"
    ROUND = "round"
    CONTINUOUS = "continuous"


class Allocator(StrEnum):
    """Who allocates (fig. 10): the host (basic form) or the accelerator's controller (derived form)."""

    HOST = "host"
    CONTROLLER = "controller"


@dataclass(frozen=True)
class Allocation:
    """The allocation strategy and its parameters.

    `x` and `y` are the thinning factors of mechanical and thinned-rotated: images are taken X at a time and
    channels Y at a time (figs. 11, 15). rotated has neither: its channels are thinned by the spacing of the
    statistics PEs. `shift` is how far channels rotate a step (the claims' fourth number; 1 in the figures) and
    `rotation` what a step counts; mechanical does not rotate.

    Raises:
        InvalidTargetError: a value out of range, or a parameter that the strategy does not have.
    """

    strategy: Strategy = Strategy.ROTATED
    x: int = 1
    y: int = 1
    shift: int = 1
    rotation: RotationCount = RotationCount.GLOBAL

    def __post_init__(self) -> None:
        faults = []
        for field in ("x", "y", "shift"):
            faults += out_of_range(field, getattr(self, field), 1, MAXIMUM_PES)
        for field in unused_parameters(self.strategy):
            value, neutral = getattr(self, field), getattr(type(self), field)
            if value != neutral and not faults:
                faults.append(unused_parameter(self.strategy, field, value))
        if faults:
            raise InvalidTargetError(faults)

    @property
    def images_per_step(self) -> int:
        """How many images share one rotation: X for thinned-rotated, else 1."""
        return self.x if self.strategy is Strategy.THINNED_ROTATED else 1


def unused_parameters(strategy: Strategy) -> tuple[str, ...]:
    """The parameters that have no meaning for a strategy."""
    return {
        Strategy.MECHANICAL: ("shift", "rotation"),
        Strategy.ROTATED: ("x", "y"),
        Strategy.THINNED_ROTATED: (),
    }[strategy]


def unused_parameter(strategy: Strategy, field: str, value: object) -> Fault:
    """The fault of giving a strategy a parameter that it does not have."""
    hint = {
        Strategy.MECHANICAL: "mechanical does not rotate; rotated and thinned-rotated do",
        Strategy.ROTATED: "rotated thins channels by the spacing of the statistics PEs; thinned-rotated has x and y",
    }[strategy]
    return Fault(
        "contradiction", (field, "strategy"), f"{strategy} has no {field}", f"{field} = {value}", f"no {field}", hint
    )


@dataclass(frozen=True)
class Target:
    """A PE array.

    `statistics_pes` lists the numbers of the PEs with a statistics circuit, ascending. `acquires` is any of
    "msb", "lsb". `tile` is (images, output channels) that one PE computes in one round. `grid` is (rows,
    columns) of the array; PE numbers run along the rows. `blocks` is None for PEs that know one exponent a tensor.

    Raises:
        InvalidTargetError: with every value that is out of range or does not fit the others.
    """

    name: str
    pes: int
    grid: tuple[int, int]
    statistics_pes: tuple[int, ...]
    acquires: tuple[str, ...] = ("msb", "lsb")
    register_bits: int = 16
    accumulator_bits: int = 40
    accumulator_wraps: bool = False
    allocation: Allocation = Allocation()
    allocator: Allocator = Allocator.HOST
    tile: tuple[int, int] = (1, 1)
    clock_hz: float = 1e9
    dram_bytes_per_second: float = 100e9
    host_link_bytes_per_second: float = 16e9
    local_memory_bytes: int = 65536
    description: str = ""
    blocks: TargetBlocks | None = None

    def __post_init__(self) -> None:
        faults = [
            *self._name_faults(),
            *self._array_faults(),
            *self._statistics_faults(),
            *self._width_faults(),
            *self._physical_faults(),
        ]
        if faults:
            raise InvalidTargetError(faults)

    @cached_property
    def statistics_mask(self) -> NDArray[np.bool_]:
        """(P,): whether a PE has a statistics circuit. Read-only."""
        mask = np.zeros(self.pes, np.bool_)
        mask[np.array(self.statistics_pes, np.int64)] = True
        mask.flags.writeable = False
        return mask

    @cached_property
    def statistics_spacing(self) -> int | None:
        """k where the statistics PEs are exactly the multiples of k (`every = k`), else None."""
        if not self.statistics_pes:
            return None
        spacing = self.statistics_pes[1] if len(self.statistics_pes) > 1 else self.pes
        return spacing if self.statistics_pes == tuple(range(0, self.pes, spacing)) else None

    def notes(self) -> list[str]:
        """What is allowed but surprising."""
        allocation, spacing = self.allocation, self.statistics_spacing
        if not self.statistics_pes and self.blocks is not None:
            return []
        if not self.statistics_pes:
            return ["no PE has a statistics circuit, so exponents cannot follow statistics"]
        thinning = allocation.x * allocation.y
        if allocation.strategy is not Strategy.ROTATED and spacing != thinning:
            where = "in a list" if spacing is None else f"every {spacing}"
            return [f"x * y = {thinning}, but statistics PEs are given {where}: the pattern is not that of the figures"]
        return []

    def _name_faults(self) -> list[Fault]:
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", self.name):
            return []
        message, expected = (
            "a target needs a plain name",
            "letters, digits, '_', '-' and '.', the first a letter or digit",
        )
        return [Fault("out-of-range", ("name",), message, repr(self.name), expected)]

    def _array_faults(self) -> list[Fault]:
        faults = out_of_range("pes", self.pes, 1, MAXIMUM_PES)
        for field, most in (("grid", MAXIMUM_PES), ("tile", MAXIMUM_TILE)):
            for size in getattr(self, field):
                faults += out_of_range(field, size, 1, most)
        if not faults and self.grid[0] * self.grid[1] != self.pes:
            rows, columns = self.grid
            message = f"the grid has {rows * columns} places for {self.pes} PEs"
            faults.append(
                Fault("contradiction", ("grid", "pes"), message, f"{rows} x {columns}", f"rows x columns = {self.pes}")
            )
        if not faults:
            thinning = self.allocation.x * self.allocation.y
            if thinning > self.pes:
                message = f"x * y = {thinning} PEs share one statistics PE, more than the array has"
                found, expected = f"x = {self.allocation.x}, y = {self.allocation.y}", f"x * y <= {self.pes}"
                faults.append(Fault("contradiction", ("x", "y", "pes"), message, found, expected))
        return faults

    def _statistics_faults(self) -> list[Fault]:
        numbers = self.statistics_pes
        faults = []
        outside = [number for number in numbers if not 0 <= number < self.pes]
        if outside:
            message, expected = "statistics PEs that the array does not have", f"numbers 0 to {self.pes - 1}"
            faults.append(Fault("contradiction", ("statistics_pes", "pes"), message, _some(outside), expected))
        disorder = [right for left, right in pairwise(numbers) if right <= left]
        if len(set(numbers)) < len(numbers):
            repeated = sorted(number for number, count in Counter(numbers).items() if count > 1)
            faults.append(
                Fault("contradiction", ("statistics_pes",), "repeated statistics PEs", _some(repeated), "each PE once")
            )
        elif disorder:
            message, expected = "statistics PEs that are out of order", "ascending numbers"
            faults.append(Fault("contradiction", ("statistics_pes",), message, _some(disorder), expected))
        faults += _acquisition_faults(self.acquires, bool(numbers))
        return faults

    def _width_faults(self) -> list[Fault]:
        return [
            *out_of_range("register_bits", self.register_bits, *REGISTER_BITS),
            *out_of_range("accumulator_bits", self.accumulator_bits, *ACCUMULATOR_BITS),
        ]

    def _physical_faults(self) -> list[Fault]:
        faults = []
        for field in ("clock_hz", "dram_bytes_per_second", "host_link_bytes_per_second"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                faults.append(
                    Fault("out-of-range", (field,), f"{field} is out of range", str(value), "a finite number above 0")
                )
        return faults + out_of_range("local_memory_bytes", self.local_memory_bytes, 1, 2**48)


def _acquisition_faults(acquires: tuple[str, ...], needed: bool) -> list[Fault]:
    names = '"msb", "lsb" or both, each once'
    if set(acquires) - set(ACQUISITIONS) or len(set(acquires)) < len(acquires):
        found = ", ".join(acquires)
        return [Fault("out-of-range", ("acquires",), "unknown or repeated statistics", found, names)]
    if needed and not acquires:
        return [Fault("contradiction", ("acquires",), "statistics PEs that acquire nothing", "an empty list", names)]
    return []


def _some(numbers: list[int], most: int = 5) -> str:
    """The first few numbers and how many more."""
    text = ", ".join(map(str, numbers[:most]))
    return text if len(numbers) <= most else f"{text} and {len(numbers) - most} more"

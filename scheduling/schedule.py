"""The schedule of a layer: for each tile of images and channels, its PE, its round and whether it is sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Element = TypeVar("Element", bound=np.generic)


@dataclass(frozen=True)
class Tiling:
    """How a layer of N images x C channels is cut into tiles of ti x tc; tiles at the border are smaller."""

    images: int
    channels: int
    tile: tuple[int, int]

    @property
    def counts(self) -> tuple[int, int]:
        """(image tiles, channel tiles): (ceil(N / ti), ceil(C / tc))."""
        return ceiling(self.images, self.tile[0]), ceiling(self.channels, self.tile[1])

    def tile_of(self, image: int, channel: int) -> tuple[int, int]:
        """The tile that holds a pair."""
        return image // self.tile[0], channel // self.tile[1]

    def pairs_of(self, tile: tuple[int, int]) -> tuple[range, range]:
        """The images and the channels of a tile."""
        (ti, tc), (i, j) = self.tile, tile
        images = range(i * ti, min((i + 1) * ti, self.images))
        return images, range(j * tc, min((j + 1) * tc, self.channels))

    def name(self, tile: tuple[int, int]) -> str:
        """A tile as messages name it: "image 3, channel 5", or "images 2 to 3, channel 5"."""
        images, channels = self.pairs_of(tile)
        return f"{_name_range('image', images)}, {_name_range('channel', channels)}"


@dataclass(frozen=True)
class Conflict:
    """One way in which a schedule breaks its invariants, at one tile (image tile, channel tile).

    `array` is the one to change, "pe" or "round".
    """

    array: str
    tile: tuple[int, int]
    message: str
    expected: str


@dataclass(frozen=True, eq=False)
class LayerSchedule:
    """Which PE computes which tile of a layer in which round.

    Tile (i, j) holds images i*ti .. and output channels j*tc .., clipped to the layer. `pe`, `round` and
    `sampled` are arrays of shape (ceil(N / ti), ceil(C / tc)); `sampled` says whether the PE has a statistics
    circuit. Invariants, checked by `validate()`: each PE number is in range, and no PE has two tiles in one round.
    """

    layer: str
    images: int
    channels: int
    pes: int
    tile: tuple[int, int]
    pe: NDArray[np.int32]
    round: NDArray[np.int32]
    sampled: NDArray[np.bool_]

    def __eq__(self, other: object) -> bool:
        """Whether both say the same of the same layer, element by element."""
        if not isinstance(other, LayerSchedule):
            return NotImplemented
        plain = ("layer", "images", "channels", "pes", "tile")
        arrays = ("pe", "round", "sampled")
        return all(getattr(self, name) == getattr(other, name) for name in plain) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in arrays
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def tiling(self) -> Tiling:
        """How the layer is cut into tiles."""
        return Tiling(self.images, self.channels, self.tile)

    @property
    def rounds(self) -> int:
        """How many rounds the layer takes."""
        return int(self.round.max()) + 1 if self.round.size else 0

    def sample_mask(self) -> NDArray[np.bool_]:
        """(N, C): whether the pair is computed by a statistics PE."""
        return self.by_pair(self.sampled)

    def by_pair(self, values: NDArray[Element]) -> NDArray[Element]:
        """An array over tiles as one over pairs, (N, C): each pair has the value of its tile."""
        if self.tile == (1, 1):
            return values
        (ti, tc), rows, columns = self.tile, np.arange(self.images), np.arange(self.channels)
        return values[np.ix_(rows // ti, columns // tc)]

    def conflicts(self) -> list[Conflict]:
        """Every broken invariant, in the order of the tiles."""
        found = self._out_of_range("pe", "PE", self.pes, f"PE 0 to {self.pes - 1} of {self.pes}")
        most = self.pe.size
        found += self._out_of_range("round", "round", most, f"round 0 to {most - 1}: {most} tiles need no more")
        return sorted(found + self.clashes(), key=lambda conflict: conflict.tile)

    def clashes(self) -> list[Conflict]:
        """How tiles whose PE and round exist break the invariants together, in the order of the tiles.

        A PE has two tiles in one round; or no tile is in a round before the last, which shows once all rounds exist.
        """
        rounds_exist = bool(((self.round >= 0) & (self.round < self.round.size)).all())
        found = self._taken() + (self._empty_rounds() if rounds_exist else [])
        return sorted(found, key=lambda conflict: conflict.tile)

    def validate(self) -> None:
        """Check the invariants.

        Raises:
            ValueError: naming the layer and the first tile that breaks them.
        """
        for name in ("pe", "round", "sampled"):
            if getattr(self, name).shape != self.tiling.counts:
                raise ValueError(
                    f"{self.layer}: {name} has shape {getattr(self, name).shape}, not {self.tiling.counts}"
                )
        conflicts = self.conflicts()
        if conflicts:
            first = conflicts[0]
            raise ValueError(f"{self.layer}: tile {first.tile}: {first.message}; expected {first.expected}")

    def _out_of_range(self, array: str, what: str, end: int, expected: str) -> list[Conflict]:
        values = getattr(self, array)
        wrong = np.argwhere((values < 0) | (values >= end)).tolist()
        return [Conflict(array, (i, j), f"there is no {what} {values[i, j]}", expected) for i, j in wrong]

    def _taken(self) -> list[Conflict]:
        """The tiles whose PE already has an earlier tile in the same round."""
        exist = (self.pe >= 0) & (self.pe < self.pes) & (self.round >= 0) & (self.round < self.round.size)
        slots = (self.round.astype(np.int64) * self.pes + self.pe).ravel()
        order = np.flatnonzero(exist)
        order = order[np.argsort(slots[order], kind="stable")]
        repeated = np.flatnonzero(np.diff(slots[order]) == 0) + 1
        first = np.searchsorted(slots[order], slots[order][repeated])
        conflicts = []
        for here, there in zip(order[repeated].tolist(), order[first].tolist(), strict=True):
            tile, other = (divmod(index, self.pe.shape[1]) for index in (here, there))
            message = f"PE {self.pe[tile]} twice in round {self.round[tile]}, also for {self.tiling.name(other)}"
            conflicts.append(Conflict("pe", tile, message, "one tile a PE and round"))
        return conflicts

    def _empty_rounds(self) -> list[Conflict]:
        """The first tile after each gap in the numbers of the rounds."""
        used = np.unique(self.round)
        conflicts = []
        for before, after in zip([-1, *used[:-1].tolist()], used.tolist(), strict=True):
            if after > before + 1:
                i, j = np.argwhere(self.round == after)[0].tolist()
                message = f"round {after}, but no tile is in round {before + 1}"
                conflicts.append(Conflict("round", (i, j), message, "rounds without gaps"))
        return conflicts


@dataclass(frozen=True)
class Schedule:
    """The schedules of a network's layers on one target, for mini-batches of `images` images."""

    network: str
    target: str
    images: int
    layers: tuple[LayerSchedule, ...]


def ceiling(dividend: int, divisor: int) -> int:
    """The quotient of two positive integers, rounded up: the patents' CEIL."""
    return -(-dividend // divisor)


def _name_range(noun: str, numbers: range) -> str:
    if len(numbers) == 1:
        return f"{noun} {numbers[0]}"
    return f"{noun}s {numbers[0]} to {numbers[-1]}"

"""One sentence about a schedule: what a PE computes, who computes a pair, which PEs idle and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from binpoint.scheduling.schedule import LayerSchedule
from binpoint.support.target import Target

SHOWN = 3
"""How many pairs, rounds or ranges a sentence lists before it counts the rest."""


@dataclass(frozen=True)
class Answer:
    """One sentence, and the facts in it as plain data."""

    sentence: str
    facts: Mapping[str, Any]


class Explainer:
    """Answers questions about one layer on one target.

    Args:
        schedule: the layer's schedule.
        target: the array it is for.
        statistics: whether the layer's results pass the statistics circuits at all.
        exact: whether it only moves mantissas.
    """

    def __init__(
        self, schedule: LayerSchedule, target: Target, statistics: bool = True, *, exact: bool = False
    ) -> None:
        self.schedule = schedule
        self.target = target
        self.statistics = statistics
        self.exact = exact
        self.noun = "pair" if schedule.tile == (1, 1) else "tile"

    def pe(self, pe: int) -> Answer:
        """What one PE computes in which rounds, whether that is sampled, and why it idles where it does."""
        schedule, name = self.schedule, f"In {self.schedule.layer}, PE {pe} of {self.target.name}"
        tiles = [(int(i), int(j)) for i, j in np.argwhere(schedule.pe == pe)]
        tiles.sort(key=lambda tile: int(schedule.round[tile]))
        idle = sorted(set(range(schedule.rounds)) - {int(schedule.round[tile]) for tile in tiles})
        facts = {
            "pe": pe,
            "statistics_pe": bool(self.target.statistics_mask[pe]),
            "tiles": [self._tile_facts(tile) for tile in tiles],
            "idle_rounds": idle,
        }
        if not tiles:
            return Answer(f"{name} is idle throughout, because {self._shortage()}.", facts)
        places = [f"{schedule.tiling.name(tile)} in round {schedule.round[tile]}" for tile in tiles]
        sentence = f"{name} computes {listed(places)}"
        if len(tiles) > SHOWN + 1:
            sentence += f" of {len(tiles)} {self.noun}s"
        sentence += f", {'' if self._samples(pe) else 'not '}sampled because {self._circuit(pe)}"
        if idle:
            sentence += f", and is idle in {ranges('round', idle)} because {self._shortage()}"
        return Answer(f"{sentence}.", facts)

    def pair(self, image: int, channel: int) -> Answer:
        """Which PE computes a pair in which round, and whether and why it is sampled."""
        schedule = self.schedule
        tile = schedule.tiling.tile_of(image, channel)
        pe, number = int(schedule.pe[tile]), int(schedule.round[tile])
        within = "" if self.noun == "pair" else f", in the tile of {schedule.tiling.name(tile)},"
        rounds = "the only round" if schedule.rounds == 1 else f"round {number} (of rounds 0 to {schedule.rounds - 1})"
        sampled = self._samples(pe)
        facts = {"image": image, "channel": channel, **self._tile_facts(tile), "sampled": sampled}
        sentence = (
            f"In {schedule.layer}, image {image}, channel {channel}{within} is computed by PE {pe} of "
            f"{self.target.name} in {rounds} and {'is' if sampled else 'is not'} sampled, because {self._circuit(pe)}."
        )
        return Answer(sentence, facts)

    def idle(self) -> Answer:
        """Which PEs have nothing to do in which rounds, and why."""
        schedule = self.schedule
        gaps = {number: self._idle_pes(number) for number in range(schedule.rounds)}
        gaps = {number: pes for number, pes in gaps.items() if pes}
        free, size = self._free(), schedule.rounds * schedule.pes
        facts = {"idle_pe_rounds": free, "pe_rounds": size, "idle": {str(number): pes for number, pes in gaps.items()}}
        if not free:
            filled = "its only round" if schedule.rounds == 1 else f"its {schedule.rounds} rounds"
            sentence = f"In {schedule.layer}, no PE of {self.target.name} is idle: {self._work()} fill {filled}."
            return Answer(sentence, facts)
        where = listed([f"{ranges('PE', pes)} in round {number}" for number, pes in gaps.items()])
        verb = "is" if free == 1 else "are"
        sentence = f"In {schedule.layer}, {where} {verb} idle on {self.target.name}, because {self._shortage()}."
        return Answer(sentence, facts)

    def _tile_facts(self, tile: tuple[int, int]) -> dict[str, Any]:
        images, channels = self.schedule.tiling.pairs_of(tile)
        pe = int(self.schedule.pe[tile])
        return {
            "images": [images[0], images[-1]],
            "channels": [channels[0], channels[-1]],
            "pe": pe,
            "round": int(self.schedule.round[tile]),
            "sampled": self._samples(pe),
        }

    def _samples(self, pe: int) -> bool:
        return self.statistics and bool(self.target.statistics_mask[pe])

    def _circuit(self, pe: int) -> str:
        """Why a PE does or does not sample."""
        if self.exact:
            return f"{self.schedule.layer} only moves mantissas and has no statistics"
        if not self.statistics:
            return f"the exponents of {self.schedule.layer} follow what its blocks lose, not statistics"
        if self.target.statistics_mask[pe]:
            return f"PE {pe} has a statistics circuit"
        spacing = self.target.statistics_spacing
        only = f" (only multiples of {spacing} have one)" if spacing else ""
        return f"PE {pe} has no statistics circuit{only}"

    def _free(self) -> int:
        return self.schedule.rounds * self.schedule.pes - self.schedule.pe.size

    def _shortage(self) -> str:
        """Why PEs idle: there is less work than places."""
        schedule = self.schedule
        places = f"{schedule.pes} PEs" if schedule.rounds == 1 else f"{schedule.rounds} x {schedule.pes} PE-rounds"
        return f"{self._work()} leave {self._free()} of {places} empty"

    def _idle_pes(self, number: int) -> list[int]:
        free = np.ones(self.schedule.pes, np.bool_)
        free[self.schedule.pe[self.schedule.round == number]] = False
        return [int(pe) for pe in np.flatnonzero(free)]

    def _work(self) -> str:
        """The layer's size in words: "the layer's 1280 pairs (64 images x 20 channels)"."""
        schedule = self.schedule
        size = f"{_count(schedule.images, 'image')} x {_count(schedule.channels, 'channel')}"
        return f"the layer's {_count(schedule.pe.size, self.noun)} ({size})"


def ranges(noun: str, numbers: Sequence[int]) -> str:
    """Ascending numbers in words: "PE 5", "PEs 0 to 3 and 7"; after SHOWN ranges the numbers left are counted."""
    starts = [0, *(index for index in range(1, len(numbers)) if numbers[index] != numbers[index - 1] + 1)]
    runs = [(numbers[start], numbers[end - 1]) for start, end in pairwise([*starts, len(numbers)])]
    words = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    if len(words) > SHOWN + 1:
        words = [*words[:SHOWN], f"{len(numbers) - starts[SHOWN]} more"]
    return f"{noun}{'s' if len(numbers) > 1 else ''} {_joined(words)}"


def listed(words: Sequence[str]) -> str:
    """Words as a sentence lists them; after SHOWN of them the rest is counted."""
    if len(words) > SHOWN + 1:
        words = [*words[:SHOWN], f"{len(words) - SHOWN} more"]
    return _joined(words)


def _joined(words: Sequence[str]) -> str:
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

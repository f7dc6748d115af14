"""What happened to each feature map of a session over blocks."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.blocks import ExponentGrid
from binpoint.backends.kernel import Events, TensorSpec
from binpoint.runtime.blocks.candidates import Candidates


def snr_db(signal: float, noise: float) -> float | None:
    """10 log10(signal / noise); None without a signal, infinite without noise."""
    if not signal:
        return None
    return 10 * math.log10(signal / noise) if noise else math.inf


@dataclass(frozen=True)
class MapReport:
    """One feature map since the session began.

    Attributes:
        name: the network input or the kernel.
        tensor: its format.
        candidates: what its blocks can choose from; None where exponents only move along.
        exponent: the coarsest of the last batch's blocks.
        images: how many there were.
        blocks: how many blocks took each exponent.
        events: counts over all results.
        signal, noise: sums of squares of the float network's values, and of the errors against them.
    """

    name: str
    tensor: TensorSpec
    candidates: Candidates | None
    exponent: int = 0
    images: int = 0
    blocks: Counter[int] = field(default_factory=Counter)
    events: Events = Events(0)
    signal: float = 0.0
    noise: float = 0.0

    @property
    def exponents(self) -> tuple[int, int]:
        """The smallest (finest) and the largest exponent of any block."""
        return min(self.blocks), max(self.blocks)

    @property
    def shares(self) -> dict[int, float]:
        """The share of blocks with each exponent, the coarsest first."""
        total = self.blocks.total()
        return {exponent: self.blocks[exponent] / total for exponent in sorted(self.blocks, reverse=True)}

    @property
    def blocks_per_frame(self) -> int:
        """How many exponents an image's map has."""
        return self.blocks.total() // self.images

    @property
    def position_bits_per_frame(self) -> int | None:
        """The memory of positions: blocks times the bits that name a candidate. None where they only move along."""
        return None if self.candidates is None else self.blocks_per_frame * self.candidates.position_bits

    @property
    def snr_db(self) -> float | None:
        """10 log10(signal / noise); None where nothing was compared or both are 0, infinite without noise."""
        return snr_db(self.signal, self.noise)

    def after(self, exponents: ExponentGrid, events: Events, comparison: Comparison | None) -> MapReport:
        """The report with some more images in it."""
        found, counts = np.unique(exponents, return_counts=True)
        blocks = Counter({int(each): int(count) for each, count in zip(found, counts, strict=True)})
        signal, noise = (0.0, 0.0) if comparison is None else (comparison.signal, comparison.noise)
        return replace(
            self,
            exponent=max(blocks),
            images=self.images + len(exponents),
            blocks=self.blocks + blocks,
            events=self.events.merge(events),
            signal=self.signal + signal,
            noise=self.noise + noise,
        )


@dataclass(frozen=True)
class Comparison:
    """Sums of squares over some images: of the float network's values, and of the errors against them."""

    signal: float
    noise: float


def compare(values: NDArray[np.float64], reference: NDArray[Any]) -> Comparison:
    """How far values are from the float network's."""
    exact = reference.astype(np.float64)
    return Comparison(float(np.square(exact).sum()), float(np.square(values - exact).sum()))

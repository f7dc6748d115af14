"""What the statistics PEs see of a layer, and how busy the array is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from binpoint.scheduling.allocation import schedule_layer
from binpoint.scheduling.schedule import LayerSchedule
from binpoint.support.target import Allocation, Strategy, Target


@dataclass(frozen=True)
class Coverage:
    """How busy the PEs are with one layer and which results are sampled.

    Attributes:
        pairs: N x C, the (image, channel) pairs of the layer.
        rounds: how many times the array is filled.
        busy_pe_rounds: PEs that compute a tile, summed over the rounds.
        all_pe_rounds: P x rounds.
        sampled_pairs: pairs computed by PEs with a statistics circuit.
        unsampled_images, unsampled_channels: those without a single sampled pair, ascending.
    """

    images: int
    channels: int
    rounds: int
    busy_pe_rounds: int
    all_pe_rounds: int
    sampled_pairs: int
    unsampled_images: tuple[int, ...]
    unsampled_channels: tuple[int, ...]

    @property
    def pairs(self) -> int:
        """N x C."""
        return self.images * self.channels

    @property
    def utilisation(self) -> float:
        """busy_pe_rounds / all_pe_rounds, 0 to 1."""
        return self.busy_pe_rounds / self.all_pe_rounds

    @property
    def sampled_images(self) -> int:
        """Images with at least one sampled pair."""
        return self.images - len(self.unsampled_images)

    @property
    def sampled_channels(self) -> int:
        """Channels with at least one sampled pair."""
        return self.channels - len(self.unsampled_channels)

    @property
    def complete(self) -> bool:
        """Whether every image and every channel is sampled at least once."""
        return not self.unsampled_images and not self.unsampled_channels


def layer_coverage(schedule: LayerSchedule) -> Coverage:
    """Count what one layer's schedule keeps busy and samples."""
    mask = schedule.sample_mask()
    return Coverage(
        images=schedule.images,
        channels=schedule.channels,
        rounds=schedule.rounds,
        busy_pe_rounds=schedule.pe.size,
        all_pe_rounds=schedule.rounds * schedule.pes,
        sampled_pairs=int(mask.sum()),
        unsampled_images=tuple(np.flatnonzero(~mask.any(axis=1)).tolist()),
        unsampled_channels=tuple(np.flatnonzero(~mask.any(axis=0)).tolist()),
    )


def better_allocation(schedule: LayerSchedule, target: Target) -> Allocation | None:
    """An allocation under which this layer has every channel sampled, on the same hardware; None if none is found.

    Tries rotated with other shift amounts, then thinned-rotated with the thinning factors that split the spacing s
    of the statistics PEs: y divides both s and the number of channel tiles, x = s / y.
    """
    for allocation in _candidates(schedule, target):
        changed = replace(target, allocation=allocation)
        if not layer_coverage(
            schedule_layer(schedule.layer, schedule.images, schedule.channels, changed)
        ).unsampled_channels:
            return allocation
    return None


def _candidates(schedule: LayerSchedule, target: Target) -> Iterator[Allocation]:
    for shift in (1, 3, 5, 7):
        yield Allocation(shift=shift)
        if target.allocation.strategy is Strategy.THINNED_ROTATED:
            yield replace(target.allocation, shift=shift)
    spacing = target.statistics_spacing
    if spacing is not None:
        common = math.gcd(spacing, schedule.tiling.counts[1])
        for y in (factor for factor in range(common, 0, -1) if common % factor == 0):
            yield Allocation(Strategy.THINNED_ROTATED, spacing // y, y)

"""Allocations of a training run: the schedule of every operation, moved on from mini-batch to mini-batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from binpoint.backends.kernel import BoolArray
from binpoint.scheduling.allocation import in_mini_batch, mini_batches_per_cycle, schedule_layer
from binpoint.scheduling.schedule import LayerSchedule
from binpoint.support.target import Target

KEPT_PAIRS = 1 << 18
"""Pairs of an operation, in all mini-batches of a cycle, up to which its allocations are kept: a few megabytes."""


@dataclass(frozen=True, eq=False)
class PeAllocation:
    """The schedule of one operation in one mini-batch, as host or controller makes it."""

    schedule: LayerSchedule

    @cached_property
    def sample(self) -> BoolArray:
        """(rows, channels): which results a statistics PE computes."""
        mask = self.schedule.sample_mask().view()
        mask.flags.writeable = False
        return mask


class PeAllocator:
    """Allocates operations to the PEs of a target.

    The host has one in the basic form of JP7367595B2 fig. 10, the accelerator's controller in the derived form.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._cycle = mini_batches_per_cycle(target)
        self._known: dict[tuple[str, int, int, int], PeAllocation] = {}

    def allocate(self, name: str, rows: int, channels: int, mini_batch: int) -> PeAllocation:
        """The allocation of `rows` x `channels` pairs in one mini-batch, counted from 0.

        Raises:
            UserError: there are too many pairs for one schedule.
        """
        first = self._known.get((name, rows, channels, 0))
        if first is None:
            first = PeAllocation(schedule_layer(name, rows, channels, self._target))
            self._known[name, rows, channels, 0] = first
        place = mini_batch % self._cycle
        allocation = self._known.get((name, rows, channels, place))
        if allocation is None:
            allocation = PeAllocation(in_mini_batch(first.schedule, self._target, place))
            if self._cycle * rows * channels <= KEPT_PAIRS:
                self._known[name, rows, channels, place] = allocation
        return allocation

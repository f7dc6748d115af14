"""Allocations of a training run: the schedule of every operation, moved on from mini-batch to mini-batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from binpoint.backends.kernel import BoolArray
from binpoint.scheduling.allocation import in_mini_batch, schedule_layer
from binpoint.scheduling.schedule import LayerSchedule
from binpoint.support.target import Target


@dataclass(frozen=True, eq=False)
class PeAllocation:
    """The schedule of one operation in one mini-batch, as host or controller makes it."""

    schedule: LayerSchedule

    @cached_property
    def sample(self) -> BoolArray:
        """(rows, channels): which results a statistics PE computes."""
        return self.schedule.sample_mask()


class PeAllocator:
    """Allocates operations to the PEs of a target.

    The host has one in the basic form of JP7367595B2 fig. 10, the accelerator's controller in the derived form.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._first: dict[tuple[str, int, int], PeAllocation] = {}

    def allocate(self, name: str, rows: int, channels: int, mini_batch: int) -> PeAllocation:
        """The allocation of `rows` x `channels` pairs in one mini-batch, counted from 0.

        Raises:
            UserError: there are too many pairs for one schedule.
        """
        key = (name, rows, channels)
        if key not in self._first:
            self._first[key] = PeAllocation(schedule_layer(name, rows, channels, self._target))
        first = self._first[key]
        schedule = in_mini_batch(first.schedule, self._target, mini_batch)
        return first if schedule is first.schedule else PeAllocation(schedule)

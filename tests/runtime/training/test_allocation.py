from __future__ import annotations

from dataclasses import replace

import numpy as np

from binpoint.runtime.training.allocation import PeAllocator
from binpoint.scheduling.allocation import schedule_layer
from binpoint.support.target import Allocation
from tests.training_programs import TARGET


def test_every_mini_batch_has_the_schedule_of_the_target() -> None:
    allocator = PeAllocator(TARGET)
    for mini_batch in (0, 1, 5, 2, 0):
        found = allocator.allocate("conv", 6, 5, mini_batch)
        assert found.schedule == schedule_layer("conv", 6, 5, TARGET, mini_batch)
        assert np.array_equal(found.sample, found.schedule.sample_mask())


def test_a_rotation_that_goes_on_samples_other_pairs() -> None:
    allocator = PeAllocator(TARGET)
    cycle = [allocator.allocate("conv", 6, 5, mini_batch).sample for mini_batch in range(4)]
    assert np.array_equal(np.sum(cycle, axis=0), np.ones((6, 5)))


def test_an_allocation_that_does_not_move_is_made_once() -> None:
    allocator = PeAllocator(replace(TARGET, allocation=Allocation()))
    assert allocator.allocate("conv", 6, 5, 0) is allocator.allocate("conv", 6, 5, 3)
    assert allocator.allocate("conv", 6, 5, 0) is not allocator.allocate("conv", 7, 5, 0)
    assert allocator.allocate("conv", 6, 5, 0) is not allocator.allocate("fc", 6, 5, 0)


def test_the_allocations_of_a_cycle_are_made_once_and_nobody_can_write_to_their_masks() -> None:
    allocator = PeAllocator(TARGET)
    cycle = [allocator.allocate("conv", 6, 5, mini_batch) for mini_batch in range(4)]
    again = [allocator.allocate("conv", 6, 5, mini_batch) for mini_batch in range(4, 8)]
    assert all(first is second for first, second in zip(cycle, again, strict=True))
    assert not any(allocation.sample.flags.writeable for allocation in cycle)

"""Coverage: what is busy, what is sampled, and what would sample more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.scheduling.allocation import schedule_layer
from binpoint.scheduling.coverage import better_allocation, layer_coverage
from binpoint.support.target import Allocation, Strategy, Target


def make_target(pes: int, every: int, allocation: Allocation | None = None) -> Target:
    return Target("t", pes, (1, pes), tuple(range(0, pes, every)), allocation=allocation or Allocation())


def test_the_counts_of_a_layer() -> None:
    """64 images x 20 channels on 2,048 PEs: one round, 1,280 busy, 80 sampled."""
    coverage = layer_coverage(schedule_layer("conv", 64, 20, make_target(2048, 16)))
    assert (coverage.pairs, coverage.rounds, coverage.busy_pe_rounds, coverage.all_pe_rounds) == (1280, 1, 1280, 2048)
    assert coverage.utilisation == pytest.approx(0.625)
    assert coverage.sampled_pairs == 80
    assert coverage.complete


def test_mechanical_leaves_images_and_channels_out() -> None:
    target = make_target(64, 16, Allocation(Strategy.MECHANICAL, 4, 4))
    coverage = layer_coverage(schedule_layer("conv", 8, 8, target))
    assert coverage.unsampled_channels == (1, 2, 3, 5, 6, 7)
    assert coverage.unsampled_images == (1, 2, 3, 5, 6, 7)
    assert (coverage.sampled_images, coverage.sampled_channels) == (2, 2)
    assert not coverage.complete


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 40), st.integers(1, 40))
def test_counts_agree_with_the_mask(images: int, channels: int, pes: int, every: int) -> None:
    schedule = schedule_layer("conv", images, channels, make_target(pes, min(every, pes)))
    coverage, mask = layer_coverage(schedule), schedule.sample_mask()
    assert coverage.sampled_pairs == sum(
        int(schedule.pe[image, channel]) % min(every, pes) == 0
        for image in range(images)
        for channel in range(channels)
    )
    assert set(coverage.unsampled_images) == {image for image in range(images) if not mask[image].any()}
    assert set(coverage.unsampled_channels) == {channel for channel in range(channels) if not mask[:, channel].any()}
    assert 0 < coverage.utilisation <= 1


def test_a_better_allocation_is_one() -> None:
    """8 channels, statistics in 1 of 16: rotation by one only ever brings even channels to the statistics PEs."""
    target = make_target(2048, 16)
    schedule = schedule_layer("conv", 64, 8, target)
    assert layer_coverage(schedule).unsampled_channels == (1, 3, 5, 7)
    better = better_allocation(schedule, target)
    assert better == Allocation(Strategy.THINNED_ROTATED, 2, 8)
    mask = schedule_layer("conv", 64, 8, make_target(2048, 16, better)).sample_mask()
    assert mask.any(axis=0).all()


def test_no_allocation_samples_more_channels_than_there_are_samples() -> None:
    target = make_target(2048, 16)
    assert better_allocation(schedule_layer("conv", 1, 64, target), target) is None


def test_a_list_of_statistics_pes_may_be_helped_by_another_shift() -> None:
    """PEs 0 and 1 see every second image; with a shift of 2 these are turned by 4 and come back too early."""
    target = Target("t", 16, (4, 4), (0, 1), allocation=Allocation(shift=2))
    schedule = schedule_layer("conv", 8, 8, target)
    assert layer_coverage(schedule).unsampled_channels == (2, 3, 6, 7)
    assert better_allocation(schedule, target) == Allocation(shift=1)

"""The allocation flows: the golden vectors, the figures, and any sizes as properties."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from binpoint.scheduling.allocation import mini_batches_per_cycle, schedule_layer, schedule_network
from binpoint.scheduling.schedule import Schedule
from binpoint.scheduling.workload import Workload
from binpoint.support.target import Allocation, RotationCount, Strategy, Target

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "allocation.json").read_text())


def make_target(pes: int, allocation: Allocation, every: int = 1, tile: tuple[int, int] = (1, 1)) -> Target:
    return Target("t", pes, (1, pes), tuple(range(0, pes, every)), allocation=allocation, tile=tile)


def allocations() -> st.SearchStrategy[Allocation]:
    sizes = st.integers(1, 6)
    rotation = st.sampled_from(RotationCount)
    return st.one_of(
        st.builds(Allocation, st.just(Strategy.MECHANICAL), sizes, sizes),
        st.builds(lambda shift, count: Allocation(shift=shift, rotation=count), st.integers(1, 9), rotation),
        st.builds(Allocation, st.just(Strategy.THINNED_ROTATED), sizes, sizes, st.integers(1, 9), rotation),
    )


@st.composite
def layers(draw: st.DrawFn) -> tuple[int, int, Target]:
    """Images, channels and a target, of sizes that rarely divide each other; channels may exceed the PEs."""
    pes = draw(st.integers(36, 80))
    tile = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    target = make_target(pes, draw(allocations()), draw(st.integers(1, pes)), tile)
    return draw(st.integers(1, 40)), draw(st.integers(1, 120)), target


def golden_cases() -> list[Any]:
    """Each vector with each count of the rotation that its strategy has: within one round they agree."""
    cases = []
    for case in GOLDEN:
        strategy = Strategy(case["strategy"])
        thinning = (1, 1) if strategy is Strategy.ROTATED else (case["X"], case["Y"])
        counts = [RotationCount.GLOBAL] if strategy is Strategy.MECHANICAL else list(RotationCount)
        for count in counts:
            name = f"{strategy}-{case['pes']}-{case['channels']}-{count}"
            cases.append(pytest.param(case, Allocation(strategy, *thinning, rotation=count), id=name))
    return cases


@pytest.mark.parametrize(("case", "allocation"), golden_cases())
def test_golden_vectors(case: dict[str, Any], allocation: Allocation) -> None:
    target = make_target(case["pes"], allocation, case["every"])
    images, channels = case["images_per_round"], case["channels"]
    schedule = schedule_layer("layer", images, channels, target)
    schedule.validate()
    assert schedule.rounds == 1
    if case["pe"] is not None:
        assert schedule.pe.tolist() == case["pe"]
    n, c = np.indices((images, channels))
    assert int((schedule.pe * (131 * n + 17 * c + 1)).sum()) == case["pe_checksum"]
    # The vectors hold the first 64 sampled pairs.
    assert np.argwhere(schedule.sampled)[:64].tolist() == case["sampled"]


@given(layers())
def test_every_pair_once_and_no_pe_twice_a_round(layer: tuple[int, int, Target]) -> None:
    images, channels, target = layer
    schedule = schedule_layer("layer", images, channels, target)
    schedule.validate()
    slots = set(zip(schedule.round.ravel().tolist(), schedule.pe.ravel().tolist(), strict=True))
    assert len(slots) == schedule.pe.size
    assert schedule.by_pair(schedule.pe).shape == (images, channels)


@given(layers())
def test_a_layer_takes_the_fewest_rounds(layer: tuple[int, int, Target]) -> None:
    images, channels, target = layer
    schedule = schedule_layer("layer", images, channels, target)
    assert schedule.rounds == -(-schedule.pe.size // target.pes)


@given(layers())
def test_what_is_sampled_is_the_target_s_list(layer: tuple[int, int, Target]) -> None:
    images, channels, target = layer
    schedule = schedule_layer("layer", images, channels, target)
    assert schedule.sampled.tolist() == np.isin(schedule.pe, target.statistics_pes).tolist()


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), allocations())
def test_the_formulas_of_the_figures(x: int, y: int, groups: int, blocks: int, rounds: int, kind: Allocation) -> None:
    """Where C is a multiple of Y, P of C and N_L of X: figs. 11, 13 and 15 as printed, with j*X*C for j*C."""
    per_round, channels = x * groups, y * blocks
    pes = per_round * channels
    rotation = kind.rotation
    thinning = (1, 1) if kind.strategy is Strategy.ROTATED else (x, y)
    allocation = Allocation(kind.strategy, *thinning, kind.shift, rotation)
    schedule = schedule_layer("layer", per_round * rounds, channels, make_target(pes, allocation))
    for image in range(per_round * rounds):
        i, n = divmod(image, per_round)
        counted = n if rotation is RotationCount.ROUND else image
        j, k = divmod(n, x)
        for c in range(channels):
            if allocation.strategy is Strategy.ROTATED:
                expected = n * channels + (c - allocation.shift * counted) % channels
            else:
                turned = allocation.strategy is Strategy.THINNED_ROTATED
                rotated = (c - allocation.shift * (counted // x)) % channels if turned else c
                l, m = divmod(rotated, y)  # noqa: E741 - the patent's letter
                expected = k * y + j * x * channels + m + l * x * y
            assert (schedule.round[image, c], schedule.pe[image, c]) == (i, expected)


@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 4))
def test_rotated_samples_every_image_and_channel(every: int, multiple: int, array: int) -> None:
    """JP7367595B2 fig. 7: C a multiple of the spacing, at least as many images as the spacing."""
    channels = every * multiple
    target = make_target(channels * array, Allocation(), every)
    mask = schedule_layer("layer", every, channels, target).sample_mask()
    assert mask.any(axis=0).all()
    assert mask.any(axis=1).all()
    assert mask.sum() == every * multiple  # each channel exactly once


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3))
def test_thinned_rotated_samples_every_channel(x: int, y: int, multiple: int, array: int) -> None:
    """JP7367595B2 fig. 8: of the images every X-th, of those the channels in turn."""
    channels, images = y * multiple, x * y
    target = make_target(x * channels * array, Allocation(Strategy.THINNED_ROTATED, x, y), x * y)
    mask = schedule_layer("layer", images, channels, target).sample_mask()
    assert mask.any(axis=0).all()
    assert np.flatnonzero(mask.any(axis=1)).tolist() == list(range(0, images, x))


def test_mechanical_sees_the_same_images_and_channels() -> None:
    """JP7367595B2 fig. 4: what the patent warns of."""
    target = make_target(256, Allocation(Strategy.MECHANICAL, 4, 4), 16)
    mask = schedule_layer("layer", 64, 16, target).sample_mask()
    assert np.flatnonzero(mask.any(axis=0)).tolist() == [0, 4, 8, 12]
    assert np.flatnonzero(mask.any(axis=1)).tolist() == list(range(0, 64, 4))


def test_rotation_to_the_letter_starts_anew_each_round() -> None:
    """With one image a round the figure never rotates; counting globally does."""
    letter = make_target(16, Allocation(rotation=RotationCount.ROUND), 4)
    both = [schedule_layer("layer", 4, 16, target) for target in (letter, make_target(16, Allocation(), 4))]
    channels = [schedule.sample_mask().any(axis=0).sum() for schedule in both]
    assert channels == [4, 16]


def test_more_channels_than_pes_take_several_rounds_an_image() -> None:
    schedule = schedule_layer("layer", 1, 40, make_target(16, Allocation()))
    assert schedule.round.tolist() == [[0] * 16 + [1] * 16 + [2] * 8]
    assert schedule.pe[0, :3].tolist() == [0, 1, 2]


def test_an_image_that_overshoots_goes_on_in_the_next_round() -> None:
    """P = 16 and C = 6: N_L = ceil(16 / 6) = 3 images touch the first round, the third one only in part."""
    schedule = schedule_layer("layer", 3, 6, make_target(16, Allocation(Strategy.MECHANICAL)))
    assert schedule.round.tolist() == [[0] * 6, [0] * 6, [0, 0, 0, 0, 1, 1]]


def continuous(target: Target) -> Target:
    """The same array, its rotation going on across mini-batches."""
    strategy = target.allocation.strategy
    rotating = Allocation() if strategy is Strategy.MECHANICAL else target.allocation
    return replace(target, allocation=replace(rotating, rotation=RotationCount.CONTINUOUS))


def sampled_counts(images: int, channels: int, target: Target, first: int, count: int) -> NDArray[np.int64]:
    """(images, channels): in how many of some mini-batches in a row a statistics PE computes each pair."""
    batches = (schedule_layer("layer", images, channels, target, first + b) for b in range(count))
    return np.sum([schedule.sample_mask() for schedule in batches], axis=0)


@given(layers(), st.integers(0, 999))
def test_rotation_that_goes_on_samples_every_pair(layer: tuple[int, int, Target], first: int) -> None:
    """Whatever the sizes, of as many mini-batches as the spacing each pair is sampled in one, in two at the most."""
    images, channels, target = layer[0], layer[1], continuous(layer[2])
    spacing = target.statistics_spacing
    assert spacing is not None
    counts = sampled_counts(images, channels, target, first, spacing)
    assert counts.min() >= 1
    assert counts.max() <= (1 if target.pes % spacing == 0 else 2)


@given(layers(), st.integers(0, 99))
def test_rotation_that_goes_on_moves_the_pes_alone(layer: tuple[int, int, Target], number: int) -> None:
    images, channels, target = layer[0], layer[1], continuous(layer[2])
    first, later = (schedule_layer("layer", images, channels, target, batch) for batch in (0, number))
    later.validate()
    assert later.round.tolist() == first.round.tolist()
    assert later.pe.tolist() == ((first.pe + number % mini_batches_per_cycle(target)) % target.pes).tolist()
    counted_globally = replace(target, allocation=replace(target.allocation, rotation=RotationCount.GLOBAL))
    assert first == schedule_layer("layer", images, channels, counted_globally)


def test_statistics_pes_without_a_spacing_see_every_pair_after_a_turn_of_the_array() -> None:
    target = replace(continuous(make_target(12, Allocation())), statistics_pes=(1, 2, 7))
    assert mini_batches_per_cycle(target) == 12
    assert sampled_counts(5, 4, target, 0, 12).tolist() == [[3] * 4] * 5


@given(layers(), st.integers(1, 99))
def test_mini_batches_are_alike_unless_the_rotation_goes_on(layer: tuple[int, int, Target], number: int) -> None:
    images, channels, target = layer
    assume(target.allocation.rotation is not RotationCount.CONTINUOUS)
    assert mini_batches_per_cycle(target) == 1
    assert schedule_layer("layer", images, channels, target, number) == schedule_layer(
        "layer", images, channels, target
    )


def test_shift_is_the_step_of_the_rotation() -> None:
    schedule = schedule_layer("layer", 2, 8, make_target(16, Allocation(shift=3)))
    assert schedule.pe[1].tolist() == [8 + (c - 3) % 8 for c in range(8)]


def test_a_tile_is_allocated_as_one() -> None:
    schedule = schedule_layer("layer", 5, 7, make_target(6, Allocation(Strategy.MECHANICAL), 2, tile=(2, 3)))
    assert schedule.pe.tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert schedule.round.tolist() == [[0] * 3, [0] * 3, [1] * 3]
    assert schedule.by_pair(schedule.pe)[:, 2:4].tolist() == [[0, 1], [0, 1], [3, 4], [3, 4], [0, 1]]


@pytest.mark.parametrize(("images", "channels", "first"), [(0, 1, 0), (1, 0, 0), (1, 1, -1)])
def test_sizes_below_one_are_refused(images: int, channels: int, first: int) -> None:
    with pytest.raises(ValueError, match="channels"):
        schedule_layer("layer", images, channels, make_target(4, Allocation()), first)


def test_a_million_pairs_on_a_million_pes_are_quick() -> None:
    """The promise is 0.2 s; processor time, the best of three, does not depend on what else the machine does."""
    target = make_target(1_000_000, Allocation(Strategy.THINNED_ROTATED, 4, 4), 16)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        schedule = schedule_layer("layer", 1000, 1000, target)
        seconds.append(time.process_time() - start)
    assert schedule.rounds == 1
    assert min(seconds) < 0.2


def test_a_network_keeps_edited_layers() -> None:
    target = make_target(8, Allocation())
    workloads = [Workload(name, 4, 1, 1, 1, 1, 1, 1) for name in ("first", "second")]
    plain = schedule_network("net", workloads, 2, target)
    assert [layer.layer for layer in plain.layers] == ["first", "second"]
    edited = Schedule("net", "t", 2, (schedule_layer("second", 2, 4, make_target(8, Allocation(shift=3))),))
    merged = schedule_network("net", workloads, 2, target, edited)
    assert merged.layers == (plain.layers[0], edited.layers[0])
    assert merged.layers[1] != plain.layers[1]

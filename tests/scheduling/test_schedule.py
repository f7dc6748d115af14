"""The schedule of a layer: its invariants, its tiles, its equality."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.scheduling.schedule import LayerSchedule, Tiling


def make_schedule(pe: list[list[int]], round_: list[list[int]], pes: int = 4) -> LayerSchedule:
    pes_of, rounds = np.array(pe, np.int32), np.array(round_, np.int32)
    return LayerSchedule("conv", *pes_of.shape, pes, (1, 1), pes_of, rounds, pes_of % 2 == 0)


def test_a_good_schedule_has_no_conflict() -> None:
    schedule = make_schedule([[0, 1], [3, 0]], [[0, 0], [0, 1]])
    schedule.validate()
    assert schedule.conflicts() == []
    assert schedule.rounds == 2


def test_a_pe_twice_in_a_round_is_found_at_the_later_tile() -> None:
    (conflict,) = make_schedule([[2, 1], [2, 0]], [[0, 0], [0, 0]]).conflicts()
    assert conflict.tile == (1, 0)
    assert conflict.message == "PE 2 twice in round 0, also for image 0, channel 0"


def test_tiles_without_a_pe_or_round_hide_no_clash() -> None:
    conflicts = make_schedule([[9, 9, 1, 1, 1, 1]], [[0, 0, 0, 0, -1, -1]]).conflicts()
    assert [(conflict.tile[1], conflict.message) for conflict in conflicts] == [
        (0, "there is no PE 9"),
        (1, "there is no PE 9"),
        (3, "PE 1 twice in round 0, also for image 0, channel 2"),
        (4, "there is no round -1"),
        (5, "there is no round -1"),
    ]


@pytest.mark.parametrize(
    ("pe", "round_", "message"),
    [
        ([[0, 4]], [[0, 0]], "no PE 4"),
        ([[0, -1]], [[0, 0]], "no PE -1"),
        ([[0, 1]], [[0, 2]], "no round 2"),
        ([[0, 1]], [[0, -1]], "no round -1"),
        ([[0, 1, 2]], [[0, 2, 2]], "round 2, but no tile is in round 1"),
        ([[0, 1, 2]], [[1, 1, 1]], "round 1, but no tile is in round 0"),
    ],
)
def test_validate_names_the_fault(pe: list[list[int]], round_: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_schedule(pe, round_).validate()


def test_validate_checks_shapes() -> None:
    schedule = make_schedule([[0, 1]], [[0, 0]])
    with pytest.raises(ValueError, match="round has shape"):
        replace(schedule, round=np.zeros((2, 2), np.int32)).validate()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=12))
def test_conflicts_are_exactly_the_repeated_slots(slots: list[tuple[int, int]]) -> None:
    used = sorted({round_ for round_, _ in slots})
    dense = [(used.index(round_), pe) for round_, pe in slots]
    schedule = make_schedule([[pe for _, pe in dense]], [[round_ for round_, _ in dense]])
    expected = [index for index, slot in enumerate(dense) if slot in dense[:index]]
    assert [conflict.tile[1] for conflict in schedule.conflicts()] == expected


def test_equality_is_by_content() -> None:
    schedule = make_schedule([[0, 1]], [[0, 0]])
    assert schedule == make_schedule([[0, 1]], [[0, 0]])
    assert schedule != make_schedule([[1, 0]], [[0, 0]])
    assert schedule != replace(schedule, layer="other")
    assert schedule != "schedule"


def test_the_tiles_of_a_layer() -> None:
    tiling = Tiling(5, 7, (2, 3))
    assert tiling.counts == (3, 3)
    assert tiling.tile_of(3, 5) == (1, 1)
    assert tiling.pairs_of((2, 2)) == (range(4, 5), range(6, 7))
    assert tiling.name((0, 1)) == "images 0 to 1, channels 3 to 5"
    assert tiling.name((2, 2)) == "image 4, channel 6"


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 5), st.integers(1, 5))
def test_tiles_cover_every_pair_once(images: int, channels: int, ti: int, tc: int) -> None:
    tiling = Tiling(images, channels, (ti, tc))
    seen = [
        (image, channel)
        for i in range(tiling.counts[0])
        for j in range(tiling.counts[1])
        for image in tiling.pairs_of((i, j))[0]
        for channel in tiling.pairs_of((i, j))[1]
    ]
    assert sorted(seen) == [(image, channel) for image in range(images) for channel in range(channels)]
    assert all(image in tiling.pairs_of(tiling.tile_of(image, channel))[0] for image, channel in seen)

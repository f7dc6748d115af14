"""The picture in the terminal: every PE once, brackets on statistics PEs, no line too long."""

import re
from dataclasses import replace

import pytest

from binpoint.scheduling.allocation import schedule_layer
from binpoint.scheduling.picture import MAXIMUM_ROWS, busy_cells, draw_round
from binpoint.support.target import Allocation, Strategy, Target
from binpoint.support.target_file import load_target

TINY = load_target("tiny16")


def draw(images: int, channels: int, target: Target, width: int = 80, number: int = 0) -> str:
    return draw_round(schedule_layer("conv1", images, channels, target), target, number, width).plain


def test_the_grid_is_drawn_where_it_fits() -> None:
    assert draw(4, 6, TINY).splitlines() == [
        "conv1 (4 images x 6 channels) on tiny16, round 0 of 0 to 1",
        "PE 0  [0:0] 0:1  1:0  1:1 ",
        "PE 4  [0:2] 0:3  1:2  1:3 ",
        "PE 8  [0:4] 0:5  1:4  1:5 ",
        "PE 12 [2:1] 2:2  3:1  3:2 ",
        "image:channel   [image:channel] on a PE with a statistics circuit   . idle",
    ]


def test_idle_pes_are_dots_and_idle_rows_one_line() -> None:
    assert draw(4, 6, TINY, number=1).splitlines()[1:4] == [
        "PE 0  [2:3] 2:4  3:3  3:4 ",
        "PE 4  [2:5] 2:0  3:5  3:0 ",
        "PE 8 to 15 idle",
    ]
    assert draw(1, 5, TINY).splitlines()[2] == "PE 4  [0:4]  .    .    .  "


def test_tiles_are_drawn_as_ranges() -> None:
    target = replace(TINY, tile=(2, 3), allocation=Allocation(Strategy.MECHANICAL, 1, 1))
    assert draw(3, 7, target).splitlines()[1:3] == [
        "PE 0  [0-1:0-2] 0-1:3-5  0-1:6      2:0-2 ",
        "PE 4  [  2:3-5]   2:6       .        .    ",
    ]


@pytest.mark.parametrize("width", [24, 40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = draw(64, 64, load_target("dlu2048"), width).splitlines()[1:-1]
    assert max(map(len, lines)) <= width
    assert len(lines) == MAXIMUM_ROWS + 1


def test_statistics_pes_stand_below_each_other() -> None:
    lines = draw(64, 64, load_target("dlu2048"), 100).splitlines()[1:-1]
    assert {line.index("[") for line in lines if "[" in line} == {len("PE 2047 ")}


def test_a_long_round_shows_its_ends() -> None:
    lines = draw(32, 64, load_target("dlu2048"), 100).splitlines()
    assert "..." in [line.strip() for line in lines]
    assert lines[-2].startswith("PE 2040")


def test_every_pe_is_drawn_once() -> None:
    target = replace(load_target("dlu2048"), pes=120, grid=(10, 12), statistics_pes=tuple(range(0, 120, 7)))
    text = draw(12, 10, target, 120)
    pairs = re.findall(r"(\[?) *(\d+):(\d+) *\]?", text)
    schedule = schedule_layer("conv1", 12, 10, target)
    assert len(pairs) == 120
    assert {(int(image), int(channel)) for opening, image, channel in pairs if opening} == {
        (image, channel) for image in range(12) for channel in range(10) if schedule.sampled[image, channel]
    }


def test_idle_pes_of_a_large_array_cost_nothing() -> None:
    target = replace(load_target("dlu2048"), pes=2**22, grid=(2**11, 2**11))
    assert len(busy_cells(schedule_layer("conv1", 64, 6, target), 0)) == 64 * 6
    assert draw(64, 6, target).splitlines()[-2] == "PE 385 to 4194303 idle"

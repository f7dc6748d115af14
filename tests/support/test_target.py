"""The target model: its constructors accept what fits together and name every fault."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from binpoint.support.target import Allocation, InvalidTargetError, RotationCount, Strategy, Target

GOOD = Target("tiny", 16, (4, 4), (0, 4, 8, 12))


def test_the_mask_of_statistics_pes() -> None:
    assert np.flatnonzero(GOOD.statistics_mask).tolist() == [0, 4, 8, 12]
    assert not GOOD.statistics_mask.flags.writeable


@pytest.mark.parametrize(
    ("pes", "spacing"),
    [
        ((0, 4, 8, 12), 4),
        (tuple(range(16)), 1),
        ((0,), 16),
        ((0, 9), 9),
        ((1, 5, 9, 13), None),
        ((0, 4, 8), None),
        ((), None),
    ],
)
def test_the_spacing_of_statistics_pes(pes: tuple[int, ...], spacing: int | None) -> None:
    assert replace(GOOD, statistics_pes=pes).statistics_spacing == spacing


@pytest.mark.parametrize(
    ("fields", "involved", "message"),
    [
        ({"name": ""}, "name", "plain name"),
        ({"name": "a b"}, "name", "plain name"),
        ({"pes": 0}, "pes", "pes is out of range"),
        ({"grid": (4, 5)}, "grid", "the grid has 20 places for 16 PEs"),
        ({"grid": (0, 4)}, "grid", "grid is out of range"),
        ({"tile": (1, 0)}, "tile", "tile is out of range"),
        ({"statistics_pes": (0, 16)}, "statistics_pes", "the array does not have"),
        ({"statistics_pes": (-1, 3)}, "statistics_pes", "the array does not have"),
        ({"statistics_pes": (3, 3)}, "statistics_pes", "repeated statistics PEs"),
        ({"statistics_pes": (4, 3)}, "statistics_pes", "out of order"),
        ({"acquires": ("msb", "top")}, "acquires", "unknown or repeated statistics"),
        ({"acquires": ("msb", "msb")}, "acquires", "unknown or repeated statistics"),
        ({"acquires": ()}, "acquires", "acquire nothing"),
        ({"register_bits": 1}, "register_bits", "register_bits is out of range"),
        ({"accumulator_bits": 65}, "accumulator_bits", "accumulator_bits is out of range"),
        ({"clock_hz": 0.0}, "clock_hz", "clock_hz is out of range"),
        ({"clock_hz": float("nan")}, "clock_hz", "clock_hz is out of range"),
        ({"dram_bytes_per_second": float("inf")}, "dram_bytes_per_second", "out of range"),
        ({"local_memory_bytes": 0}, "local_memory_bytes", "out of range"),
        ({"allocation": Allocation(Strategy.MECHANICAL, 8, 4)}, "x", "32 PEs share one statistics PE"),
    ],
)
def test_a_fault_names_its_field(fields: dict[str, Any], involved: str, message: str) -> None:
    with pytest.raises(InvalidTargetError, match=message) as caught:
        replace(GOOD, **fields)
    assert involved in {field for fault in caught.value.faults for field in fault.fields}


def test_several_faults_come_at_once() -> None:
    with pytest.raises(InvalidTargetError) as caught:
        replace(GOOD, name="", statistics_pes=(1, 1, 99), register_bits=99)
    assert len(caught.value.faults) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Strategy.ROTATED, 4), "rotated has no x"),
        ((Strategy.ROTATED, 1, 4), "rotated has no y"),
        ((Strategy.MECHANICAL, 4, 4, 2), "mechanical has no shift"),
        ((Strategy.MECHANICAL, 4, 4, 1, RotationCount.ROUND), "mechanical has no rotation"),
        ((Strategy.THINNED_ROTATED, 0, 4), "x is out of range"),
        ((Strategy.ROTATED, 1, 1, 0), "shift is out of range"),
    ],
)
def test_an_allocation_has_only_the_parameters_of_its_strategy(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidTargetError, match=message):
        Allocation(*arguments)


def test_notes_on_what_is_surprising() -> None:
    assert GOOD.notes() == []
    assert "no PE has a statistics circuit" in replace(GOOD, statistics_pes=()).notes()[0]
    mechanical = replace(GOOD, allocation=Allocation(Strategy.MECHANICAL, 2, 2))
    assert mechanical.notes() == []
    assert "x * y = 4, but statistics PEs are given every 8" in replace(mechanical, statistics_pes=(0, 8)).notes()[0]
    assert "given in a list" in replace(mechanical, statistics_pes=(1, 8)).notes()[0]

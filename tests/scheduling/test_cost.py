"""The cost formulas, by hand on small layers."""

from dataclasses import replace

import pytest

from binpoint.scheduling.allocation import schedule_layer
from binpoint.scheduling.cost import layer_cost
from binpoint.scheduling.workload import Workload, select_workloads
from binpoint.support.diagnostics import UserError
from binpoint.support.target import Target

TARGET = Target("t", 8, (2, 4), (0,), clock_hz=1e9, dram_bytes_per_second=1e9)
CONV = Workload("conv1", 3, 4, 5, 27, input_bytes=60, parameter_bytes=84, output_bytes=60, fused=("conv1", "relu1"))


def test_cycles_are_rounds_times_the_work_of_a_tile() -> None:
    """4 images x 3 channels on 8 PEs: 2 rounds of one pair each, 4 x 5 results of 27 operations."""
    cost = layer_cost(schedule_layer("conv1", 4, 3, TARGET), CONV, TARGET)
    assert cost.cycles == 2 * 4 * 5 * 27
    assert cost.operations == 12 * 4 * 5 * 27


def test_a_round_lasts_as_long_as_its_largest_tile() -> None:
    """5 images x 3 channels in tiles of 2 x 2 on 2 PEs: rounds of (4, 2), (4, 2) and (2, 1) pairs."""
    target = replace(TARGET, pes=2, grid=(1, 2), tile=(2, 2))
    cost = layer_cost(schedule_layer("conv1", 5, 3, target), CONV, target)
    assert cost.cycles == (4 + 4 + 2) * 4 * 5 * 27


def test_every_operand_crosses_the_bus_once() -> None:
    assert layer_cost(schedule_layer("conv1", 4, 3, TARGET), CONV, TARGET).dram_bytes == 4 * (60 + 60) + 84


def test_the_longer_of_compute_and_dram_decides() -> None:
    schedule = schedule_layer("conv1", 4, 3, TARGET)
    slow_clock = layer_cost(schedule, CONV, replace(TARGET, clock_hz=1e3))
    assert (slow_clock.bound, slow_clock.seconds) == ("compute", pytest.approx(1080 / 1e3))
    slow_bus = layer_cost(schedule, CONV, replace(TARGET, dram_bytes_per_second=1e3))
    assert (slow_bus.bound, slow_bus.seconds) == ("dram", pytest.approx(564 / 1e3))


def test_a_fused_layer_s_name_finds_its_workload() -> None:
    pool = Workload("pool1", 3, 2, 2, 4, 60, 0, 12, statistics=False)
    assert select_workloads([CONV, pool], []) == (CONV, pool)
    assert select_workloads([CONV, pool], ["pool1", "relu1"]) == (CONV, pool)
    assert select_workloads([CONV, pool], ["relu1", "conv1"]) == (CONV,)
    with pytest.raises(UserError, match='did you mean "pool1"') as caught:
        select_workloads([CONV, pool], ["pool"])
    assert caught.value.diagnostics[0].code == "unknown-layer"

"""What a scheduled layer costs: cycles and DRAM traffic from documented formulas (docs/scheduling.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from binpoint.scheduling.schedule import LayerSchedule
from binpoint.scheduling.workload import Workload
from binpoint.support.target import Target


@dataclass(frozen=True)
class LayerCost:
    """The cost of one mini-batch through one layer.

    Attributes:
        operations: multiply-accumulates (or comparisons, additions, look-ups) of all results.
        cycles: each PE does one operation a cycle; a round lasts as long as its largest tile.
        dram_bytes: every input, parameter and output crosses the DRAM bus once. A lower bound.
        seconds: the longer of cycles / clock_hz and dram_bytes / dram_bytes_per_second.
    """

    operations: int
    cycles: int
    dram_bytes: int
    seconds: float
    bound: str
    """"compute" or "dram": which of the two is the longer."""


def layer_cost(schedule: LayerSchedule, workload: Workload, target: Target) -> LayerCost:
    """Cost of a layer's schedule on a target."""
    cycles = int(_largest_tiles(schedule).sum()) * workload.operations_per_channel
    operations = schedule.images * schedule.channels * workload.operations_per_channel
    dram_bytes = schedule.images * (workload.input_bytes + workload.output_bytes) + workload.parameter_bytes
    compute_seconds, dram_seconds = cycles / target.clock_hz, dram_bytes / target.dram_bytes_per_second
    bound = "compute" if compute_seconds >= dram_seconds else "dram"
    return LayerCost(operations, cycles, dram_bytes, max(compute_seconds, dram_seconds), bound)


def _largest_tiles(schedule: LayerSchedule) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """(rounds,): the pairs in the largest tile of each round. Tiles at the border of a layer are smaller."""
    (ti, tc), (rows, columns) = schedule.tile, schedule.tiling.counts
    heights = np.minimum(ti, schedule.images - ti * np.arange(rows))
    widths = np.minimum(tc, schedule.channels - tc * np.arange(columns))
    largest = np.zeros(schedule.rounds, np.int64)
    np.maximum.at(largest, schedule.round.ravel(), np.outer(heights, widths).ravel())
    return largest

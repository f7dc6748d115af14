"""What is said of a scheduled layer in tables and JSON, and what deserves a warning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from binpoint.scheduling.cost import LayerCost, layer_cost
from binpoint.scheduling.coverage import Coverage, better_allocation, layer_coverage
from binpoint.scheduling.explain import listed, ranges
from binpoint.scheduling.schedule import LayerSchedule
from binpoint.scheduling.workload import Workload
from binpoint.support.target import Allocation, RotationCount, Target


@dataclass(frozen=True)
class LayerReport:
    """A layer's workload, schedule, coverage and cost."""

    workload: Workload
    schedule: LayerSchedule
    coverage: Coverage
    cost: LayerCost

    def facts(self) -> dict[str, Any]:
        """The numbers as plain data; what is sampled is None for layers without statistics."""
        coverage, cost = self.coverage, self.cost
        sampled: dict[str, Any] = {
            "sampled_pairs": coverage.sampled_pairs,
            "sampled_images": coverage.sampled_images,
            "sampled_channels": coverage.sampled_channels,
            "unsampled_images": list(coverage.unsampled_images),
            "unsampled_channels": list(coverage.unsampled_channels),
        }
        return {
            "pairs": coverage.pairs,
            "rounds": coverage.rounds,
            "busy_pe_rounds": coverage.busy_pe_rounds,
            "utilisation": round(coverage.utilisation, 6),
            **(sampled if self.workload.statistics else dict.fromkeys(sampled)),
            "operations": cost.operations,
            "cycles": cost.cycles,
            "dram_bytes": cost.dram_bytes,
            "seconds": cost.seconds,
            "bound": cost.bound,
        }


def report_layer(schedule: LayerSchedule, workload: Workload, target: Target) -> LayerReport:
    """Coverage and cost of one layer."""
    return LayerReport(workload, schedule, layer_coverage(schedule), layer_cost(schedule, workload, target))


def coverage_warnings(reports: Sequence[LayerReport], target: Target) -> list[str]:
    """One warning for each group of layers of which some image or channel is never sampled, in the same way.

    None where the rotation goes on across mini-batches: every pair is sampled in one of a cycle.
    """
    if not target.statistics_pes:
        return [f"{target.name} has no statistics PEs, so nothing is sampled and exponents cannot follow statistics"]
    if target.allocation.rotation is RotationCount.CONTINUOUS:
        return []
    layers_by_text: dict[str, list[str]] = {}
    for report in reports:
        if report.workload.statistics and not report.coverage.complete:
            layers_by_text.setdefault(_warning(report, target), []).append(report.workload.layer)
    return [f"{listed(layers)}: {text}" for text, layers in layers_by_text.items()]


def _warning(report: LayerReport, target: Target) -> str:
    coverage = report.coverage
    missing = []
    channel, image = ("channel", "image") if report.workload.rows is None else ("input channel", "output channel")
    for noun, numbers, count in (
        (channel, coverage.unsampled_channels, coverage.channels),
        (image, coverage.unsampled_images, coverage.images),
    ):
        if numbers:
            missing.append(f"{ranges(noun, numbers)} ({len(numbers)} of {count})")
    text = f"never sampled: {', '.join(missing)}"
    if coverage.unsampled_channels:
        better = better_allocation(report.schedule, target)
        text += "" if better is None else f"; {_describe(better, target.allocation)} would sample every channel"
    return text


def _describe(better: Allocation, present: Allocation) -> str:
    parameters = [f"x = {better.x}", f"y = {better.y}"] if better.x * better.y > 1 else []
    parameters.append(f"shift = {better.shift}")
    if better.rotation is not present.rotation:
        parameters.append(f"rotation = {better.rotation}")
    return f"{better.strategy} with {', '.join(parameters)}"

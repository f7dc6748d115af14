"""From the names a user types to a schedule: network file -> program -> workloads -> schedule of all layers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from binpoint.backends.workload import layer_workloads
from binpoint.compiler.frontends.dsl.parser import parse_network
from binpoint.compiler.pipeline import DEFAULT_BATCH, lower_network
from binpoint.scheduling.allocation import schedule_network
from binpoint.scheduling.document import parse_schedule
from binpoint.scheduling.schedule import LayerSchedule, Schedule
from binpoint.scheduling.workload import Workload
from binpoint.support.files import read_text
from binpoint.support.target import Target
from binpoint.support.target_file import load_target


@dataclass(frozen=True)
class Plan:
    """A network on a target: what its layers need, and where and when they are computed."""

    target: Target
    workloads: tuple[Workload, ...]
    schedule: Schedule

    def layers(self) -> list[tuple[Workload, LayerSchedule]]:
        """Each layer's workload beside its schedule."""
        return list(zip(self.workloads, self.schedule.layers, strict=True))


def plan_network(network_file: Path, target_name: str, batch: int | None, edited: Path | None = None) -> Plan:
    """Schedule the kernels that a network compiles to.

    Args:
        network_file: a .bp file.
        target_name: a shipped target or a .toml file.
        batch: images of a mini-batch; None for the edited schedule's, else DEFAULT_BATCH.
        edited: a schedule to obey; layers that it leaves out follow the target's allocation.

    Raises:
        UserError: for faults in any of the files.
    """
    target = load_target(target_name)
    program = lower_network(parse_network(network_file), target)
    workloads = layer_workloads(program)
    if edited is None:
        return Plan(target, workloads, schedule_network(program.name, workloads, batch or DEFAULT_BATCH, target))
    kept = parse_schedule(read_text(edited, "schedule"), str(edited), program.name, workloads, target, batch)
    return Plan(target, workloads, schedule_network(program.name, workloads, kept.images, target, kept))

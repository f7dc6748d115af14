"""From the names a user types to a schedule: network file -> program -> workloads -> schedule of all layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from binpoint.backends.training_workload import training_workloads
from binpoint.backends.workload import layer_workloads
from binpoint.compiler.frontends.dsl.parser import parse_network
from binpoint.compiler.network import NetworkGraph
from binpoint.compiler.pipeline import DEFAULT_BATCH, lower_network
from binpoint.compiler.settings import apply_settings, parse_settings
from binpoint.compiler.training_pipeline import compile_training
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


def plan_network(
    network_file: Path,
    target_name: str,
    batch: int | None,
    edited: Path | None = None,
    mini_batch: int = 0,
    training: bool = False,
    settings: Sequence[str] = (),
) -> Plan:
    """Schedule the kernels that a network compiles to.

    Args:
        network_file: a .bp file.
        target_name: a shipped target or a .toml file.
        batch: images of a mini-batch; None for the edited schedule's, else DEFAULT_BATCH.
        edited: a schedule to obey; layers that it leaves out follow the target's allocation.
        mini_batch: the number of the mini-batch, for a rotation that goes on across mini-batches.
        training: whether to schedule a mini-batch of training: gradients and updates too.
        settings: changes to the network's numbers and to the target, each key=value.

    Raises:
        UserError: for faults in any of the files and in the settings.
    """
    changes = parse_settings(settings)
    network, target = apply_settings(parse_network(network_file), load_target(target_name), changes)
    workloads_of = _training_workloads(network, target) if training else _workloads(network, target)
    kept, images = None, batch or DEFAULT_BATCH
    if edited is not None:
        workloads = workloads_of(images)
        kept = parse_schedule(read_text(edited, "schedule"), str(edited), network.name, workloads, target, batch)
        images = kept.images
    workloads = workloads_of(images)
    return Plan(target, workloads, schedule_network(network.name, workloads, images, target, kept, mini_batch))


Workloads = Callable[[int], tuple[Workload, ...]]
"""The workloads of mini-batches of so many images."""


def _workloads(network: NetworkGraph, target: Target) -> Workloads:
    """Those of inference are given an image, whatever the batch."""
    workloads = layer_workloads(lower_network(network, target))
    return lambda images: workloads


def _training_workloads(network: NetworkGraph, target: Target) -> Workloads:
    """The gradients of parameters sum over the images of a mini-batch."""
    program = compile_training(network, target).program
    return lambda images: training_workloads(replace(program, batch=images))

"""What makes one training another: network, target, options and data, as fields with values in text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.training_program import KernelStep, SumsStep, TrainingProgram, UpdateStep
from binpoint.runtime.data import ArraySource, Samples
from binpoint.support.target import Target


def program_fields(program: TrainingProgram) -> dict[str, str]:
    """The network: its name, every step and every format."""
    steps = {f"step.{name}": str(step) for name, step in _named_steps(program).items()}
    parameters = {f"parameter.{each.name}": str(each) for each in program.parameters}
    formats = {f"format.{name}": str(each) for name, each in sorted(program.formats.items())}
    inputs = {f"input.{declared.name}": str(declared) for declared in program.inputs}
    return {"network": program.name, "logits": program.logits, **inputs, **parameters, **steps, **formats}


def target_fields(target: Target) -> dict[str, str]:
    """The array, key by key; who allocates does not matter, results are the same."""
    fields = {name: value for name, value in vars(target).items() if name in target.__dataclass_fields__}
    fields |= {f"allocation.{name}": value for name, value in vars(fields.pop("allocation")).items()}
    fields["statistics_pes"] = hashlib.sha256(str(target.statistics_pes).encode()).hexdigest()[:16]
    for name in ("allocator", "description"):
        del fields[name]
    return {f"target.{name}": str(value) for name, value in fields.items()}


def data_fields(samples: Samples, what: str) -> dict[str, str]:
    """How many samples there are, and a hash of their labels and, where they are in memory, of all numbers."""
    digest = hashlib.sha256()
    if samples.labels is not None:
        digest.update(samples.labels.tobytes())
    for name, source in sorted(samples.sources.items()):
        digest.update(name.encode())
        if isinstance(source, ArraySource):
            digest.update(source.array.tobytes())
    for name in samples.names or ():
        digest.update(name.encode())
    return {f"{what}.samples": str(len(samples)), f"{what}.sha256": digest.hexdigest()[:16]}


def parameter_fields(parameters: Mapping[str, NDArray[np.float32]]) -> dict[str, str]:
    """A hash of the first value of every parameter."""
    return {
        f"first.{name}": hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()[:16]
        for name, values in sorted(parameters.items())
    }


def _named_steps(program: TrainingProgram) -> Mapping[str, object]:
    """The steps in order, under names of their own."""
    steps: dict[str, object] = {}
    for index, step in enumerate(program.steps):
        match step:
            case KernelStep():
                name = step.call.spec.name
            case SumsStep():
                name = step.name
            case UpdateStep():
                name = f"{step.parameter}.update"
            case _:
                name = f"{index}.{type(step).__name__}"
        steps[name] = step
    return steps

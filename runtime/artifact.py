"""The artifact `.bpz`: everything a session needs to run a network, and nothing that could run by itself.

A zip of the network's fx IR, the target, the parameters as mantissas with their exponents, the float parameters that
they were made from, and the edited schedule where there is one. There is no machine code and no pickle in it: kernels
are built from the verified IR. docs/artifact.md describes each member.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import IntArray
from binpoint.backends.program import Program
from binpoint.backends.workload import layer_workloads
from binpoint.runtime import archive
from binpoint.runtime import manifest as manifests
from binpoint.runtime.detection.document import parse_detector, print_detector
from binpoint.runtime.manifest import Manifest, Origin
from binpoint.runtime.tensors import (
    Exponents,
    parse_exponents,
    print_exponents,
    read_floats,
    read_mantissas,
    write_tensors,
)
from binpoint.scheduling.document import parse_schedule, print_schedule
from binpoint.scheduling.schedule import Schedule
from binpoint.support.detector import Detector, check_detector
from binpoint.support.diagnostics import Collector, Diagnostic, Location, UserError, user_error
from binpoint.support.files import read_bytes, write_atomically
from binpoint.support.numeric import TensorPolicy
from binpoint.support.target import Target
from binpoint.support.target_file import parse_target, print_target

WHAT = "artifact"

PROGRAM, TARGET, SCHEDULE, DETECTION = "program.mlir", "target.toml", "schedule.json", "detection.json"
MANTISSAS, EXPONENTS, FLOATS = "weights.safetensors", "exponents.json", "float.safetensors"

REQUIRED_MEMBERS = (PROGRAM, TARGET, MANTISSAS, EXPONENTS, FLOATS)
OPTIONAL_MEMBERS = (SCHEDULE, DETECTION)


@dataclass(frozen=True)
class Artifact:
    """A compiled network.

    Attributes:
        program: the kernels in order; `program_from_module` of `ir`.
        ir: the fx IR as text.
        target: the PE array.
        batch: the number of images that it was compiled for; sessions may run others.
        mantissas: parameters by name, weight (K, C / groups, R, S) or bias (K,).
        exponents: of every parameter with one, and of inputs and results where the user or a calibration gave one.
        channel_exponents: of the output channels of weights per channel, (K,) by name.
        floats: the float32 parameters, of the same names and shapes: the yardstick of accuracy.
        schedule: the schedule that the user edited, None for the target's own allocation.
        origin: where the parameters come from, None where nobody said.
        detector: how to read detections out of the outputs, None where the network detects nothing.
    """

    program: Program
    ir: str
    target: Target
    batch: int
    mantissas: Mapping[str, IntArray]
    exponents: Mapping[str, int]
    floats: Mapping[str, NDArray[np.float32]]
    schedule: Schedule | None = None
    origin: Origin | None = None
    detector: Detector | None = None
    channel_exponents: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def write_artifact(path: Path, artifact: Artifact) -> None:
    """Write the artifact, whole or not at all; the same contents give the same bytes. Raises UserError."""
    write_atomically(path, archive.pack(_members(artifact)))


def read_artifact(path: Path) -> Artifact:
    """Read an artifact and check all of it: members, hashes, IR, target, schedule, and each tensor against the IR.

    Raises:
        UserError: saying what is wrong with the file.
    """
    return read_artifact_with_manifest(path)[0]


def read_artifact_with_manifest(path: Path) -> tuple[Artifact, Manifest]:
    """The artifact and what its manifest says of who wrote it. Raises UserError."""
    known = (manifests.MEMBER, *REQUIRED_MEMBERS, *OPTIONAL_MEMBERS)
    members = archive.unpack(read_bytes(path, WHAT), known, path, WHAT)
    if manifests.MEMBER not in members:
        raise _damaged(path, f'the member "{manifests.MEMBER}" is missing')
    manifest = manifests.parse_manifest(_text(members, manifests.MEMBER, path), str(path))
    manifests.check_hashes(manifest, members, str(path))
    for name in REQUIRED_MEMBERS:
        if name not in members:
            raise _damaged(path, f'the member "{name}" is missing')
    return _artifact(members, manifest, path), manifest


def describe_policy(policies: Mapping[str, TensorPolicy]) -> tuple[str, ...]:
    """The rules by which tensors get their exponents, each once, most common first."""
    texts = [str(policy.update) for policy in policies.values()]
    return tuple(sorted(set(texts), key=lambda text: (-texts.count(text), text)))


def _members(artifact: Artifact) -> dict[str, bytes]:
    texts = {
        PROGRAM: artifact.ir,
        TARGET: print_target(artifact.target),
        EXPONENTS: print_exponents(Exponents(artifact.exponents, artifact.channel_exponents)),
    }
    if artifact.schedule is not None:
        texts[SCHEDULE] = print_schedule(artifact.schedule, artifact.target, {})
    if artifact.detector is not None:
        texts[DETECTION] = print_detector(artifact.detector)
    members = {name: text.encode("utf-8") for name, text in texts.items()}
    members[MANTISSAS] = write_tensors(artifact.mantissas)
    members[FLOATS] = write_tensors(artifact.floats)
    manifest = Manifest(
        network=artifact.program.name,
        target=artifact.target.name,
        batch=artifact.batch,
        policy=describe_policy(artifact.program.policies),
        hashes={name: manifests.digest(data) for name, data in members.items()},
        origin=artifact.origin,
    )
    return {**members, manifests.MEMBER: manifests.print_manifest(manifest).encode("utf-8")}


def _artifact(members: Mapping[str, bytes], manifest: Manifest, path: Path) -> Artifact:
    # Writing needs no IR, so the dialects are loaded only here.
    from binpoint.backends.from_ir import program_from_module, target_name
    from binpoint.dialect.text import parse_module

    def place(member: str) -> str:
        return f"{path}/{member}"

    ir = _text(members, PROGRAM, path)
    with _placed(place(PROGRAM)):
        module = parse_module(ir, place(PROGRAM))
        program = program_from_module(module)
    target = parse_target(_text(members, TARGET, path), place(TARGET))
    named = {"network": program.name, "target": target.name}
    _check_names(place(manifests.MEMBER), {"network": manifest.network, "target": manifest.target}, named)
    _check_names(place(PROGRAM), {"target": target_name(module)}, named)
    schedule = None
    if SCHEDULE in members:
        text = _text(members, SCHEDULE, path)
        schedule = parse_schedule(text, place(SCHEDULE), program.name, layer_workloads(program), target)
    detector = None
    if DETECTION in members:
        with _placed(place(DETECTION)):
            detector = parse_detector(_text(members, DETECTION, path), place(DETECTION))
            _check_heads(detector, program)
    exponents = parse_exponents(_text(members, EXPONENTS, path), program, EXPONENTS, str(path))
    return Artifact(
        program=program,
        ir=ir,
        target=target,
        batch=manifest.batch,
        mantissas=read_mantissas(members[MANTISSAS], program, MANTISSAS, str(path)),
        exponents=exponents.tensors,
        channel_exponents=exponents.channels,
        floats=read_floats(members[FLOATS], program, FLOATS, str(path)),
        schedule=schedule,
        origin=manifest.origin,
        detector=detector,
    )


def _check_heads(detector: Detector, program: Program) -> None:
    """Refuse a detector that does not fit the program's outputs and inputs. Raises UserError."""
    shapes = {call.spec.name: call.spec.output.shape for call in program.calls}
    outputs = {name: shapes[name] for name in program.outputs}
    check_detector(detector, outputs, {declared.name: declared.tensor.shape for declared in program.inputs})


def _check_names(place: str, names: Mapping[str, str | None], expected: Mapping[str, str]) -> None:
    """Refuse a member that names another network or target than the artifact holds. Raises UserError."""
    collector = Collector()
    for what, name in names.items():
        if name not in (None, expected[what]):
            message = f"this belongs to another {what} than the artifact holds"
            collector.add(Diagnostic("mixed-artifact", message, Location(place), name, expected[what]))
    collector.raise_any()


@contextmanager
def _placed(file: str) -> Iterator[None]:
    """Give the file to diagnostics that have no place of their own."""
    try:
        yield
    except UserError as error:
        place = Location(file)
        raise UserError(*(replace(each, location=each.location or place) for each in error.diagnostics)) from None


def _text(members: Mapping[str, bytes], name: str, path: Path) -> str:
    try:
        return members[name].decode("utf-8")
    except UnicodeDecodeError:
        raise _damaged(path, f'the member "{name}" is not UTF-8 text') from None


def _damaged(path: Path, message: str) -> UserError:
    return user_error("damaged-artifact", message, location=Location(str(path)))

"""`binpoint inspect`: print what is in an artifact."""

from __future__ import annotations

import argparse
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from binpoint.backends.kernel import TensorSpec
    from binpoint.backends.program import KernelCall, ProgramInput
    from binpoint.runtime.artifact import Artifact
    from binpoint.runtime.manifest import Manifest, Origin

HASH_DIGITS = 12
"""How many digits of a hash the tables show."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("artifact", type=Path, metavar="FILE.bpz", help="what `binpoint compile` wrote")
    parser.add_argument("--ir", action="store_true", help="print the network's IR")
    parser.add_argument("--json", action="store_true", help="print one JSON document; with --ir, the IR in it")


def run(arguments: argparse.Namespace) -> int:
    """Check the artifact and print what it holds."""
    from binpoint.cli.output import print_json
    from binpoint.runtime.artifact import read_artifact_with_manifest

    artifact, manifest = read_artifact_with_manifest(arguments.artifact)
    if arguments.json:
        print_json({**_facts(artifact, manifest), **({"ir": artifact.ir} if arguments.ir else {})})
    elif arguments.ir:
        print(artifact.ir, end="")
    else:
        _print(_facts(artifact, manifest), artifact.origin)
    return 0


def _facts(artifact: Artifact, manifest: Manifest) -> dict[str, Any]:
    """Everything that is shown, as JSON values."""
    from binpoint.runtime.detection.document import detector_facts
    from binpoint.runtime.manifest import origin_facts

    program, schedule = artifact.program, artifact.schedule
    return {
        "network": program.name,
        "target": artifact.target.name,
        "pes": artifact.target.pes,
        "batch": artifact.batch,
        "policy": list(manifest.policy),
        "format_version": manifest.format_version,
        "binpoint_version": manifest.binpoint_version,
        "inputs": [_input_facts(declared, artifact) for declared in program.inputs],
        "outputs": list(program.outputs),
        "kernels": [_kernel_facts(call, artifact) for call in program.calls],
        "weights": origin_facts(artifact.origin),
        "parameters": _parameter_facts(artifact),
        "edited_schedule": None if schedule is None else [layer.layer for layer in schedule.layers],
        "detection": None if artifact.detector is None else detector_facts(artifact.detector),
        "sha256": dict(manifest.hashes),
    }


def _input_facts(declared: ProgramInput, artifact: Artifact) -> dict[str, Any]:
    return {
        "name": declared.name,
        **_tensor_facts(declared.tensor),
        "exponent": artifact.exponents.get(declared.name),
        "scale": str(declared.scale),
        "mean": [str(value) for value in declared.mean],
        "deviation": [str(value) for value in declared.deviation],
    }


def _kernel_facts(call: KernelCall, artifact: Artifact) -> dict[str, Any]:
    """One kernel; what belongs to accumulating and quantising is null for an exact one."""
    spec = call.spec
    accumulator = None if spec.exact else spec.accumulator
    return {
        "name": spec.name,
        "operation": _describe(spec.operation),
        "activation": None if spec.activation is None else _describe(spec.activation),
        "layers": list(call.fused),
        "inputs": list(call.inputs),
        "input_shapes": [list(tensor.shape) for tensor in spec.inputs],
        **_tensor_facts(spec.output),
        "exponent": artifact.exponents.get(spec.name),
        "blocks": None if spec.blocks is None else str(spec.blocks),
        "accumulator_bits": None if accumulator is None else accumulator.bits,
        "can_overflow": None if accumulator is None else accumulator.can_overflow,
        "rounding": None if spec.exact else str(spec.rounding),
        "statistics": spec.statistics,
    }


def _tensor_facts(tensor: TensorSpec) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "bits": tensor.bits, "granularity": str(tensor.granularity)}


def _parameter_facts(artifact: Artifact) -> list[dict[str, Any]]:
    from binpoint.runtime.parameters import parameter_specs

    return [
        {
            "name": name,
            "shape": list(spec.shape),
            "bits": spec.bits,
            "exponent": artifact.exponents.get(name),
            "channel_exponents": list(artifact.channel_exponents.get(name, ())) or None,
            "bytes": artifact.mantissas[name].nbytes,
        }
        for name, spec in parameter_specs(artifact.program).items()
    ]


def _describe(part: Any) -> str:
    """An operation or activation in words: its kind and what differs from the defaults."""
    facts = [
        f"{field.name.replace('_', ' ')} {_short(getattr(part, field.name))}"
        for field in fields(part)
        if field.default is MISSING or getattr(part, field.name) != field.default
    ]
    return " ".join([_kind(part), ", ".join(facts)]).strip()


def _kind(part: Any) -> str:
    """LeakyRelu as leaky relu."""
    name = type(part).__name__
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value)) if len(value) == 2 else ",".join(map(str, value))
    return str(value)


def _print(facts: dict[str, Any], origin: Origin | None) -> None:
    from binpoint.cli.output import print_table
    from binpoint.support.diagnostics import printable

    lines = [
        f"{facts['network']} for {facts['target']} ({facts['pes']} PEs), {facts['batch']} images a mini-batch; "
        f"written by binpoint {facts['binpoint_version']}, format {facts['format_version']}",
        _policy(facts),
    ]
    if facts["edited_schedule"] is not None:
        lines.append(f"edited schedule of {', '.join(facts['edited_schedule'])}")
    if origin is not None:
        lines.append(f"weights {origin}")
    if facts["detection"] is not None:
        heads = ", ".join(
            f"{head['output']} with {len(head['anchors'])} anchors" for head in facts["detection"]["heads"]
        )
        classes = len(facts["detection"]["classes"])
        lines.append(f"detects objects{f' of {classes} classes' if classes else ''}: {heads}")
    for line in lines:
        print(printable(line))
    inputs = [
        (each["name"], "input", _shape(each), f"{each['bits']}b", each["granularity"], each["exponent"], "")
        for each in facts["inputs"]
    ]
    kernels = [_kernel_row(each) for each in facts["kernels"]]
    columns = ("kernel", "operation", "output", "width", "exponents of", "exponent", "accumulator")
    print_table(None, columns, [*inputs, *kernels])
    rows = [
        (each["name"], _shape(each), f"{each['bits']}b", _exponent(each), each["bytes"]) for each in facts["parameters"]
    ]
    total = sum(each["bytes"] for each in facts["parameters"])
    print_table(f"parameters: {total} bytes", ("parameter", "shape", "width", "exponent", "bytes"), rows)
    hashes = [(name, digest[:HASH_DIGITS]) for name, digest in facts["sha256"].items()]
    print_table(None, ("member", "sha256"), hashes)


def _policy(facts: dict[str, Any]) -> str:
    """How exponents are found: each block's own way, or as statistics say."""
    blocks = list(dict.fromkeys(kernel["blocks"] for kernel in facts["kernels"] if kernel["blocks"] is not None))
    return f"exponents of blocks by {'; '.join(blocks)}" if blocks else f"exponents by {'; '.join(facts['policy'])}"


def _exponent(parameter: dict[str, Any]) -> Any:
    """The exponent of a parameter, or the range of those of its channels."""
    channels = parameter["channel_exponents"]
    if channels is None:
        return parameter["exponent"]
    return channels[0] if len(set(channels)) == 1 else f"{min(channels)} to {max(channels)}"


def _kernel_row(kernel: dict[str, Any]) -> tuple[Any, ...]:
    operation = (
        kernel["operation"] if kernel["activation"] is None else f"{kernel['operation']} + {kernel['activation']}"
    )
    accumulator = None
    if kernel["accumulator_bits"] is not None:
        accumulator = f"{kernel['accumulator_bits']}b{', can overflow' if kernel['can_overflow'] else ''}"
    shape, width = _shape(kernel), f"{kernel['bits']}b"
    return kernel["name"], operation, shape, width, kernel["granularity"], kernel["exponent"], accumulator


def _shape(facts: dict[str, Any]) -> str:
    return "x".join(map(str, facts["shape"]))

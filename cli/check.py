"""`binpoint check`: check a network, alone or against a target."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binpoint.cli.set_option import add_set_argument

if TYPE_CHECKING:
    from binpoint.compiler.network import NetworkGraph
    from binpoint.compiler.summary import NetworkSummary
    from binpoint.support.diagnostics import Diagnostic


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("network", type=Path, metavar="NET", help="a .bp network")
    parser.add_argument("-t", "--target", help="a shipped target (see `targets list`) or a .toml file")
    add_set_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print what the network is made of; 1 where it does not fit the target."""
    from binpoint.compiler.block_defaults import with_target_blocks
    from binpoint.compiler.fit import target_misfits
    from binpoint.compiler.frontends.dsl.parser import parse_network
    from binpoint.compiler.settings import apply_settings, apply_to_network, parse_settings
    from binpoint.compiler.summary import summarize

    settings = parse_settings(arguments.set)
    network, target = parse_network(arguments.network), None
    if arguments.target is None:
        network = apply_to_network(network, settings)
    else:
        from binpoint.support.target_file import load_target

        network, target = apply_settings(network, load_target(arguments.target), settings)
        network = with_target_blocks(network, target)
    summary = summarize(network)
    misfits = [] if target is None else target_misfits(network, target)
    if arguments.json:
        _print_json(network, summary, target.name if target else None, misfits)
        return 1 if misfits else 0
    _print_summary(network, summary)
    if not misfits:
        print("good: -t TARGET checks it against an array, too" if target is None else f"good: it fits {target.name}")
    sys.stdout.flush()
    for name in summary.unused:
        print(f'warning: "{name}" reaches no output', file=sys.stderr)
    if misfits:
        print("\n\n".join(map(str, misfits)), file=sys.stderr)
    return 1 if misfits else 0


def _print_summary(network: NetworkGraph, summary: NetworkSummary) -> None:
    from binpoint.cli.output import print_table
    from binpoint.compiler.layers import format_shape

    title = (
        f"{network.name}: {len(summary.layers)} layers, {summary.parameters:,} parameters, "
        f"{summary.macs:,} multiply-accumulates (MACs) an image"
    )
    rows = [
        (layer.name, layer.kind, format_shape(layer.shape), f"{layer.parameters:,}", f"{layer.macs:,}")
        for layer in summary.layers
    ]
    inputs = [(name, "input", format_shape(declared.shape), "", "") for name, declared in network.inputs.items()]
    print_table(title, ("layer", "kind", "output", "parameters", "MACs/image"), [*inputs, *rows])
    print(f"outputs: {', '.join(network.outputs)}")
    norms = [layer.parameters for layer in summary.layers if layer.kind == "batch_norm"]
    if norms:
        print(f"batch norm: {sum(norms):,} of the parameters, which `compile` folds into those of other layers")
    print(f"numeric: {_numeric(network)}")


def _numeric(network: NetworkGraph) -> str:
    """The widths and rules that hold where no layer differs."""
    from binpoint.support.numeric import TensorClass

    policy = network.numeric
    widths = []
    for tensor_class in TensorClass:
        bits = policy.width(tensor_class)
        width = f"{tensor_class} {f'{bits} bits' if bits else 'as the target'}".replace("_", " ")
        each = tensor_class is TensorClass.WEIGHTS and policy.weights_per_channel
        widths.append(f"{width} per channel" if each else width)
    facts = [*widths, f"exponent {policy.granularity or 'as the target'}", f"rounding {policy.rounding}"]
    if policy.blocks is not None:
        facts.append(f"blocks {policy.blocks}")
    facts.append(f"update {policy.update}")
    facts += [f"update of {tensor_class.replace('_', ' ')} {update}" for tensor_class, update in policy.updates.items()]
    if policy.overrides:
        facts.append(f"{len(policy.overrides)} layers differ")
    return ", ".join(facts)


def _print_json(network: NetworkGraph, summary: NetworkSummary, target: str | None, misfits: list[Diagnostic]) -> None:
    from dataclasses import asdict

    from binpoint.cli.output import print_json

    document: dict[str, Any] = {
        "network": network.name,
        "inputs": [{"name": name, "shape": list(declared.shape)} for name, declared in network.inputs.items()],
        "outputs": list(network.outputs),
        "parameters": summary.parameters,
        "macs_per_image": summary.macs,
        "layers": [asdict(layer) for layer in summary.layers],
        "unused": list(summary.unused),
        "target": target,
        "misfits": [
            {
                "code": misfit.code,
                "message": misfit.message,
                "location": str(misfit.location) if misfit.location else None,
                "found": misfit.found,
                "expected": misfit.expected,
                "hint": misfit.hint,
            }
            for misfit in misfits
        ],
    }
    print_json(document)

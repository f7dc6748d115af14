"""`binpoint import`: turn a model of another tool into a network file and its weights."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fractions import Fraction

    from binpoint.compiler.frontends.darknet.importer import DarknetOptions
    from binpoint.compiler.importing import PixelScaling
    from binpoint.compiler.network import NetworkGraph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the files to write, and what the model does not say."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX model, .onnx, or a Darknet network, .cfg")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="NET.bp", help="the network file to write")
    parser.add_argument(
        "--save-weights",
        type=Path,
        metavar="FILE",
        help="the weights file to write (default: beside the network file, .safetensors)",
    )
    parser.add_argument(
        "--fold-batch-norm", action="store_true", help="put batch norms into the convolutions before them"
    )
    darknet = parser.add_argument_group("Darknet")
    darknet.add_argument(
        "--weights", type=Path, metavar="FILE", help="the .weights file (default: none, weights are drawn)"
    )
    darknet.add_argument("--size", metavar="HxW", help="another size of the input, such as 448x448")
    darknet.add_argument("--classes", type=Path, metavar="FILE", help="the names of the classes, one on each line")
    scaling = parser.add_argument_group("pixels", "The network reads (pixel * scale - mean) / deviation.")
    scaling.add_argument("--scale", metavar="S", help="such as 1/255 (default: 1; Darknet 1/255)")
    scaling.add_argument("--mean", metavar="M[,M...]", help="one number, or one a channel (default: 0)")
    scaling.add_argument("--deviation", metavar="D[,D...]", help="one number, or one a channel (default: 1)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Import, write, say what came out."""
    from binpoint.cli.output import print_json
    from binpoint.compiler.importing import import_model

    weights = arguments.save_weights or arguments.output.with_suffix(".safetensors")
    network = import_model(
        arguments.model,
        arguments.output,
        weights,
        scaling=_scaling(arguments),
        fold_batch_norm=arguments.fold_batch_norm,
        darknet=_darknet(arguments),
    )
    if network.weights is None and arguments.save_weights is not None:
        print("warning: --save-weights writes nothing: without --weights, weights are drawn", file=sys.stderr)
    facts = _facts(network, arguments.output, None if network.weights is None else weights)
    if arguments.json:
        print_json(facts)
    else:
        _print(facts)
    return 0


def _darknet(arguments: argparse.Namespace) -> DarknetOptions | None:
    """What the options say of a Darknet network, None where they say nothing."""
    if arguments.weights is None and arguments.size is None and arguments.classes is None:
        return None
    from binpoint.compiler.frontends.darknet.importer import DarknetOptions

    return DarknetOptions(arguments.weights, _size(arguments.size), arguments.classes)


def _size(text: str | None) -> tuple[int, int] | None:
    """Height and width of 448x448, or of 448."""
    if text is None:
        return None
    from binpoint.support.diagnostics import user_error

    sides = text.split("x")
    if not 1 <= len(sides) <= 2 or not all(side.isascii() and side.isdigit() and len(side) <= 5 for side in sides):
        raise user_error(
            "wrong-size", "--size is no size", found=text, expected="a size such as 448x448, height x width"
        )
    if min(map(int, sides)) < 1:
        raise user_error("wrong-size", "--size is no size", found=text, expected="at least 1x1")
    return int(sides[0]), int(sides[-1])


def _scaling(arguments: argparse.Namespace) -> PixelScaling | None:
    """The scaling of pixels, None where no option asks for one."""
    from binpoint.compiler.importing import PixelScaling

    given = {
        name: _numbers(name, text)
        for name in ("scale", "mean", "deviation")
        if (text := getattr(arguments, name)) is not None
    }
    if not given:
        return None
    scale = given.pop("scale", (PixelScaling.scale,))
    if len(scale) != 1:
        raise _wrong_number("scale", arguments.scale)
    return PixelScaling(scale[0], **given)


def _numbers(name: str, text: str) -> tuple[Fraction, ...]:
    from binpoint.support.number_text import parse_number

    try:
        return tuple(parse_number(part) for part in text.split(","))
    except ValueError:
        raise _wrong_number(name, text) from None


def _wrong_number(name: str, text: str) -> Exception:
    from binpoint.support.diagnostics import user_error

    expected = "a number such as 0.5 or 1/255" + ("" if name == "scale" else ", or several with commas between")
    return user_error("wrong-number", f"--{name} is no number", found=text, expected=expected)


def _facts(network: NetworkGraph, output: Path, weights: Path | None) -> dict[str, Any]:
    from math import prod

    from binpoint.compiler.layers import format_shape

    def named(names: Any) -> list[dict[str, str]]:
        return [{"name": name, "shape": format_shape(network.shapes[name])} for name in names]

    return {
        "network": str(output),
        "weights": None if weights is None else str(weights),
        "inputs": named(network.inputs),
        "outputs": named(network.outputs),
        "layers": len(network.layers),
        "kinds": dict(Counter(layer.kind for layer in network.layers.values())),
        "parameters": sum(prod(shape) for shape in network.parameter_shapes().values()),
    }


def _print(facts: dict[str, Any]) -> None:
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts["kinds"].items())
    print(f"{facts['network']}: {facts['layers']} layers ({kinds})")
    print(f"{facts['weights'] or 'weights are drawn'}: {facts['parameters']:,} parameters")
    for what in ("input", "output"):
        for tensor in facts[f"{what}s"]:
            print(f"  {what} {tensor['name']}: {tensor['shape']}")

"""A model of another tool -> a network file and its weights file, both written or neither."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.frontends.dsl.printer import print_network
from binpoint.compiler.network import Input, NetworkGraph
from binpoint.compiler.parameters import save_parameters
from binpoint.support.diagnostics import Location, UserError, user_error
from binpoint.support.files import check_writable, write_atomically

if TYPE_CHECKING:
    from binpoint.compiler.frontends.darknet.importer import DarknetOptions


@dataclass(frozen=True)
class PixelScaling:
    """How the pixels of an image become the model's numbers: (p * scale - mean) / deviation.

    Models have no place for it; Darknet divides by 255. `mean` and `deviation` have one entry, or one a channel.
    """

    scale: Fraction = Fraction(1)
    mean: tuple[Fraction, ...] = (Fraction(0),)
    deviation: tuple[Fraction, ...] = (Fraction(1),)


def import_model(
    model: Path,
    output: Path,
    weights: Path,
    *,
    scaling: PixelScaling | None = None,
    fold_batch_norm: bool = False,
    darknet: DarknetOptions | None = None,
) -> NetworkGraph:
    """Import a model and write it as a network file and a safetensors file.

    A Darknet network without its .weights file becomes a network file alone, whose weights are drawn.

    Args:
        model: an .onnx or a .cfg file.
        output: the .bp file to write.
        weights: the safetensors file to write; the network names it relative to itself.
        scaling: of the network's input; None leaves it as it is: pixels, for Darknet pixels / 255.
        fold_batch_norm: whether batch norms go into the convolutions before them.
        darknet: what a .cfg file does not say; None for other models.

    Raises:
        UserError: for anything that cannot be read, expressed or written. Nothing is left behind then.
    """
    read = {"the model": model}
    others = {} if darknet is None else {"the model's weights": darknet.weights, "the class names": darknet.classes}
    read |= {what: path for what, path in others.items() if path is not None}
    _check_paths(read, output, weights)
    network, parameters = _read(model, darknet, fold_batch_norm=fold_batch_norm)
    inputs = list(network.inputs.values())
    if scaling is not None:
        inputs = [_scaled(inputs, scaling, model)]
    named = Path(os.path.relpath(weights.absolute(), output.absolute().parent)) if parameters is not None else None
    finished = NetworkGraph(
        network.name,
        inputs,
        list(network.layers.values()),
        network.outputs,
        network.numeric,
        named,
        network.location,
        network.detector,
    )
    _write(finished, parameters, output, weights)
    return finished


def _read(
    model: Path, darknet: DarknetOptions | None, *, fold_batch_norm: bool
) -> tuple[NetworkGraph, Mapping[str, NDArray[np.float32]] | None]:
    if model.suffix.lower() == ".cfg":
        from binpoint.compiler.frontends.darknet.importer import DarknetOptions, import_darknet

        return import_darknet(model, replace(darknet or DarknetOptions(), fold_batch_norm=fold_batch_norm))
    if darknet is not None:
        raise user_error(
            "useless-option",
            "only a Darknet network takes weights, a size and classes",
            location=Location(str(model)),
            hint="an ONNX model holds its weights; --save-weights names the file to write",
        )
    if model.suffix.lower() != ".onnx":
        raise user_error(
            "unknown-format",
            "the kind of model is not known",
            location=Location(str(model)),
            found=f'a name that ends in "{model.suffix}"',
            expected="an ONNX model, .onnx, or a Darknet network, .cfg",
        )
    from binpoint.compiler.frontends.onnx.importer import import_onnx

    return import_onnx(model, fold_batch_norm=fold_batch_norm)


def _scaled(inputs: list[Input], scaling: PixelScaling, model: Path) -> Input:
    """The only input with its scaling."""
    if len(inputs) > 1:
        raise user_error(
            "several-inputs",
            "the scaling of pixels can be given for a model with one input only",
            location=Location(str(model)),
            found=", ".join(declared.name for declared in inputs),
            hint="import without it and write it into the network file, beside each input",
        )
    declared = inputs[0]
    for name, numbers in (("mean", scaling.mean), ("deviation", scaling.deviation)):
        if len(numbers) not in (1, declared.shape[0]):
            raise user_error(
                "wrong-count",
                f"the {name} does not fit the channels of the input",
                found=f"{len(numbers)} numbers",
                expected=f"1 number, or {declared.shape[0]}, one a channel",
            )
    if min(scaling.scale, *scaling.deviation) <= 0:
        raise user_error("out-of-range", "scale and deviation must be more than 0")
    return replace(declared, scale=scaling.scale, mean=scaling.mean, deviation=scaling.deviation)


def _check_paths(read: Mapping[str, Path], output: Path, weights: Path) -> None:
    """Refuse what would overwrite a file that is read, and what cannot be written, before any work is done."""
    if output.suffix.lower() != ".bp":
        raise user_error(
            "wrong-suffix", "a network file is called .bp", location=Location(str(output)), expected="a name in .bp"
        )
    places = [*read.items(), ("the network file", output), ("the weights file", weights)]
    for position, (what, path) in enumerate(places[len(read) :], start=len(read)):
        for other, taken in places[:position]:
            if path.resolve() == taken.resolve():
                raise user_error("same-file", f"{what} would overwrite {other}", location=Location(str(path)))
        check_writable(path)


def _write(
    network: NetworkGraph, parameters: Mapping[str, NDArray[np.float32]] | None, output: Path, weights: Path
) -> None:
    """The weights first, where there are any: a network file that exists has its weights."""
    text = print_network(network)
    if parameters is None:
        write_atomically(output, text)
        return
    replaced = weights.exists()
    save_parameters(weights, parameters)
    try:
        write_atomically(output, text)
    except UserError:
        if not replaced:
            weights.unlink(missing_ok=True)
        raise

"""Import of Darknet networks: a .cfg file, and the .weights file that belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.frontends.darknet import heads, layers
from binpoint.compiler.frontends.darknet.builder import Builder, UnknownMapError
from binpoint.compiler.frontends.darknet.cfg import Section, read_cfg
from binpoint.compiler.frontends.darknet.options import Options
from binpoint.compiler.frontends.darknet.weights import read_weights
from binpoint.compiler.frontends.dsl.detection_section import read_class_names
from binpoint.compiler.network import Input, NetworkGraph
from binpoint.compiler.parameters import draw_parameters
from binpoint.support.detector import Detector
from binpoint.support.diagnostics import Collector, Location, did_you_mean, user_error

Parameters = dict[str, NDArray[np.float32]]

SIZED = frozenset(("connected", "crop"))
"""Layers that fix the size of the input."""

STAND_IN = Input("image", (1, 1, 1))
"""The input until it is read."""


@dataclass(frozen=True)
class DarknetOptions:
    """What a .cfg file does not say.

    Attributes:
        weights: the .weights file; None leaves the parameters to be drawn.
        size: (height, width) of the input in place of the file's.
        classes: a file with the name of a class on each line, for networks that detect.
        fold_batch_norm: whether batch norms go into the convolutions before them.
    """

    weights: Path | None = None
    size: tuple[int, int] | None = None
    classes: Path | None = None
    fold_batch_norm: bool = False


def import_darknet(path: Path, options: DarknetOptions | None = None) -> tuple[NetworkGraph, Parameters | None]:
    """The network of a .cfg file, and its parameters; None where there is no weights file and none is fixed.

    Heads become outputs with a detector; a network without heads has the result of its last layer as output.

    Raises:
        UserError: with every fault of the .cfg file, located; else with the first one of the weights file.
    """
    options = options or DarknetOptions()
    builder = _build(path, read_cfg(path), options)
    outputs = tuple(builder.heads) or (builder.source(),)
    detector = _detector(path, builder, options.classes)
    network = NetworkGraph(path.stem, [builder.input], builder.layers, outputs, detector=detector)
    if options.weights is not None:
        return network, read_weights(options.weights, builder.stored) | builder.fixed
    return network, {**draw_parameters(network, seed=0), **builder.fixed} if builder.fixed else None


def _build(path: Path, sections: Sequence[Section], options: DarknetOptions) -> Builder:
    """All layers and heads. Raises UserError."""
    first, *rest = sections
    if _kind(first) != "net":
        message, expected = "a Darknet network begins with its input", "[net]"
        raise user_error("not-a-cfg", message, location=first.location, found=f"[{first.name}]", expected=expected)
    collector = Collector()
    builder = Builder(STAND_IN, fold_batch_norm=options.fold_batch_norm)
    builder.current = None
    with collector.catch():
        builder.declare(layers.net(Options(first, "net"), options.size))
    for section in rest:
        builder.location = section.location
        result = None
        with collector.catch(), suppress(UnknownMapError):
            result = _read_section(section, builder, options)
        builder.maps.append(None if _kind(section) in heads.HANDLERS else result)
        builder.current = result
    collector.raise_any()
    return builder


def _read_section(section: Section, builder: Builder, given: DarknetOptions) -> str | None:
    """Add the layers of a section; the result is the map that the next one reads."""
    kind = _kind(section)
    options = Options(section, kind)
    if kind in heads.HANDLERS:
        heads.HANDLERS[kind](options, builder)
        return builder.current
    if kind not in layers.HANDLERS:
        known = [*layers.HANDLERS, *heads.HANDLERS]
        raise user_error(
            "unknown-section",
            f"[{section.name}] cannot be expressed in the network language",
            location=section.location,
            expected=f"one of {', '.join(sorted(known))}",
            hint=did_you_mean(section.name, known),
        )
    if kind in SIZED and given.size is not None:
        raise user_error(
            "wrong-size",
            f"a network with [{section.name}] has the input size of its .cfg file only",
            location=section.location,
            found="x".join(map(str, given.size)),
            hint="import it without --size",
        )
    return layers.HANDLERS[kind](options, builder)


def _kind(section: Section) -> str:
    return layers.ALIASES.get(section.name, section.name)


def _detector(path: Path, builder: Builder, classes: Path | None) -> Detector | None:
    """The detector of the heads, with the names of the classes if there are any."""
    if not builder.heads:
        if classes is not None:
            message = "there are no heads whose classes could be named"
            raise user_error("useless-option", message, location=Location(str(path)), found="--classes")
        return None
    names = () if classes is None else read_class_names(classes)
    if classes is not None and len(names) != builder.classes:
        raise user_error(
            "wrong-count",
            "the file does not name the classes of this network",
            location=Location(str(classes)),
            found=f"{len(names)} names",
            expected=f"{builder.classes} names",
        )
    return Detector(tuple(builder.heads.values()), names)

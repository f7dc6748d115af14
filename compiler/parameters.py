"""The float parameters of a network: read from safetensors, written, or drawn."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.network import NetworkGraph
from binpoint.support.diagnostics import Collector, Diagnostic, Location, did_you_mean, user_error
from binpoint.support.files import check_readable, write_atomically

Parameters = Mapping[str, NDArray[np.float32]]
"""Parameters by full name (`conv1.weight`)."""

CONSTANT_START = {"bias": 0.0, "gamma": 1.0, "beta": 0.0, "mean": 0.0, "variance": 1.0}
"""First values of the parameters that are not drawn, by their short name."""


def load_parameters(network: NetworkGraph, path: Path | None, seed: int) -> Parameters:
    """All parameters of a network, in layer order.

    Args:
        network: the network.
        path: a safetensors file; None takes the one that the network names. Where there is none either,
            weights are drawn (see `draw_parameters`).
        seed: of the draw.

    Raises:
        UserError: with every parameter that is missing, unknown, of another shape or type, or not finite.
    """
    file = network.weights if path is None else path
    return draw_parameters(network, seed) if file is None else read_parameters(network, file)


def draw_parameters(network: NetworkGraph, seed: int) -> Parameters:
    """First values: He's uniform distribution for weights, batch norm as identity, biases 0.

    The bound is sqrt(6 / fan-in) (He et al. 2015, eq. 10 as a uniform distribution of that variance). Each
    tensor has a generator of its own, keyed by seed and name, so that adding a layer leaves the others alone.
    """
    parameters = {}
    for name, shape in network.parameter_shapes().items():
        short = name.rpartition(".")[2]
        if short in CONSTANT_START:
            parameters[name] = np.full(shape, CONSTANT_START[short], np.float32)
        else:
            generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
            bound = math.sqrt(6 / math.prod(shape[1:]))
            parameters[name] = (generator.random(shape, np.float32) * 2 - 1) * np.float32(bound)
    return parameters


def read_parameters(network: NetworkGraph, path: Path) -> Parameters:
    """The parameters of a network from a safetensors file. Raises UserError as `load_parameters`."""
    import safetensors

    check_readable(path, "weights file")
    collector = Collector()
    shapes = network.parameter_shapes()
    parameters = {}
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            stored = set(file.keys())
            _check_names(path, shapes, stored, collector)
            for name, shape in shapes.items():
                if name in stored and _check_header(path, name, shape, file.get_slice(name), collector):
                    parameters[name] = file.get_tensor(name)
    except OSError as error:
        reason = error.strerror or str(error)
        place = Location(str(path))
        raise user_error("unreadable-file", "cannot read the weights file", location=place, found=reason) from None
    except safetensors.SafetensorError as error:
        message, expected = "this is not a whole safetensors file", "a file written as safetensors"
        place = Location(str(path))
        raise user_error("wrong-file", message, location=place, found=str(error), expected=expected) from None
    for name, values in parameters.items():
        _check_values(path, name, values, collector)
    collector.raise_any()
    return parameters


def save_parameters(path: Path, arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """Write a safetensors file, whole or not at all. The same arrays give the same bytes. Raises UserError."""
    from safetensors.numpy import save

    write_atomically(path, save({name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}))


def _check_names(path: Path, shapes: Mapping[str, tuple[int, ...]], stored: set[str], collector: Collector) -> None:
    """Report the parameters that only the network or only the file has, each kind in one table."""
    place = Location(str(path))
    missing = [name for name in shapes if name not in stored]
    extra = sorted(stored - shapes.keys())
    if missing:
        message = f"the weights file lacks {len(missing)} of {len(shapes)} parameters"
        lacking = [(name, _text(shapes[name]), did_you_mean(name, extra) or "") for name in missing]
        rows = (("parameter", "shape", ""), *lacking)
        collector.add(Diagnostic("missing-parameter", message, place, rows=rows))
    if extra:
        message = "the weights file has parameters that the network does not have"
        unknown = [(name, did_you_mean(name, missing) or "") for name in extra]
        collector.add(Diagnostic("unknown-parameter", message, place, rows=(("parameter", ""), *unknown)))


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "one number"


def _check_header(path: Path, name: str, shape: tuple[int, ...], header: Any, collector: Collector) -> bool:
    """Compare the stored shape and type with the network's, before anything is read."""
    place = Location(str(path))
    before = len(collector.diagnostics)
    stored = tuple(header.get_shape())
    if stored != shape:
        message = f'"{name}" has another shape than in the network'
        collector.add(Diagnostic("wrong-shape", message, place, _text(stored), _text(shape)))
    if header.get_dtype() != "F32":
        message = f'"{name}" has another type than 32-bit floating point'
        collector.add(Diagnostic("wrong-type", message, place, header.get_dtype(), "F32"))
    return len(collector.diagnostics) == before


def _check_values(path: Path, name: str, values: NDArray[np.float32], collector: Collector) -> None:
    place = Location(str(path))
    finite = np.isfinite(values)
    if not finite.all():
        message = f'"{name}" has values that are not finite'
        found = f"{values[~finite][0]}, {values.size - int(finite.sum())} of {values.size} values"
        collector.add(Diagnostic("not-finite", message, place, found, "finite numbers"))
    elif name.endswith(".variance") and (values < 0).any():
        found = str(values.min())
        collector.add(Diagnostic("out-of-range", f'"{name}" has negative values', place, found, "at least 0"))

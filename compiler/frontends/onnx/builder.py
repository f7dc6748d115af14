"""The network under construction: layers with names, shapes and parameters, and the views that need layers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.frontends.dsl.values import LARGEST_SIZE
from binpoint.compiler.frontends.onnx.values import (
    NO_PADDING,
    FeatureMap,
    PaddedMap,
    Padding,
    UnsupportedError,
    map_shape,
)
from binpoint.compiler.layers import LAYER_KINDS, Attributes, LayerKind, Shape, ShapeError, format_shape
from binpoint.compiler.network import Input, Layer, NetworkGraph, normalize_attributes
from binpoint.support.diagnostics import Location

FloatArray = NDArray[np.floating[Any]]

ROLES: Mapping[str, str] = {
    "conv2d": "conv",
    "linear": "fc",
    "leaky_relu": "relu",
    "max_pool": "pool",
    "avg_pool": "pool",
    "global_max_pool": "pool",
    "global_avg_pool": "pool",
    "batch_norm": "bn",
}
"""What layers of a kind are called, where that is not the kind's own name; a number follows."""

MISLEADING = frozenset((*LAYER_KINDS, "network", "input", "weights", "output", "block", "return", "numeric", "layer"))
"""Words of the language: a feature map of such a name would be hard to read."""


MOST_ELEMENTS = 2**28
"""Elements of the largest feature map and of the largest matrix that the importer makes up."""


@dataclass
class Draft:
    """A layer that may still take constants of later nodes into its parameters."""

    layer: Layer
    parameters: dict[str, NDArray[np.float32]]


def identifier(text: str, otherwise: str) -> str:
    """The text as a name of the language; `otherwise` stands in for, or before, what cannot be one."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    if not name or name in MISLEADING:
        return otherwise
    return f"{otherwise}_{name}" if name[0].isdigit() else name


def as_float32(values: FloatArray) -> NDArray[np.float32]:
    """Rounded to float32. Refuses results of folding that leave its range."""
    if values.dtype == np.float32:
        return values.astype(np.float32, copy=False)
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    if not np.isfinite(rounded).all():
        raise UnsupportedError("its parameters leave the range of float32")
    return rounded


class NetworkBuilder:
    """Collects inputs and layers, and gives them names and shapes.

    `location` is the place that new layers get; whoever walks the model sets it. `fold_batch_norm` asks for
    batch norms inside the layers before them where possible.
    """

    def __init__(self, location: Location, *, fold_batch_norm: bool = False) -> None:
        self.location = location
        self.fold_batch_norm = fold_batch_norm
        self.drafts: dict[str, Draft] = {}
        self.shapes: dict[str, Shape] = {}
        self.inputs: dict[str, Input] = {}
        self._counts: Counter[str] = Counter()
        self._derived: dict[tuple[Any, ...], FeatureMap] = {}

    def add_input(self, name: str, shape: Shape) -> str:
        """Declare an input under a name made fit for the language; returns that name."""
        _check_size(shape)
        unique = identifier(name, "x")
        while unique in self.shapes:
            unique += "_"
        self.inputs[unique] = Input(unique, shape, location=self.location)
        self.shapes[unique] = shape
        return unique

    def add_stand_in(self, shape: tuple[int, ...]) -> FeatureMap:
        """A map in place of a refused node's result, so that the nodes after it are still looked at."""
        name = f"stand-in {len(self.shapes)}"
        self.shapes[name] = map_shape(shape) if len(shape) <= 4 else (math.prod(shape), 1, 1)
        return FeatureMap(name, shape, exclusive=False)

    def add_layer(
        self,
        kind: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        parameters: Mapping[str, FloatArray] | None = None,
        role: str | None = None,
    ) -> FeatureMap:
        """Append a layer; the result is its map as a (1, C, H, W) tensor. Refuses attributes that fit no shape.

        `role` is what the layer is called where the kind's usual name would mislead.
        """
        full = normalize_attributes(kind, attributes or {})
        rounded = {short: as_float32(array) for short, array in (parameters or {}).items()}
        shape = _checked_shape(LAYER_KINDS[kind], tuple(self.shapes[name] for name in inputs), full, rounded)
        name = self._unique(role or ROLES.get(kind, kind))
        self.drafts[name] = Draft(Layer(name, kind, tuple(inputs), full, self.location), rounded)
        self.shapes[name] = shape
        return FeatureMap(name, (1, *shape))

    def materialize(self, value: FeatureMap | PaddedMap) -> str:
        """The layer whose result is this tensor as a feature map, added where there is none yet."""
        if isinstance(value, PaddedMap):
            return self._zeros_around(value).layer
        shape = map_shape(value.shape)
        if value.index is None:
            return value.layer if shape == self.shapes[value.layer] else self._reshaped(value.layer, shape)
        return self._shuffled(value, shape)

    def vector(self, layer: str) -> str:
        """The layer's result as a vector, channels outermost."""
        channels, height, width = self.shapes[layer]
        return layer if (height, width) == (1, 1) else self._reshaped(layer, (channels * height * width, 1, 1))

    def plain(self, value: FeatureMap | PaddedMap) -> FeatureMap:
        """The value without pending padding."""
        return value if isinstance(value, FeatureMap) else self._zeros_around(value)

    def separate_padding(self, value: FeatureMap | PaddedMap) -> tuple[str, Padding]:
        """The layer to read, and the zeros that the reader has to put around its result."""
        if isinstance(value, PaddedMap):
            return self.materialize(value.map), value.padding
        return self.materialize(value), NO_PADDING

    def network(self, name: str, outputs: Sequence[str]) -> tuple[NetworkGraph, dict[str, NDArray[np.float32]]]:
        """The finished network and its parameters by full name (`conv1.weight`)."""
        layers = [draft.layer for draft in self.drafts.values()]
        parameters = {
            f"{layer}.{short}": array
            for layer, draft in self.drafts.items()
            for short, array in draft.parameters.items()
        }
        return NetworkGraph(name, list(self.inputs.values()), layers, tuple(dict.fromkeys(outputs))), parameters

    def _unique(self, role: str) -> str:
        while True:
            self._counts[role] += 1
            name = f"{role}{self._counts[role]}"
            if name not in self.shapes:
                return name

    def _derive(
        self,
        kind: str,
        layer: str,
        attributes: Mapping[str, Any],
        parameters: Mapping[str, FloatArray] | None = None,
        role: str | None = None,
        variant: tuple[int, ...] = (),
    ) -> FeatureMap:
        """A layer that all readers of one value share; `variant` tells layers of equal attributes apart."""
        key = (kind, layer, tuple(attributes.items()), variant)
        if key not in self._derived:
            self._derived[key] = replace(self.add_layer(kind, [layer], attributes, parameters, role), exclusive=False)
        return self._derived[key]

    def _reshaped(self, layer: str, shape: Shape) -> str:
        if shape[1:] == (1, 1):
            return self._derive("flatten", layer, {}).layer
        return self._derive("reshape", layer, {"shape": shape}).layer

    def _shuffled(self, value: FeatureMap, shape: Shape) -> str:
        """A 1x1 convolution that puts channels into another order: each of its weights is 0 or 1."""
        order = _channel_order(value, shape, self.shapes[value.layer])
        if shape[0] ** 2 > MOST_ELEMENTS:
            raise UnsupportedError(f"it shuffles {shape[0]} channels, too many for a convolution to do")
        weight = np.eye(shape[0], dtype=np.float32)[order][:, :, None, None]
        attributes = {"channels": shape[0], "kernel": (1, 1), "bias": False}
        return self._derive("conv2d", value.layer, attributes, {"weight": weight}, "shuffle", tuple(order)).layer

    def _zeros_around(self, value: PaddedMap) -> FeatureMap:
        """A 1x1 depthwise convolution with weight 1, for its padding."""
        layer = self.materialize(value.map)
        weight = np.ones((self.shapes[layer][0], 1, 1, 1), dtype=np.float32)
        attributes = {"kernel": (1, 1), "padding": value.padding, "bias": False}
        return self._derive("depthwise", layer, attributes, {"weight": weight}, "pad")


def _checked_shape(
    kind: LayerKind, inputs: tuple[Shape, ...], attributes: Attributes, parameters: Mapping[str, FloatArray]
) -> Shape:
    """The output shape of a layer. Refuses values out of bounds and whatever fits no shape."""
    for attribute in kind.attributes:
        value, bounds = attributes[attribute.name], attribute.bounds
        if bounds is not None and not bounds[0] <= value <= bounds[1]:
            raise UnsupportedError(f"its {attribute.name} is {float(value):g}, outside {bounds[0]}..{bounds[1]}")
    try:
        shape = kind.output_shape(inputs, attributes)
    except ShapeError as error:
        raise UnsupportedError(f"{error}" + (f" ({error.found})" if error.found else "")) from None
    _check_size(shape)
    for name, expected in kind.parameters(inputs, attributes).items():
        if parameters[name].shape != expected:
            raise UnsupportedError(f"its {name} has shape {parameters[name].shape}, not {expected}")
    return shape


def _check_size(shape: Shape) -> None:
    if max(shape) > LARGEST_SIZE or math.prod(shape) > MOST_ELEMENTS:
        raise UnsupportedError(f"a feature map of {format_shape(shape)} is too large")


def _channel_order(value: FeatureMap, shape: Shape, source: Shape) -> NDArray[np.intp]:
    """Which channel of the layer each channel of a permuted view is."""
    if shape == source and value.index is not None:
        pixels = shape[1] * shape[2]
        rows = value.index.reshape(shape[0], pixels)
        order = rows[:, 0] // pixels
        if np.array_equal(rows, order[:, None] * pixels + np.arange(pixels)):
            return order
    raise UnsupportedError(
        "its input has been transposed; only the order of channels, or of a linear layer's inputs, can change"
    )

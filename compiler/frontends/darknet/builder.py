"""The network under construction: layers by Darknet's index, and the parameters in the order of .weights files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.layers import LAYER_KINDS, Shape, ShapeError, format_shape
from binpoint.compiler.network import Input, Layer, normalize_attributes
from binpoint.support.detector import Head
from binpoint.support.diagnostics import Location, UserError, user_error
from binpoint.support.shapes import MAXIMUM_ELEMENTS

ROLES: Mapping[str, str] = {
    "conv2d": "conv",
    "depthwise": "conv",
    "linear": "fc",
    "relu": "act",
    "leaky_relu": "act",
    "relu6": "act",
    "sigmoid": "act",
    "max_pool": "pool",
    "global_avg_pool": "pool",
    "batch_norm": "bn",
}
"""What layers of a kind are called, where that is not the kind's own name."""


DARKNET_EPSILON = 1e-6
"""Darknet divides by sqrt(variance) + 1e-6."""

EPSILON = Fraction(1, 10**12)
"""The epsilon of batch norms in the language, which divide by sqrt(variance + epsilon). With variances changed from v
to v + 2e-6 sqrt(v) that is the same, since (sqrt(v) + 1e-6)^2 = v + 2e-6 sqrt(v) + 1e-12."""


class UnknownMapError(Exception):
    """A layer reads a map that is unknown because its own section has a fault: that one is reported, this one not."""


@dataclass(frozen=True)
class Stored:
    """The parameters of one section as a .weights file holds them, in its order.

    Attributes:
        layer: the convolution or linear layer.
        shape: of its weights, (K, C / groups, R, S) or (features, inputs).
        norm: the batch norm behind it, None where it has a bias.
        folded: whether the batch norm goes into the weights and the bias.
        section: how errors call it.
        location: of the section.
    """

    layer: str
    shape: tuple[int, ...]
    norm: str | None
    folded: bool
    section: str
    location: Location


@dataclass
class Builder:
    """Collects layers. The number in a layer's name is the index by which Darknet and [route] count.

    Attributes:
        fold_batch_norm: whether batch norms go into the convolutions before them.
        stored: the sections that a .weights file has parameters of, in its order.
        maps: the layer or input behind each of Darknet's layers; None where it is unknown.
        fixed: parameters that do not come from a file: the zeros and ones of layers that move channels.
        heads: how boxes are read from an output, by its name.
        classes: that each of them tells apart, once there is a head.
        current: the map that the next layer reads, None where it is unknown.
        location: of the section that is being read.
    """

    input: Input

    fold_batch_norm: bool = False
    layers: list[Layer] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    maps: list[str | None] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    fixed: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    heads: dict[str, Head] = field(default_factory=dict)
    classes: int | None = None
    current: str | None = None
    location: Location = field(default_factory=lambda: Location(""))

    def __post_init__(self) -> None:
        self.declare(self.input)

    def declare(self, declared: Input) -> None:
        """Make this the input of the network, and the map that the next layer reads."""
        self.input = declared
        self.shapes[declared.name] = declared.shape
        self.current = declared.name

    @property
    def index(self) -> int:
        """Darknet's index of the layer that is being read."""
        return len(self.maps)

    def source(self) -> str:
        """The map before this layer. Raises UnknownMapError."""
        if self.current is None:
            raise UnknownMapError
        return self.current

    def earlier(self, number: int) -> str:
        """The map of a layer by its index, or by how far it lies back where the number is negative.

        Raises:
            UserError: where there is no such layer before this one.
            UnknownMapError: where it has a fault.
        """
        index = self.index + number if number < 0 else number
        if not 0 <= index < self.index:
            raise user_error(
                "unknown-layer",
                f"there is no layer {index} before this one",
                location=self.location,
                found=str(number),
                expected=f"0 to {self.index - 1}, or -1 to {-self.index}" if self.index else "a layer before this one",
            )
        found = self.maps[index]
        if found is None:
            raise UnknownMapError
        return found

    def add(self, kind: str, inputs: Sequence[str], role: str | None = None, /, **attributes: Any) -> str:
        """Append a layer; the result is its name.

        Raises:
            UserError: where its attributes and inputs fit no shape.
        """
        full = normalize_attributes(kind, attributes)
        try:
            shape = LAYER_KINDS[kind].output_shape(tuple(self.shapes[name] for name in inputs), full)
            if shape[0] * shape[1] * shape[2] > MAXIMUM_ELEMENTS:
                raise ShapeError("its output is too large", found=format_shape(shape))
        except ShapeError as error:
            raise user_error(
                "shape-mismatch",
                f"layer {self.index}: {error}",
                location=self.location,
                found=error.found,
                expected=error.expected,
            ) from None
        name = f"{role or ROLES.get(kind, kind)}{self.index}"
        self.layers.append(Layer(name, kind, tuple(inputs), full, self.location))
        self.shapes[name] = shape
        return name

    def select(self, source: str, channels: range, count: int, stride: int, role: str) -> str:
        """Some channels of every `stride`-th cell, then zeros up to `count` channels: a 1x1 convolution of 0 and 1."""
        window = {"kernel": (1, 1), "stride": (stride, stride)}
        name = self.add("conv2d", [source], role, channels=count, bias=False, **window)
        weight = np.zeros((count, self.shapes[source][0], 1, 1), np.float32)
        weight[np.arange(len(channels)), list(channels)] = 1
        self.fixed[f"{name}.weight"] = weight
        return name

    def gather_squares(self, source: str, stride: int) -> str:
        """The cell (i, j) of each stride x stride square of channel c as channel (i * stride + j) * C + c."""
        inputs, kernel = self.shapes[source][0], (stride, stride)
        channels = inputs * stride * stride
        name = self.add("conv2d", [source], "reorg", channels=channels, kernel=kernel, stride=kernel, bias=False)
        weight = np.zeros((channels, inputs, stride, stride), np.float32)
        cell, channel = np.divmod(np.arange(channels), inputs)
        weight[np.arange(channels), channel, cell // stride, cell % stride] = 1
        self.fixed[f"{name}.weight"] = weight
        return name

    def weighted(self, section: str, kind: str, source: str, norm: bool, **attributes: Any) -> str:
        """A layer with weights, and its batch norm or bias."""
        separate = norm and not self.fold_batch_norm
        name = self.add(kind, [source], None, bias=not separate, **attributes)
        layer = self.layers[-1]
        shape = LAYER_KINDS[kind].parameters((self.shapes[source],), layer.attributes)["weight"]
        behind = self.add("batch_norm", [name], None, epsilon=EPSILON) if separate else None
        self.stored.append(
            Stored(name, shape, behind, norm and not separate, f"[{section}], layer {self.index}", self.location)
        )
        return behind or name

    def mismatch(self, message: str, found: str, expected: str | None = None) -> UserError:
        """Sizes that contradict each other, at the section."""
        return user_error(
            "shape-mismatch", f"layer {self.index}: {message}", location=self.location, found=found, expected=expected
        )

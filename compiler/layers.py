"""The layer kinds of the language: attributes, parameters and shapes, in one table.

The table drives the parser's checks, the importers, the printer of `.bp` files and the `nn` dialect. A feature
map is (C, H, W) without the batch; a vector of F features is (F, 1, 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from typing import Any

from binpoint.support.shapes import window_output as window_output

Shape = tuple[int, int, int]
Attributes = Mapping[str, Any]


class ShapeError(Exception):
    """A layer whose attributes or inputs fit no shape: message and, where it helps, expected and hint."""

    def __init__(self, message: str, *, found: str | None = None, expected: str | None = None, hint: str | None = None):
        super().__init__(message)
        self.found, self.expected, self.hint = found, expected, hint


class AttributeType(Enum):
    """The types of layer attributes and their normal form in `Layer.attributes`."""

    INTEGER = auto()
    """int, at least 1."""
    REAL = auto()
    """Fraction, exact."""
    FLAG = auto()
    """bool."""
    PAIR = auto()
    """(vertical, horizontal) of ints, at least 1. Written 3 or 3x5."""
    PADDING = auto()
    """(top, left, bottom, right) of ints, at least 0. Written 1, 1x2 (vertical x horizontal) or [1, 0, 1, 2]."""
    SHAPE = auto()
    """(C, H, W). Written 10 or 3x224x224."""


@dataclass(frozen=True)
class Attribute:
    """One attribute of a layer kind; a required one must be written. `bounds` limit a REAL, both ends included."""

    name: str
    type: AttributeType
    default: Any = None
    required: bool = False
    bounds: tuple[Fraction, Fraction] | None = None


ShapeFunction = Callable[[tuple[Shape, ...], Attributes], Shape]
ParameterFunction = Callable[[tuple[Shape, ...], Attributes], dict[str, tuple[int, ...]]]


@dataclass(frozen=True)
class LayerKind:
    """A kind of layer.

    `arity` is (least, most) inputs, most None for any number. `output_shape` raises ShapeError.
    `parameters` gives the shapes of the float parameters by their short name (`weight`, `bias`, ...).
    """

    name: str
    summary: str
    attributes: tuple[Attribute, ...]
    arity: tuple[int, int | None]
    output_shape: ShapeFunction
    parameters: ParameterFunction

    def attribute(self, name: str) -> Attribute | None:
        """The attribute of that name, None if the kind has none."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)


def _windows(shape: Shape, attributes: Attributes) -> tuple[int, int]:
    top, left, bottom, right = attributes["padding"]
    vertical, horizontal = attributes.get("dilation", (1, 1))
    (kernel_h, kernel_w), (stride_h, stride_w) = attributes["kernel"], attributes["stride"]
    height = window_output(shape[1], kernel_h, stride_h, top, bottom, vertical)
    width = window_output(shape[2], kernel_w, stride_w, left, right, horizontal)
    if height < 1 or width < 1:
        raise ShapeError(
            f"a {kernel_h}x{kernel_w} window does not fit into a {shape[1]}x{shape[2]} feature map",
            found=f"padding {top}, {left}, {bottom}, {right}; dilation {vertical}x{horizontal}",
            expected="at least one window",
        )
    return height, width


def _conv2d_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    channels, groups = attributes["channels"], attributes["groups"]
    for count, whose in ((inputs[0][0], "input"), (channels, "output")):
        if count % groups:
            raise ShapeError(f"{groups} groups do not divide {count} {whose} channels", found=f"groups = {groups}")
    return (channels, *_windows(inputs[0], attributes))


def _conv2d_parameters(inputs: tuple[Shape, ...], attributes: Attributes) -> dict[str, tuple[int, ...]]:
    weight = (attributes["channels"], inputs[0][0] // attributes["groups"], *attributes["kernel"])
    return {"weight": weight, **({"bias": (attributes["channels"],)} if attributes["bias"] else {})}


def _depthwise_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    return (inputs[0][0] * attributes["multiplier"], *_windows(inputs[0], attributes))


def _depthwise_parameters(inputs: tuple[Shape, ...], attributes: Attributes) -> dict[str, tuple[int, ...]]:
    channels = inputs[0][0] * attributes["multiplier"]
    weight = (channels, 1, *attributes["kernel"])
    return {"weight": weight, **({"bias": (channels,)} if attributes["bias"] else {})}


def _linear_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    channels, height, width = inputs[0]
    if (height, width) != (1, 1):
        raise ShapeError(
            "linear reads a vector",
            found=f"a {channels}x{height}x{width} feature map",
            expected="H = W = 1",
            hint="put flatten(...) around the input",
        )
    return attributes["features"], 1, 1


def _linear_parameters(inputs: tuple[Shape, ...], attributes: Attributes) -> dict[str, tuple[int, ...]]:
    weight = (attributes["features"], inputs[0][0])
    return {"weight": weight, **({"bias": (attributes["features"],)} if attributes["bias"] else {})}


def _same_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    return inputs[0]


def _pool_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    top, left, bottom, right = attributes["padding"]
    kernel_h, kernel_w = attributes["kernel"]
    if max(top, bottom) >= kernel_h or max(left, right) >= kernel_w:
        raise ShapeError(
            "the padding of a pool must be smaller than its kernel",
            found=f"padding {top}, {left}, {bottom}, {right}",
            expected=f"less than {kernel_h}x{kernel_w}",
        )
    return (inputs[0][0], *_windows(inputs[0], attributes))


def _global_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    return inputs[0][0], 1, 1


def _add_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    if len(set(inputs)) > 1:
        raise ShapeError(
            "add needs feature maps of one shape",
            found=" + ".join(format_shape(shape) for shape in inputs),
        )
    return inputs[0]


def _concat_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    if len({shape[1:] for shape in inputs}) > 1:
        raise ShapeError(
            "concat needs feature maps of one height and width",
            found=", ".join(format_shape(shape) for shape in inputs),
        )
    return (sum(shape[0] for shape in inputs), *inputs[0][1:])


def _upsample_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    channels, height, width = inputs[0]
    return channels, height * attributes["scale"][0], width * attributes["scale"][1]


def _resize_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    return (inputs[0][0], *attributes["size"])


def _flatten_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    channels, height, width = inputs[0]
    return channels * height * width, 1, 1


def _reshape_shape(inputs: tuple[Shape, ...], attributes: Attributes) -> Shape:
    before, after = inputs[0], attributes["shape"]
    if before[0] * before[1] * before[2] != after[0] * after[1] * after[2]:
        raise ShapeError(
            "reshape must keep the number of elements",
            found=f"{format_shape(before)} -> {format_shape(after)}",
            expected=f"{before[0] * before[1] * before[2]} elements",
        )
    return after[0], after[1], after[2]


def _no_parameters(inputs: tuple[Shape, ...], attributes: Attributes) -> dict[str, tuple[int, ...]]:
    return {}


def _batch_norm_parameters(inputs: tuple[Shape, ...], attributes: Attributes) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(("gamma", "beta", "mean", "variance"), (inputs[0][0],))


def format_shape(shape: tuple[int, ...]) -> str:
    """A shape as the language writes it: 3x224x224, or 10 for a vector."""
    if len(shape) == 3 and shape[1:] == (1, 1):
        return str(shape[0])
    return "x".join(str(size) for size in shape)


_T = AttributeType
_WINDOW = (
    Attribute("kernel", _T.PAIR, required=True),
    Attribute("stride", _T.PAIR, (1, 1)),
    Attribute("padding", _T.PADDING, (0, 0, 0, 0)),
)
_POOL = (
    Attribute("kernel", _T.PAIR, required=True),
    Attribute("stride", _T.PAIR),  # the kernel's size where it is not written
    Attribute("padding", _T.PADDING, (0, 0, 0, 0)),
)
_BIAS = Attribute("bias", _T.FLAG, True)
_DILATION = Attribute("dilation", _T.PAIR, (1, 1))

LAYER_KINDS: Mapping[str, LayerKind] = {
    kind.name: kind
    for kind in (
        LayerKind(
            "conv2d",
            "2-D convolution (cross-correlation)",
            (
                Attribute("channels", _T.INTEGER, required=True),
                *_WINDOW,
                Attribute("groups", _T.INTEGER, 1),
                _DILATION,
                _BIAS,
            ),
            (1, 1),
            _conv2d_shape,
            _conv2d_parameters,
        ),
        LayerKind(
            "depthwise",
            "convolution of each channel on its own",
            (*_WINDOW, Attribute("multiplier", _T.INTEGER, 1), _DILATION, _BIAS),
            (1, 1),
            _depthwise_shape,
            _depthwise_parameters,
        ),
        LayerKind(
            "linear",
            "fully connected layer",
            (Attribute("features", _T.INTEGER, required=True), _BIAS),
            (1, 1),
            _linear_shape,
            _linear_parameters,
        ),
        LayerKind("relu", "max(x, 0)", (), (1, 1), _same_shape, _no_parameters),
        LayerKind("relu6", "min(max(x, 0), 6)", (), (1, 1), _same_shape, _no_parameters),
        LayerKind(
            "leaky_relu",
            "x, or slope * x below zero",
            (Attribute("slope", _T.REAL, Fraction(1, 100), bounds=(Fraction(0), Fraction(1))),),
            (1, 1),
            _same_shape,
            _no_parameters,
        ),
        LayerKind("sigmoid", "1 / (1 + e^-x)", (), (1, 1), _same_shape, _no_parameters),
        LayerKind("max_pool", "largest value of a window", _POOL, (1, 1), _pool_shape, _no_parameters),
        LayerKind(
            "avg_pool",
            "mean of a window",
            (*_POOL, Attribute("include_padding", _T.FLAG, False)),
            (1, 1),
            _pool_shape,
            _no_parameters,
        ),
        LayerKind("global_max_pool", "largest value of each channel", (), (1, 1), _global_shape, _no_parameters),
        LayerKind("global_avg_pool", "mean of each channel", (), (1, 1), _global_shape, _no_parameters),
        LayerKind("add", "sum of feature maps of one shape", (), (2, None), _add_shape, _no_parameters),
        LayerKind(
            "concat",
            "feature maps one after the other, by channel",
            (),
            (2, None),
            _concat_shape,
            _no_parameters,
        ),
        LayerKind(
            "upsample",
            "nearest neighbour, by whole factors",
            (Attribute("scale", _T.PAIR, required=True),),
            (1, 1),
            _upsample_shape,
            _no_parameters,
        ),
        LayerKind(
            "resize",
            "nearest neighbour, to a height and width",
            (Attribute("size", _T.PAIR, required=True),),
            (1, 1),
            _resize_shape,
            _no_parameters,
        ),
        LayerKind(
            "flatten",
            "a feature map as a vector, channels outermost",
            (),
            (1, 1),
            _flatten_shape,
            _no_parameters,
        ),
        LayerKind(
            "reshape",
            "the same elements in another shape",
            (Attribute("shape", _T.SHAPE, required=True),),
            (1, 1),
            _reshape_shape,
            _no_parameters,
        ),
        LayerKind(
            "batch_norm",
            "gamma * (x - mean) / sqrt(variance + epsilon) + beta",
            (Attribute("epsilon", _T.REAL, Fraction(1, 100_000), bounds=(Fraction(0), Fraction(1))),),
            (1, 1),
            _same_shape,
            _batch_norm_parameters,
        ),
        LayerKind("softmax", "softmax over the channels", (), (1, 1), _same_shape, _no_parameters),
        LayerKind(
            "cross_entropy",
            "softmax and cross-entropy against the labels: the loss of training",
            (),
            (1, 1),
            _same_shape,
            _no_parameters,
        ),
    )
}
"""Every layer kind by name, in the order of the manual. Inputs are declared, not layers of this table."""

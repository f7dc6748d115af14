"""One function for each section of a .cfg file: its options -> layers of the language.

Sizes and rules are those of Darknet (Redmon 2013-2016); a function reads all options before it looks at the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from binpoint.compiler.frontends.darknet.builder import Builder
from binpoint.compiler.frontends.darknet.options import Options
from binpoint.compiler.layers import Shape, format_shape
from binpoint.compiler.network import Input

ACTIVATIONS: Mapping[str, str | None] = {
    "linear": None,
    "leaky": "leaky_relu",
    "relu": "relu",
    "relu6": "relu6",
    "logistic": "sigmoid",
}
"""Darknet's activations that the language has, and the kinds of their layers."""

LEAKY_SLOPE = Fraction(1, 10)

Handler = Callable[[Options, Builder], str]
"""Reads a section and adds its layers; the result is the name of the map that the next section reads."""


def net(options: Options, size: tuple[int, int] | None) -> Input:
    """The input of the network: RGB pixels / 255, of the size that the section or the caller says."""
    height, width = options.integer("height", None, 1), options.integer("width", None, 1)
    channels = options.integer("channels", None, 1)
    options.only("inputs", str(height * width * channels), "it is height * width * channels")
    options.only("time_steps", "1", "the language has no recurrence")
    options.finish()
    shape = (channels, *(size or (height, width)))
    return Input("image", shape, scale=Fraction(1, 255), location=options.location)


def crop(options: Options, builder: Builder) -> str:
    """Inference takes the middle of the picture: so the input is as large as that, and reads 2 p - 1."""
    height, width = options.integer("crop_height", 1, 1), options.integer("crop_width", 1, 1)
    unshifted = options.flag("noadjust")
    options.finish()
    declared = builder.input
    channels, rows, columns = declared.shape
    if builder.index:
        raise options.error("unsupported-section", "the language has no cropping inside a network")
    if height > rows or width > columns:
        found, expected = f"{height}x{width}", f"at most {rows}x{columns}, the size of the input"
        raise builder.mismatch("it crops more than there is", found, expected)
    mean = (Fraction(0),) if unshifted else (Fraction(1),)
    scale = declared.scale if unshifted else 2 * declared.scale
    builder.declare(Input(declared.name, (channels, height, width), scale, mean, location=declared.location))
    return declared.name


def convolutional(options: Options, builder: Builder) -> str:
    """A convolution with bias or batch norm, and its activation."""
    filters, size = options.integer("filters", 1, 1), options.integer("size", 1, 1)
    stride, groups = options.integer("stride", 1, 1), options.integer("groups", 1, 1)
    strides = options.integer("stride_y", stride, 1), options.integer("stride_x", stride, 1)
    padding = options.integer("padding", 0)
    padding = size // 2 if options.flag("pad") else padding
    norm, activation = options.flag("batch_normalize"), _activation(options, "logistic")
    for name, default in (("binary", "0"), ("xnor", "0"), ("flipped", "0"), ("dot", "0"), ("dilation", "1")):
        options.only(name, default, "the language has no such convolution")
    for name in ("dontload", "dontloadscales"):
        options.only(name, "0", "all parameters come from the weights file")
    options.finish()
    source = builder.source()
    channels = builder.shapes[source][0]
    window = {"kernel": (size, size), "stride": strides, "padding": (padding,) * 4}
    if groups == channels and filters % channels == 0 and groups > 1:
        multiplier = filters // channels
        result = builder.weighted("convolutional", "depthwise", source, norm, **window, multiplier=multiplier)
    else:
        result = builder.weighted("convolutional", "conv2d", source, norm, channels=filters, **window, groups=groups)
    return _activate(builder, result, activation)


def connected(options: Options, builder: Builder) -> str:
    """A fully connected layer over all numbers of the map, channels outermost."""
    outputs, activation = options.integer("output", 1, 1), _activation(options, "logistic")
    norm = options.flag("batch_normalize")
    options.finish()
    source = _vector(builder)
    return _activate(builder, builder.weighted("connected", "linear", source, norm, features=outputs), activation)


def maxpool(options: Options, builder: Builder) -> str:
    """Darknet's padding: `padding` (size - 1 by default) cells in all, half of them above and left, rounded down."""
    stride = options.integer("stride", 1, 1)
    size = options.integer("size", stride, 1)
    padding = options.integer("padding", size - 1)
    for name in ("antialiasing", "maxpool_depth"):
        options.only(name, "0", "the language has no such pool")
    options.finish()
    source = builder.source()
    before = padding // 2
    sides = [_after(extent, size, stride, padding) for extent in builder.shapes[source][1:]]
    around = (before, before, *sides)
    return builder.add("max_pool", [source], kernel=(size, size), stride=(stride, stride), padding=around)


def avgpool(options: Options, builder: Builder) -> str:
    """The mean of each channel."""
    options.finish()
    return builder.add("global_avg_pool", [builder.source()])


def route(options: Options, builder: Builder) -> str:
    """Earlier maps one after the other, by channel; with groups, only one group of each one's channels."""
    numbers = options.integers("layers")
    groups, group = options.integer("groups", 1, 1), options.integer("group_id", 0)
    if group >= groups:
        options.fault("out-of-range", f"there are groups 0 to {groups - 1}", "group_id")
    options.finish()
    builder.location = options.place("layers")
    sources = [builder.earlier(number) for number in numbers]
    if groups > 1:
        sources = [_group(builder, source, groups, group, f"group{order}_") for order, source in enumerate(sources)]
    return sources[0] if len(sources) == 1 else builder.add("concat", sources)


def shortcut(options: Options, builder: Builder) -> str:
    """The sum of the map before and of earlier ones, and an activation. The map before says the shape."""
    numbers, activation = options.integers("from"), _activation(options, "linear")
    options.only("weights_type", "none", "the language has no weighted sum")
    options.only("weights_normalization", "none", "the language has no weighted sum")
    options.finish()
    source = builder.source()
    builder.location = options.place("from")
    shape = builder.shapes[source]
    earlier = [builder.earlier(number) for number in numbers]
    fitted = [_fitted(builder, name, shape, f"fit{order or ''}_") for order, name in enumerate(earlier)]
    return _activate(builder, builder.add("add", [source, *fitted]), activation)


def upsample(options: Options, builder: Builder) -> str:
    """Nearest neighbour."""
    stride = options.integer("stride", 2, 1)
    options.only("scale", "1", "the language does not scale what it repeats")
    options.finish()
    return builder.add("upsample", [builder.source()], scale=(stride, stride))


def reorg(options: Options, builder: Builder) -> str:
    """Darknet's reorganisation of squares of cells into channels (reorg_cpu, with its own order of channels).

    C x H x W is read as C/s^2 x H s x W s; the cell (i, j) of each s x s square becomes channel (i s + j) C/s^2 + c of
    a C x H x W map, which is read as C s^2 x H/s x W/s. The squares are gathered by a convolution of zeros and ones.
    """
    stride = options.integer("stride", 1, 1)
    for name in ("reverse", "flatten", "extra"):
        options.only(name, "0", "the language moves squares into channels only")
    options.finish()
    source = builder.source()
    channels, height, width = builder.shapes[source]
    area = stride * stride
    if channels % area or height % stride or width % stride:
        found = format_shape(builder.shapes[source])
        raise builder.mismatch("its stride does not fit the map", found, f"{area} divides C, {stride} divides H and W")
    wide = builder.add("reshape", [source], "wide", shape=(channels // area, height * stride, width * stride))
    squares = builder.gather_squares(wide, stride)
    return builder.add("reshape", [squares], shape=(channels * area, height // stride, width // stride))


def activation(options: Options, builder: Builder) -> str:
    """An activation alone."""
    name = _activation(options, "linear")
    options.finish()
    return _activate(builder, builder.source(), name)


def softmax(options: Options, builder: Builder) -> str:
    """Softmax over all numbers of the map; with `spatial`, over the channels of each cell."""
    spatial = options.flag("spatial")
    options.only("groups", "1", "the language has one softmax a map")
    options.only("temperature", "1", "the language has no temperature")
    options.only("tree", "", "the language has no tree of classes")
    options.finish()
    return builder.add("softmax", [builder.source() if spatial else _vector(builder)])


def passed(options: Options, builder: Builder) -> str:
    """What changes nothing at inference: dropout, and the cost of training."""
    options.finish()
    return builder.source()


def _activation(options: Options, default: str) -> str | None:
    return ACTIVATIONS[options.word("activation", default, ACTIVATIONS)]


def _activate(builder: Builder, source: str, kind: str | None) -> str:
    if kind is None:
        return source
    attributes = {"slope": LEAKY_SLOPE} if kind == "leaky_relu" else {}
    return builder.add(kind, [source], None, **attributes)


def _vector(builder: Builder) -> str:
    """The map before as a vector."""
    source = builder.source()
    return source if _is_vector(builder.shapes[source]) else builder.add("flatten", [source])


def _is_vector(shape: Shape) -> bool:
    return shape[1:] == (1, 1)


def _after(extent: int, size: int, stride: int, padding: int) -> int:
    """Padding below or right of a map that windows reach: there are (extent + padding - size) / stride + 1."""
    windows = (extent + padding - size) // stride + 1
    return max(0, (windows - 1) * stride + size - extent - padding // 2)


def _group(builder: Builder, source: str, groups: int, group: int, role: str) -> str:
    channels = builder.shapes[source][0]
    if channels % groups:
        raise builder.mismatch(f"{groups} groups do not divide its channels", f"{channels} channels")
    share = channels // groups
    return builder.select(source, range(group * share, (group + 1) * share), share, 1, role)


def _fitted(builder: Builder, source: str, shape: Shape, role: str) -> str:
    """A map that [shortcut] adds to one of another shape: every n-th cell, channels that both have (shortcut_cpu)."""
    channels, *extents = builder.shapes[source]
    if builder.shapes[source] == shape:
        return source
    stride = max(1, extents[0] // shape[1])
    if any((extent - 1) // stride + 1 != wanted for extent, wanted in zip(extents, shape[1:], strict=True)):
        found = f"{format_shape(shape)} + {format_shape(builder.shapes[source])}"
        raise builder.mismatch("the map from before cannot be thinned out to the size of this one", found)
    return builder.select(source, range(min(channels, shape[0])), shape[0], stride, role)


HANDLERS: Mapping[str, Handler] = {
    "activation": activation,
    "avgpool": avgpool,
    "connected": connected,
    "convolutional": convolutional,
    "cost": passed,
    "crop": crop,
    "dropout": passed,
    "maxpool": maxpool,
    "reorg": reorg,
    "route": route,
    "shortcut": shortcut,
    "softmax": softmax,
    "upsample": upsample,
}
"""Sections that are layers; detection heads have a module of their own."""

ALIASES: Mapping[str, str] = {
    "avg": "avgpool",
    "conn": "connected",
    "conv": "convolutional",
    "max": "maxpool",
    "network": "net",
    "soft": "softmax",
}
"""Darknet's short names of sections."""

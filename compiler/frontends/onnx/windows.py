"""Operators that slide a window: convolutions, pools, and the reductions that are global pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from binpoint.compiler.frontends.onnx.builder import NetworkBuilder
from binpoint.compiler.frontends.onnx.node import Handler, Node
from binpoint.compiler.frontends.onnx.values import NO_PADDING, FeatureMap, PaddedMap, Padding, UnsupportedError

NEVER_NEGATIVE = ("relu", "relu6", "sigmoid", "softmax")
"""Layers after which a zero beside the map never wins a max pool against the map."""


@dataclass(frozen=True)
class Window:
    """The window of a node on an input of known size."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: Padding
    dilation: tuple[int, int]

    def around(self, zeros: Padding) -> Window:
        """The window on the map without the zeros that a Pad has put around it."""
        top, left, bottom, right = (own + given for own, given in zip(self.padding, zeros, strict=True))
        return replace(self, padding=(top, left, bottom, right))

    def attributes(self) -> dict[str, Any]:
        """The attributes that convolutions and pools share."""
        return {"kernel": self.kernel, "stride": self.stride, "padding": self.padding}


def conv(node: Node) -> FeatureMap:
    """Conv: conv2d, or depthwise where each group has one input channel."""
    weight = node.weights(1, "weight")
    if weight.ndim != 4:
        raise UnsupportedError(f"the language has 2-D convolutions only; this one is {weight.ndim - 2}-D")
    value = node.padded_map()
    window = _window(node, value, (weight.shape[2], weight.shape[3]))
    layer, zeros = node.builder.separate_padding(value)
    channels, groups = node.builder.shapes[layer][0], node.attribute("group", 1)
    if weight.shape[1] * groups != channels:
        raise UnsupportedError(f"its weight reads {weight.shape[1] * groups} channels, its input has {channels}")
    parameters = {"weight": weight}
    if node.value(2) is not None:
        parameters["bias"] = node.weights(2, "bias")
    attributes = window.around(zeros).attributes() | {"dilation": window.dilation, "bias": "bias" in parameters}
    if groups == channels > 1 and weight.shape[0] % channels == 0:
        attributes["multiplier"] = weight.shape[0] // channels
        return node.builder.add_layer("depthwise", [layer], attributes, parameters)
    attributes |= {"channels": weight.shape[0], "groups": groups}
    return node.builder.add_layer("conv2d", [layer], attributes, parameters)


def max_pool(node: Node) -> FeatureMap:
    """MaxPool: max_pool. Its padding never wins, so zeros of a Pad need a map without negative values."""
    value = node.padded_map()
    if isinstance(value, PaddedMap) and not _never_negative(value.map, node.builder):
        value = node.builder.plain(value)
    window, overhang = _pool_window(node, value)
    layer, zeros = node.builder.separate_padding(value)
    return node.builder.add_layer("max_pool", [layer], window.around(overhang).around(zeros).attributes())


def average_pool(node: Node) -> FeatureMap:
    """AveragePool: avg_pool. Zeros of a Pad before it count in the divisor, its own padding as the node says."""
    value = node.padded_map()
    window, overhang = _pool_window(node, value)
    include = bool(node.attribute("count_include_pad", 0)) and window.padding != NO_PADDING
    if isinstance(value, PaddedMap):
        if include or (window.padding, overhang) == (NO_PADDING, NO_PADDING):
            include = True
        else:
            value = node.builder.plain(value)
    if include and overhang != NO_PADDING:
        raise UnsupportedError(
            "with ceil_mode its last windows leave the padding, which count_include_pad does not count"
        )
    layer, zeros = node.builder.separate_padding(value)
    attributes = window.around(overhang).around(zeros).attributes()
    return node.builder.add_layer("avg_pool", [layer], attributes | {"include_padding": include})


def _pool_window(node: Node, value: FeatureMap | PaddedMap) -> tuple[Window, Padding]:
    """The window of a pool, and how far the last windows of ceil_mode leave the padded map."""
    kernel = tuple(node.attribute("kernel_shape", ()))
    if len(kernel) != 2:
        raise UnsupportedError(f"the language has 2-D pools only; this one is {len(kernel)}-D")
    window = _window(node, value, (kernel[0], kernel[1]))
    if window.dilation != (1, 1):
        raise UnsupportedError("the language has no dilated pools")
    if node.attribute("ceil_mode", 0) != 1:
        return window, NO_PADDING
    top, left, bottom, right = window.padding
    below = _overhang(value.shape[2], kernel[0], window.stride[0], top, bottom)
    beside = _overhang(value.shape[3], kernel[1], window.stride[1], left, right)
    return window, (0, 0, below, beside)


def _window(node: Node, value: FeatureMap | PaddedMap, kernel: tuple[int, int]) -> Window:
    if len(value.shape) != 4:
        raise UnsupportedError(f"its input has rank {len(value.shape)}; a window slides over feature maps of rank 4")
    stride, dilation = _pair(node, "strides"), _pair(node, "dilations")
    mode = node.attribute("auto_pad", "NOTSET")
    padding = NO_PADDING
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        (top, bottom), (left, right) = (
            _same_padding(value.shape[2 + i], kernel[i], stride[i], dilation[i], lower=mode == "SAME_LOWER")
            for i in range(2)
        )
        padding = (top, left, bottom, right)
    elif mode == "NOTSET":
        pads = tuple(node.attribute("pads", NO_PADDING))
        if len(pads) != 4 or min(pads) < 0:
            raise UnsupportedError(f"its padding is {list(pads)}; four numbers of at least 0 are needed")
        padding = (pads[0], pads[1], pads[2], pads[3])
    elif mode != "VALID":
        raise UnsupportedError(f'auto_pad "{mode}" is unknown')
    return Window(kernel, stride, padding, dilation)


def _pair(node: Node, name: str) -> tuple[int, int]:
    values = tuple(node.attribute(name, (1, 1)))
    if len(values) != 2 or min(values) < 1:
        raise UnsupportedError(f"its {name} are {list(values)}; two numbers of at least 1 are needed")
    return values[0], values[1]


def _same_padding(size: int, kernel: int, stride: int, dilation: int, *, lower: bool) -> tuple[int, int]:
    """Zeros before and after an axis so that ceil(size / stride) windows fit; `lower` puts the odd one before."""
    outputs = -(-size // stride)
    total = (outputs - 1) * stride + dilation * (kernel - 1) + 1 - size
    if total < -1:
        raise UnsupportedError(f"auto_pad needs a padding of {total}; runtimes disagree on what that means")
    total = max(0, total)
    small, large = total // 2, total - total // 2
    return (large, small) if lower else (small, large)


def _overhang(size: int, kernel: int, stride: int, before: int, after: int) -> int:
    """How far the last window of ceil_mode leaves the padded axis; one that starts past the map is dropped."""
    total = size + before + after
    outputs = -(-(total - kernel) // stride) + 1
    if (outputs - 1) * stride >= size + before:
        outputs -= 1
    return max(0, (outputs - 1) * stride + kernel - total)


def _never_negative(view: FeatureMap, builder: NetworkBuilder) -> bool:
    draft = builder.drafts.get(view.layer)
    return draft is not None and draft.layer.kind in NEVER_NEGATIVE


def _global(kind: str) -> Handler:
    def handler(node: Node) -> FeatureMap:
        view = node.feature_map()
        result = node.builder.add_layer(kind, [node.builder.materialize(view)])
        return result.reshape((*view.shape[:2], *(1,) * (len(view.shape) - 2)))

    return handler


def _reduce(kind: str) -> Handler:
    def handler(node: Node) -> FeatureMap:
        view = node.feature_map()
        rank = len(view.shape)
        axes = {node.axis(axis, rank) for axis in node.integers("axes", 1 if node.opset >= 18 else None) or ()}
        kept = [axis for axis in range(rank) if axis not in axes]
        if rank < 3 or len(kept) != 2 or kept[0] != 0:
            raise UnsupportedError(f"it reduces axes {sorted(axes)} of {rank}; only height and width together can go")
        channels = node.builder.materialize(view.transpose([*kept, *sorted(axes)]))
        result = node.builder.add_layer(kind, [channels])
        if node.attribute("keepdims", 1):
            return result.reshape([1 if axis in axes else view.shape[axis] for axis in range(rank)])
        return result.reshape([view.shape[axis] for axis in kept])

    return handler


HANDLERS: Mapping[str, Handler] = {
    "Conv": conv,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": _global("global_avg_pool"),
    "GlobalMaxPool": _global("global_max_pool"),
    "ReduceMean": _reduce("global_avg_pool"),
    "ReduceMax": _reduce("global_max_pool"),
}
"""ONNX operator -> importer."""

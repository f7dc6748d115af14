"""Upsample and Resize: nearest neighbour where the rows and columns read are the language's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.frontends.dsl.values import LARGEST_SIZE
from binpoint.compiler.frontends.onnx.node import Handler, Node
from binpoint.compiler.frontends.onnx.values import FeatureMap, UnsupportedError

Axis = tuple[int, np.float32]
"""The output's size along an axis and its scale, as runtimes compute with it."""


def resize(node: Node) -> FeatureMap:
    """Upsample and Resize: upsample by whole factors, else resize. What counts is which pixels are read."""
    view = node.feature_map()
    if len(view.shape) != 4:
        raise UnsupportedError(f"its input has rank {len(view.shape)}; feature maps have rank 4")
    axes = _axes(node, view.shape)
    sizes = tuple(size for size, _ in axes)
    if sizes == view.shape:
        return view
    if sizes[:2] != view.shape[:2]:
        raise UnsupportedError("it changes the batch or the channels; only height and width can change")
    mode = node.attribute("mode", "nearest")
    if mode != "nearest":
        raise UnsupportedError(f"it interpolates ({mode}); the language has the nearest neighbour only")
    for size, (output, scale) in zip(view.shape[2:], axes[2:], strict=True):
        expected = np.arange(output) * size // output
        if not np.array_equal(_rows_read(node, size, output, scale), expected):
            raise UnsupportedError(f"from {size} to {output} pixels it reads others than floor(i * {size} / {output})")
    layer = node.builder.materialize(view)
    (height, width), (rows, columns) = view.shape[2:], sizes[2:]
    if rows % height == 0 and columns % width == 0:
        return node.builder.add_layer("upsample", [layer], {"scale": (rows // height, columns // width)})
    return node.builder.add_layer("resize", [layer], {"size": (rows, columns)})


def _axes(node: Node, shape: tuple[int, ...]) -> list[Axis]:
    """Size and scale of each output axis, from the scales or sizes of whichever opset."""
    if node.attribute("antialias", 0) or node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnsupportedError("it filters (antialias) or keeps the aspect ratio; the language stretches to a size")
    sizes, scales = _requested(node)
    named = node.attribute("axes", tuple(range(len(shape))))
    if len(sizes or scales) != len(named):
        raise UnsupportedError(f"it has {len(sizes or scales)} sizes or scales for {len(named)} axes")
    axes: list[Axis] = [(size, np.float32(1)) for size in shape]
    for position, number in enumerate(named):
        axis = node.axis(number, len(shape))
        before = np.float32(shape[axis])
        if sizes:
            # A batch that the model was exported for counts as one image.
            size = 1 if axis == 0 and sizes[position] == node.batch else sizes[position]
            axes[axis] = (size, np.float32(size) / before)
        else:
            scale = np.float32(scales[position])
            if not 0 < before * scale <= LARGEST_SIZE:
                raise UnsupportedError(f"it scales {shape[axis]} pixels by {scale:g}")
            axes[axis] = (int(np.floor(before * scale)), scale)
    if not all(1 <= size <= LARGEST_SIZE for size, _ in axes):
        raise UnsupportedError(f"it resizes to {'x'.join(str(size) for size, _ in axes)}")
    return axes


def _requested(node: Node) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The sizes and the scales; one of them is empty."""
    if not _is_modern(node):
        if node.value(1) is None:
            return (), tuple(node.attribute("scales", ()))
        return (), tuple(map(float, node.constant(1, "scales").reshape(-1)))
    sizes = node.integers("sizes", 3) if node.value(3) is not None else ()
    scales = node.constant(2, "scales").reshape(-1) if node.value(2) is not None else ()
    return sizes or (), tuple(map(float, scales))


def _is_modern(node: Node) -> bool:
    """Whether coordinate modes apply: Resize from opset 11 on, with a region of interest as input 1."""
    return bool(node.proto.op_type == "Resize" and node.opset >= 11)


def _rows_read(node: Node, size: int, output: int, scale: np.float32) -> NDArray[np.int64]:
    """The input position that each output position reads along one axis, in the float32 that runtimes use."""
    position = np.arange(output, dtype=np.float32)
    modern = _is_modern(node)
    mode = node.attribute("coordinate_transformation_mode", "half_pixel" if modern else "asymmetric")
    half_pixel = (position + np.float32(0.5)) / scale - np.float32(0.5)
    if mode == "asymmetric":
        source = position / scale
    elif mode == "half_pixel":
        source = half_pixel
    elif mode == "pytorch_half_pixel":
        source = half_pixel if output > 1 else np.zeros_like(position)
    elif mode == "half_pixel_symmetric":
        adjustment = np.float32(output) / (scale * np.float32(size))
        source = np.float32(size / 2) * (1 - adjustment) + half_pixel
    elif mode == "align_corners":
        source = position * np.float32((size - 1) / max(1, output - 1))
    elif mode == "tf_half_pixel_for_nn":
        source = (position + np.float32(0.5)) / scale
    else:
        raise UnsupportedError(f"the coordinates of {mode} cannot be expressed")
    rounding = node.attribute("nearest_mode", "round_prefer_floor" if modern else "floor")
    if rounding not in _ROUNDINGS:
        raise UnsupportedError(f'nearest_mode "{rounding}" is unknown')
    return np.clip(_ROUNDINGS[rounding](source), 0, size - 1).astype(np.int64)


_ROUNDINGS: Mapping[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda source: np.ceil(source - np.float32(0.5)),
    "round_prefer_ceil": lambda source: np.floor(source + np.float32(0.5)),
}

HANDLERS: Mapping[str, Handler] = {"Resize": resize, "Upsample": resize}
"""ONNX operator -> importer."""

"""Operators that move elements: reshapes and transposes, which cost no layer, and padding with zeros."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from binpoint.compiler.frontends.onnx.node import Handler, Node
from binpoint.compiler.frontends.onnx.values import NO_PADDING, Constant, FeatureMap, PaddedMap, UnsupportedError, Value


def reshape(node: Node) -> FeatureMap:
    """Reshape to a constant shape."""
    view = node.feature_map()
    target = list(node.integers("shape", 1) or ())
    if not node.attribute("allowzero", 0):
        if any(size == 0 and axis >= len(view.shape) for axis, size in enumerate(target)):
            raise UnsupportedError(f"its shape {target} copies sizes that its input does not have")
        target = [size or view.shape[axis] for axis, size in enumerate(target)]
    shape = _resolved(target, view.size)
    if shape is None and node.batch is not None and target[:1] == [node.batch]:
        # The model was exported for a batch of this size; the importer follows one image.
        shape = _resolved([1, *target[1:]], view.size)
    if shape is None:
        raise UnsupportedError(f"its shape {target} does not hold the {view.size} elements of one image")
    return _same_images(node, view.reshape(shape))


def _resolved(target: Sequence[int], size: int) -> tuple[int, ...] | None:
    """The target with -1 worked out, None where it does not hold `size` elements."""
    rest = math.prod(number for number in target if number != -1)
    if target.count(-1) > 1 or rest < 1 or size % rest:
        return None
    shape = tuple(size // rest if number == -1 else number for number in target)
    return shape if math.prod(shape) == size else None


def flatten(node: Node) -> FeatureMap:
    """Flatten to a matrix."""
    view = node.feature_map()
    rank = len(view.shape)
    axis = node.attribute("axis", 1)
    axis = rank if axis == rank else node.axis(axis, rank)
    return _same_images(node, view.reshape((math.prod(view.shape[:axis]), math.prod(view.shape[axis:]))))


def transpose(node: Node) -> FeatureMap:
    """Transpose, kept as a view until something reads it."""
    view = node.feature_map()
    permutation = node.attribute("perm", tuple(reversed(range(len(view.shape)))))
    if sorted(permutation) != list(range(len(view.shape))):
        raise UnsupportedError(f"its perm {list(permutation)} does not fit a tensor of rank {len(view.shape)}")
    if node.batch != 1 and permutation[0] != 0:
        raise UnsupportedError("it moves the batch axis")
    return view.transpose(permutation)


def squeeze(node: Node) -> FeatureMap:
    """Squeeze axes of size 1."""
    view = node.feature_map()
    given = node.integers("axes", 1 if node.opset >= 13 else None)
    if given is None:
        axes = {axis for axis, size in enumerate(view.shape) if size == 1}
    else:
        axes = {node.axis(axis, len(view.shape)) for axis in given}
    if any(view.shape[axis] != 1 for axis in axes):
        raise UnsupportedError(f"axes {sorted(axes)} are not all of size 1")
    return _same_images(node, view.reshape([size for axis, size in enumerate(view.shape) if axis not in axes]))


def unsqueeze(node: Node) -> FeatureMap:
    """Unsqueeze: new axes of size 1."""
    view = node.feature_map()
    given = node.integers("axes", 1 if node.opset >= 13 else None) or ()
    rank = len(view.shape) + len(given)
    axes = {node.axis(axis, rank) for axis in given}
    if len(axes) < len(given):
        raise UnsupportedError(f"its axes {list(given)} repeat themselves")
    sizes = iter(view.shape)
    return _same_images(node, view.reshape([1 if axis in axes else next(sizes) for axis in range(rank)]))


def _same_images(node: Node, view: FeatureMap) -> FeatureMap:
    """Refuse to merge images with anything else where a batch may hold several."""
    if node.batch != 1 and view.shape[:1] != (1,):
        raise UnsupportedError("it merges the batch axis with other axes")
    return view


def pad(node: Node) -> Value:
    """Pad with zeros around height and width; the next window takes them over where it can."""
    value = node.padded_map()
    rank = len(value.shape)
    before, after = _pads(node, rank)
    if not any((*before, *after)):
        return value
    fill = node.attribute("value", 0.0) if node.value(2) is None else node.scalar(2, "value")
    if node.attribute("mode", "constant") != "constant" or fill != 0:
        raise UnsupportedError("the language pads with zeros only")
    if rank != 4 or any((*before[:2], *after[:2])) or min(*before, *after) < 0:
        raise UnsupportedError(f"it pads by {before} before and {after} after; only height and width can grow")
    if isinstance(value, FeatureMap):
        value = PaddedMap(value, NO_PADDING)
    top, left, bottom, right = value.padding
    return PaddedMap(value.map, (top + before[2], left + before[3], bottom + after[2], right + after[3]))


def _pads(node: Node, rank: int) -> tuple[list[int], list[int]]:
    """How many elements to put before and after each axis."""
    pads = node.integers("pads", 1 if node.opset >= 11 else None) or ()
    axes = node.integers("axes", 3) if node.value(3) is not None else None
    if axes is None:
        axes = tuple(range(rank))
    if len(pads) != 2 * len(axes):
        raise UnsupportedError(f"it has {len(pads)} pads for {len(axes)} axes")
    before, after = [0] * rank, [0] * rank
    for axis, first, last in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        before[node.axis(axis, rank)], after[node.axis(axis, rank)] = first, last
    return before, after


def shape_of(node: Node) -> Value:
    """Shape: a constant, for a batch of one."""
    shape = node.padded_map().shape
    part = shape[slice(node.attribute("start", 0), node.attribute("end"))]
    return Constant(np.array(part, dtype=np.int64))


def size_of(node: Node) -> Value:
    """Size: a constant, for a batch of one."""
    return Constant(np.array(math.prod(node.padded_map().shape), dtype=np.int64))


HANDLERS: Mapping[str, Handler] = {
    "Flatten": flatten,
    "Pad": pad,
    "Reshape": reshape,
    "Shape": shape_of,
    "Size": size_of,
    "Squeeze": squeeze,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
"""ONNX operator -> importer."""

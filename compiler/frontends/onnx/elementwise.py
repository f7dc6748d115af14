"""Operators on elements: activations, sums, constants as bias and scale, batch norm, concat, softmax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from binpoint.compiler.frontends.onnx.affine import absorb_affine, apply_affine
from binpoint.compiler.frontends.onnx.builder import FloatArray, NetworkBuilder
from binpoint.compiler.frontends.onnx.model import type_name
from binpoint.compiler.frontends.onnx.node import Handler, Node
from binpoint.compiler.frontends.onnx.values import Constant, FeatureMap, UnsupportedError, Value


def _activation(kind: str) -> Handler:
    def handler(node: Node) -> FeatureMap:
        return _apply(node.builder, kind, node.feature_map())

    return handler


def _apply(builder: NetworkBuilder, kind: str, view: FeatureMap, **attributes: Any) -> FeatureMap:
    """An activation on the layer behind the view: the order of elements does not matter to it."""
    return replace(view, layer=builder.add_layer(kind, [view.layer], attributes).layer, exclusive=True)


def leaky_relu(node: Node) -> FeatureMap:
    """LeakyRelu: leaky_relu."""
    return _apply(node.builder, "leaky_relu", node.feature_map(), slope=node.real("alpha", "0.01"))


def clip(node: Node) -> FeatureMap:
    """Clip to 0..6: relu6; to 0..infinity: relu."""
    view = node.feature_map()
    low, high = (_clip_limit(node, name, position) for position, name in ((1, "min"), (2, "max")))
    largest = float(np.finfo(np.float32).max)
    if low == 0 and high == 6:
        return _apply(node.builder, "relu6", view)
    if low == 0 and (high is None or high >= largest):
        return _apply(node.builder, "relu", view)
    if (low is None or low <= -largest) and (high is None or high >= largest):
        return view
    raise UnsupportedError(f"it clips to {low}..{high}; the language has 0..6 (relu6) and 0..infinity (relu)")


def _clip_limit(node: Node, name: str, position: int) -> float | None:
    if node.value(position) is not None:
        return node.scalar(position, name)
    value = node.attribute(name)
    return None if value is None else float(value)


def add(node: Node) -> FeatureMap:
    """Add and Sum: constants as a bias, maps by an add layer."""
    positions = range(len(node.inputs))
    constants = [node.weights(i, "addend") for i in positions if isinstance(node.inputs[i], Constant)]
    maps = [node.feature_map(i) for i in positions if not isinstance(node.inputs[i], Constant)]
    total = _sum_of_maps(node.builder, maps) if len(maps) > 1 else maps[0]
    for constant in constants:
        total = apply_affine(node.builder, total, None, constant)
    return total


def _sum_of_maps(builder: NetworkBuilder, maps: list[FeatureMap]) -> FeatureMap:
    first = maps[0]
    if len({view.shape for view in maps}) > 1:
        shapes = " + ".join("x".join(map(str, view.shape)) for view in maps)
        raise UnsupportedError(f"the language adds feature maps of one shape only; these are {shapes}")
    in_order = all(view.index is None for view in maps)
    if in_order and len({builder.shapes[view.layer] for view in maps}) == 1:
        return replace(first, layer=builder.add_layer("add", [view.layer for view in maps]).layer, exclusive=True)
    return builder.add_layer("add", [builder.materialize(view) for view in maps]).reshape(first.shape)


def subtract(node: Node) -> FeatureMap:
    """Sub with a constant on either side."""
    constant_first = isinstance(node.value(0), Constant)
    if not constant_first and not isinstance(node.value(1), Constant):
        raise UnsupportedError("the language has no difference of two feature maps")
    if constant_first:
        minus_one = np.array(-1, dtype=np.float32)
        return apply_affine(node.builder, node.feature_map(1), minus_one, node.weights(0, "minuend"))
    return apply_affine(node.builder, node.feature_map(), None, -node.weights(1, "subtrahend"))


def multiply(node: Node) -> FeatureMap:
    """Mul by a constant."""
    constant_first = isinstance(node.value(0), Constant)
    if not constant_first and not isinstance(node.value(1), Constant):
        raise UnsupportedError("the language has no product of two feature maps")
    view = node.feature_map(1 if constant_first else 0)
    return apply_affine(node.builder, view, node.weights(0 if constant_first else 1, "factor"), None)


def divide(node: Node) -> FeatureMap:
    """Div by a constant."""
    if not isinstance(node.value(1), Constant):
        raise UnsupportedError("the language cannot divide by a feature map")
    divisor = node.weights(1, "divisor")
    if not divisor.all():
        raise UnsupportedError("it divides by zero")
    return apply_affine(node.builder, node.feature_map(), 1 / divisor.astype(np.float64), None)


def batch_normalization(node: Node) -> FeatureMap:
    """BatchNormalization: batch_norm, or inside the convolution before it where the user asks for that."""
    view = node.feature_map()
    if node.attribute("training_mode", 0):
        raise UnsupportedError("it is in training mode; export the model for inference")
    if node.attribute("spatial", 1) != 1:
        raise UnsupportedError("its statistics differ from pixel to pixel (spatial = 0)")
    layer = node.builder.materialize(view)
    epsilon = node.real("epsilon", "1e-5")
    names = ("gamma", "beta", "mean", "variance")
    parameters = {name: node.weights(position, name) for position, name in enumerate(names, start=1)}
    channels = node.builder.shapes[layer][0]
    if any(array.shape != (channels,) for array in parameters.values()):
        raise UnsupportedError(f"its parameters are not one value for each of {channels} channels")
    if parameters["variance"].min() < 0 or parameters["variance"].min() + float(epsilon) <= 0:
        raise UnsupportedError("its variance plus epsilon is not positive")
    if node.builder.fold_batch_norm and view.exclusive and layer == view.layer:
        factor, addend = _as_affine(parameters, float(epsilon))
        if absorb_affine(node.builder.drafts.get(layer), factor, addend):
            return view
    result = node.builder.add_layer("batch_norm", [layer], {"epsilon": epsilon}, parameters)
    return result.reshape(view.shape)


def _as_affine(parameters: Mapping[str, FloatArray], epsilon: float) -> tuple[FloatArray, FloatArray]:
    gamma, beta, mean, variance = (
        parameters[name].astype(np.float64) for name in ("gamma", "beta", "mean", "variance")
    )
    factor = gamma / np.sqrt(variance + epsilon)
    return factor, beta - mean * factor


def concat(node: Node) -> FeatureMap:
    """Concat over the channels: concat."""
    maps = [node.feature_map(position) for position in range(len(node.inputs))]
    rank = len(maps[0].shape)
    axis = node.axis(node.attribute("axis", 1), rank)
    if axis != 1:
        raise UnsupportedError(f"it joins along axis {axis}; the language joins channels, axis 1")
    if len(maps) == 1:
        return maps[0]
    result = node.builder.add_layer("concat", [node.builder.materialize(view) for view in maps])
    return result.reshape((1, sum(view.shape[1] for view in maps), *maps[0].shape[2:]))


def softmax(node: Node) -> FeatureMap:
    """Softmax over one axis, which is brought to the place of the channels."""
    view = node.feature_map()
    rank = len(view.shape)
    axis = node.axis(node.attribute("axis", 1 if node.opset < 13 else -1), rank)
    if axis == 0 and rank > 1 and (node.opset >= 13 or node.batch != 1):
        raise UnsupportedError("it runs over the images of a batch")
    if node.opset < 13:
        # It used to run over all axes from `axis` on, as one.
        flat = view.reshape((*view.shape[:axis], math.prod(view.shape[axis:])))
        return _softmax_over(node.builder, flat, axis).reshape(view.shape)
    return _softmax_over(node.builder, view, axis)


def _softmax_over(builder: NetworkBuilder, view: FeatureMap, axis: int) -> FeatureMap:
    rank = len(view.shape)
    order = [0, *([axis] if axis else []), *(other for other in range(1, rank) if other != axis)]
    channels_first = view.transpose(order)
    result = builder.add_layer("softmax", [builder.materialize(channels_first)]).reshape(channels_first.shape)
    return result.transpose(sorted(range(rank), key=order.__getitem__))


def identity(node: Node) -> Value:
    """Identity, and Dropout at inference."""
    return node.padded_map()


def dropout(node: Node) -> Value:
    """Dropout: nothing at inference."""
    if node.value(2) is not None and node.scalar(2, "training_mode"):
        raise UnsupportedError("it is in training mode; export the model for inference")
    return node.padded_map()


def cast(node: Node) -> Value:
    """Cast between floating-point types: nothing, the network's own types decide."""
    from onnx import TensorProto

    target = node.attribute("to")
    if target not in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16):
        raise UnsupportedError(f"it casts to {type_name(target)}; only real numbers can be computed with")
    return node.padded_map()


HANDLERS: Mapping[str, Handler] = {
    "Add": add,
    "BatchNormalization": batch_normalization,
    "Cast": cast,
    "Clip": clip,
    "Concat": concat,
    "Div": divide,
    "Dropout": dropout,
    "Identity": identity,
    "LeakyRelu": leaky_relu,
    "Mul": multiply,
    "Relu": _activation("relu"),
    "Sigmoid": _activation("sigmoid"),
    "Softmax": softmax,
    "Sub": subtract,
    "Sum": add,
}
"""ONNX operator -> importer."""

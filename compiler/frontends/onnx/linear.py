"""Matrix products with constants: linear layers. A permuted input becomes permuted weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from binpoint.compiler.frontends.onnx.builder import FloatArray, NetworkBuilder
from binpoint.compiler.frontends.onnx.node import Handler, Node
from binpoint.compiler.frontends.onnx.values import Constant, FeatureMap, UnsupportedError


def gemm(node: Node) -> FeatureMap:
    """Gemm: linear, with alpha and beta inside the parameters."""
    view = node.feature_map()
    if len(view.shape) != 2:
        raise UnsupportedError(f"its input has rank {len(view.shape)}; Gemm multiplies matrices")
    if node.attribute("transA", 0):
        view = view.transpose((1, 0))
    _check_vector(view, -1)
    matrix = _matrix(node, 1)
    weight = matrix if node.attribute("transB", 0) else matrix.T
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    bias = None
    if node.value(2) is not None and beta != 0:
        addend = node.weights(2, "bias")
        try:
            bias = _times(np.broadcast_to(addend, (1, weight.shape[0]))[0], beta)
        except ValueError:
            raise UnsupportedError(f"its bias has shape {addend.shape}, which is not one value an output") from None
    return _linear(node.builder, view, _times(weight, alpha), bias)


def matmul(node: Node) -> FeatureMap:
    """MatMul with a constant matrix on either side: linear."""
    on_left = isinstance(node.value(0), Constant)
    if not on_left and not isinstance(node.value(1), Constant):
        raise UnsupportedError("the language has no product of two feature maps")
    view = node.feature_map(1 if on_left else 0)
    matrix = _matrix(node, 0 if on_left else 1)
    if on_left:
        _check_vector(view, -2 if len(view.shape) > 1 else -1)
        shape = (*view.shape[:-2], matrix.shape[0], 1)[: len(view.shape)]
        return _linear(node.builder, view, matrix, None).reshape(shape)
    _check_vector(view, -1)
    return _linear(node.builder, view, matrix.T, None).reshape((*view.shape[:-1], matrix.shape[1]))


def _matrix(node: Node, position: int) -> FloatArray:
    matrix = node.weights(position, "matrix")
    if matrix.ndim != 2:
        raise UnsupportedError(f"its constant has rank {matrix.ndim}; a linear layer has one matrix")
    return matrix


def _linear(builder: NetworkBuilder, view: FeatureMap, weight: FloatArray, bias: FloatArray | None) -> FeatureMap:
    """weight (K, F) times the F elements of the view in its own order, plus bias (K,); the result is (1, K)."""
    if weight.shape[1] != view.size:
        raise UnsupportedError(f"its matrix reads {weight.shape[1]} values, its input has {view.size}")
    if view.index is not None:
        by_layer = np.empty_like(weight)
        by_layer[:, view.index] = weight
        weight = by_layer
    parameters = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    attributes = {"features": weight.shape[0], "bias": bias is not None}
    result = builder.add_layer("linear", [builder.vector(view.layer)], attributes, parameters)
    return result.reshape((1, weight.shape[0]))


def _check_vector(view: FeatureMap, axis: int) -> None:
    """Refuse products along one axis of a tensor that has others."""
    if not view.shape or view.shape[axis] != view.size:
        text = "x".join(map(str, view.shape))
        raise UnsupportedError(f"it multiplies along one axis of a {text} tensor; a linear layer reads vectors")


def _times(array: FloatArray, factor: float) -> FloatArray:
    return array if factor == 1 else array * np.float64(factor)


HANDLERS: Mapping[str, Handler] = {"Gemm": gemm, "MatMul": matmul}
"""ONNX operator -> importer."""

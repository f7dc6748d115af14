"""Constant folding: nodes that depend on no network input are computed while importing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.frontends.onnx.model import has_body
from binpoint.compiler.frontends.onnx.values import UnsupportedError

RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
"""Operators that may have only constant inputs and still are no constants."""


def can_fold(node: Any) -> bool:
    """Whether a node with constant inputs is a constant itself: a plain operator of ONNX."""
    return node.domain in ("", "ai.onnx") and not has_body(node)


def fold(node: Any, inputs: Sequence[NDArray[Any] | None], opset: int) -> list[NDArray[Any]]:
    """The outputs of a node whose inputs are constants. Raises UnsupportedError where it cannot be computed."""
    if node.op_type in RANDOM:
        raise UnsupportedError("its result is random")
    if node.op_type == "ConstantOfShape":
        return [_constant_of_shape(node, inputs[0])]
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if array is not None}
    graph = helper.make_graph(
        [node],
        "fold",
        [helper.make_empty_tensor_value_info(name) for name in feeds],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(graph, opsets={"": opset}).run(None, feeds)
    except MemoryError:
        raise UnsupportedError("its constant result does not fit into memory") from None
    except Exception as error:  # the evaluator raises whatever NumPy and its own code raise
        raise UnsupportedError(f"its constant inputs cannot be computed with: {' '.join(str(error).split())}") from None
    return [np.asarray(result) for result in results]


def _constant_of_shape(node: Any, shape: NDArray[Any] | None) -> NDArray[Any]:
    """One value under many indices: no memory, however large the shape."""
    from onnx import numpy_helper

    values = [numpy_helper.to_array(attribute.t) for attribute in node.attribute if attribute.name == "value"]
    value = values[0].reshape(()) if values else np.zeros((), dtype=np.float32)
    sizes = [] if shape is None else [int(size) for size in shape]
    try:
        return np.broadcast_to(value, sizes)
    except ValueError as error:
        raise UnsupportedError(f"its shape is impossible: {error}") from None

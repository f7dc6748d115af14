"""The inputs of a model as inputs of the network: one image of a fixed size each."""

from __future__ import annotations

from typing import Any

import numpy as np

from binpoint.compiler.frontends.onnx.builder import NetworkBuilder
from binpoint.compiler.frontends.onnx.model import OnnxModel, type_name
from binpoint.compiler.frontends.onnx.values import FeatureMap, UnsupportedError, map_shape
from binpoint.support.diagnostics import Collector, Diagnostic, UserError, user_error

CHANNELS_FIRST = (0, 3, 1, 2)
"""The transposition of (N, H, W, C) to (N, C, H, W)."""


def declare_inputs(model: OnnxModel, builder: NetworkBuilder) -> tuple[int | None, dict[str, FeatureMap]]:
    """Declare the inputs that the outputs depend on.

    Returns:
        the batch that the model was exported for, None if any, and each input as a tensor for one image.

    Raises:
        UserError: for inputs without a fixed image size, and for several batches.
    """
    collector = Collector()
    batches: set[int | None] = set()
    views = {}
    for declared in model.inputs:
        if not model.uses[declared.name]:
            continue
        with collector.catch():
            batch, sizes = _sizes(declared, model)
            batches.add(batch)
            try:
                views[declared.name] = _view(declared.name, (1, *sizes), model, builder)
            except UnsupportedError as error:
                raise _unsupported(declared.name, str(error), model) from None
    if len(batches) > 1:
        found = ", ".join(sorted("any" if batch is None else str(batch) for batch in batches))
        collector.add(Diagnostic("batch-mismatch", "the inputs have different batches", model.location, found))
    collector.raise_any()
    return next(iter(batches), None), views


def _sizes(declared: Any, model: OnnxModel) -> tuple[int | None, tuple[int, ...]]:
    """The batch, and the sizes of one image or vector."""
    from onnx import TensorProto

    tensor = declared.type.tensor_type
    real = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16, TensorProto.UINT8)
    batch, *sizes = [dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim] or [None]
    fixed = tuple(size for size in sizes if size is not None)
    if tensor.elem_type not in real or len(sizes) not in (1, 2, 3) or len(fixed) < len(sizes):
        shown = "x".join(str(dim.dim_value or dim.dim_param or "?") for dim in tensor.shape.dim) or "unknown"
        raise _unsupported(declared.name, f"{type_name(tensor.elem_type)} tensor of shape {shown}", model)
    return batch, fixed


def _unsupported(name: str, found: str, model: OnnxModel) -> UserError:
    return user_error(
        "unsupported-input",
        f'the input "{name}" is no batch of images or vectors of one fixed size',
        location=model.location,
        found=found,
        expected="numbers of shape batch x channels x height x width, or batch x features; only the batch may vary",
        hint="export the model with a fixed image size",
    )


def _view(name: str, shape: tuple[int, ...], model: OnnxModel, builder: NetworkBuilder) -> FeatureMap:
    """Declare the input; one that is only read through a transposition to channels first is declared so."""
    readers = [node for node in model.nodes if name in node.input]
    if len(shape) == 4 and readers and all(_puts_channels_first(node) for node in readers):
        channels_first = tuple(shape[axis] for axis in CHANNELS_FIRST)
        layer = builder.add_input(name, map_shape(channels_first))
        return FeatureMap(layer, channels_first).transpose(tuple(np.argsort(CHANNELS_FIRST).tolist()))
    return FeatureMap(builder.add_input(name, map_shape(shape)), shape)


def _puts_channels_first(node: Any) -> bool:
    return node.op_type == "Transpose" and any(
        attribute.name == "perm" and tuple(attribute.ints) == CHANNELS_FIRST for attribute in node.attribute
    )

"""Per-channel factors and offsets: into the parameters of the layer before, or a layer of their own."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.frontends.onnx.builder import Draft, FloatArray, NetworkBuilder, as_float32
from binpoint.compiler.frontends.onnx.values import FeatureMap, UnsupportedError

CONVOLUTIONS = ("conv2d", "depthwise", "linear")


def apply_affine(
    builder: NetworkBuilder, view: FeatureMap, scale: FloatArray | None, offset: FloatArray | None
) -> FeatureMap:
    """scale * x + offset, where both are constants that broadcast with the tensor and fit one value a channel.

    The constants go into the convolution, linear layer or batch norm before, if nothing else reads that one;
    otherwise they become a 1x1 depthwise convolution.
    """
    constants = [array for array in (scale, offset) if array is not None]
    try:
        shape = np.broadcast_shapes(view.shape, *(array.shape for array in constants))
    except ValueError:
        shape = ()
    if shape[-len(view.shape) :] != view.shape or any(size != 1 for size in shape[: -len(view.shape)]):
        shapes = ", ".join("x".join(map(str, array.shape)) or "scalar" for array in constants)
        raise UnsupportedError(f"the constant's shape ({shapes}) does not fit into {'x'.join(map(str, view.shape))}")
    view, channels = _by_channel(builder, view.reshape(shape), constants)
    vectors = iter(channels)
    factor = next(vectors) if scale is not None else None
    addend = next(vectors) if offset is not None else None
    if view.exclusive and absorb_affine(builder.drafts.get(view.layer), factor, addend):
        return view
    layer = _layer_of_its_own(builder, view.layer, factor, addend)
    return replace(view, layer=layer, exclusive=True)


def absorb_affine(draft: Draft | None, factor: FloatArray | None, addend: FloatArray | None) -> bool:
    """Put a factor and an addend a channel into a layer's parameters; False where the layer has no room for them."""
    if draft is None:
        return False
    kind, parameters = draft.layer.kind, draft.parameters
    if kind in CONVOLUTIONS:
        scaled, shifted = "weight", "bias"
        if addend is not None and "bias" not in parameters:
            parameters["bias"] = np.zeros(addend.shape, dtype=np.float32)
            attributes = MappingProxyType({**draft.layer.attributes, "bias": True})
            draft.layer = replace(draft.layer, attributes=attributes)
    elif kind == "batch_norm":
        scaled, shifted = "gamma", "beta"
    else:
        return False
    if factor is not None:
        for name in (scaled, shifted):
            if name in parameters:
                values = parameters[name]
                parameters[name] = as_float32(values * factor.reshape(-1, *(1,) * (values.ndim - 1)))
    if addend is not None:
        parameters[shifted] = as_float32(parameters[shifted] + addend)
    return True


def _by_channel(
    builder: NetworkBuilder, view: FeatureMap, constants: list[FloatArray]
) -> tuple[FeatureMap, list[NDArray[np.float64]]]:
    """The constants as one value a channel of the layer behind the view, which may need a flatten first."""
    vectors = [_channel_values(builder, view, array) for array in constants]
    if any(vector is None for vector in vectors):
        layer = builder.materialize(view)
        if layer != view.layer:
            view = FeatureMap(layer, view.shape, exclusive=False)
            vectors = [_channel_values(builder, view, array) for array in constants]
    known = [vector for vector in vectors if vector is not None]
    if len(known) < len(constants):
        raise UnsupportedError("its constant differs from pixel to pixel; a layer has one value a channel")
    return view, known


def _channel_values(builder: NetworkBuilder, view: FeatureMap, array: FloatArray) -> NDArray[np.float64] | None:
    """(C,) values, one a channel of the view's layer, or None where the constant varies inside a channel."""
    values = np.empty(view.size)
    spread = np.broadcast_to(array, view.shape).ravel()
    values[slice(None) if view.index is None else view.index] = spread
    rows = values.reshape(builder.shapes[view.layer][0], -1)
    return rows[:, 0] if (rows == rows[:, :1]).all() else None


def _layer_of_its_own(
    builder: NetworkBuilder, layer: str, factor: NDArray[np.float64] | None, addend: NDArray[np.float64] | None
) -> str:
    weight = np.ones(builder.shapes[layer][0]) if factor is None else factor
    parameters: dict[str, FloatArray] = {"weight": weight[:, None, None, None]}
    if addend is not None:
        parameters["bias"] = addend
    attributes = {"kernel": (1, 1), "bias": addend is not None}
    return builder.add_layer("depthwise", [layer], attributes, parameters, role="scale").layer

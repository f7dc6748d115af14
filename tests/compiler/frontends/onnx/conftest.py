"""What the tests of the ONNX importer share: a float evaluator, and a check against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from binpoint.compiler.frontends.onnx.importer import import_onnx
from binpoint.compiler.network import Layer, NetworkGraph

Array = NDArray[Any]
Parameters = Mapping[str, Array]


def evaluate(network: NetworkGraph, parameters: Parameters, feeds: Mapping[str, Array]) -> list[Array]:
    """The network's outputs in float64, straight from the graph; feature maps are (N, C, H, W)."""
    values = {
        name: np.asarray(feeds[name], np.float64).reshape(-1, *declared.shape)
        for name, declared in network.inputs.items()
    }
    for name in network.order:
        layer = network.layers[name]
        own = {key.rsplit(".", 1)[1]: array for key, array in parameters.items() if key.rsplit(".", 1)[0] == name}
        values[name] = _layer(layer, [values[source] for source in layer.inputs], own)
        assert values[name].shape[1:] == network.shapes[name], name
    return [values[name] for name in network.outputs]


def _layer(layer: Layer, inputs: Sequence[Array], own: Parameters) -> Array:
    x, attributes = inputs[0], layer.attributes
    match layer.kind:
        case "conv2d":
            return _convolution(x, own["weight"], own.get("bias"), attributes["groups"], attributes)
        case "depthwise":
            return _convolution(x, own["weight"], own.get("bias"), x.shape[1], attributes)
        case "linear":
            return (x[:, :, 0, 0] @ own["weight"].T.astype(np.float64) + own.get("bias", 0))[:, :, None, None]
        case "batch_norm":
            gamma, beta, mean, variance = (own[name][:, None, None].astype(np.float64) for name in _BATCH_NORM)
            return gamma * (x - mean) / np.sqrt(variance + float(attributes["epsilon"])) + beta
        case "max_pool":
            return _windows(x, attributes, -np.inf).max(axis=(-2, -1))
        case "avg_pool":
            inside = np.ones_like(x)
            counted = _windows(inside, attributes, float(attributes["include_padding"]))
            return _windows(x, attributes, 0).sum(axis=(-2, -1)) / counted.sum(axis=(-2, -1))
        case "upsample" | "resize":
            scale = attributes.get("scale", (1, 1))
            height, width = attributes.get("size", (x.shape[2] * scale[0], x.shape[3] * scale[1]))
            rows, columns = (np.arange(out) * size // out for out, size in ((height, x.shape[2]), (width, x.shape[3])))
            return x[:, :, rows][:, :, :, columns]
        case "reshape":
            return x.reshape(-1, *attributes["shape"])
        case "softmax":
            exponentials = np.exp(x - x.max(axis=1, keepdims=True))
            return exponentials / exponentials.sum(axis=1, keepdims=True)
        case "leaky_relu":
            return np.where(x >= 0, x, x * float(attributes["slope"]))
    return _PLAIN[layer.kind](*inputs)


_BATCH_NORM = ("gamma", "beta", "mean", "variance")
_PLAIN: Mapping[str, Callable[..., Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "global_max_pool": lambda x: x.max(axis=(2, 3), keepdims=True),
    "global_avg_pool": lambda x: x.mean(axis=(2, 3), keepdims=True),
    "add": lambda *maps: sum(maps),
    "concat": lambda *maps: np.concatenate(maps, axis=1),
    "flatten": lambda x: x.reshape(len(x), -1, 1, 1),
}


def _windows(x: Array, attributes: Mapping[str, Any], outside: float) -> Array:
    """(N, C, H_out, W_out, R, S): every window of the padded map."""
    top, left, bottom, right = attributes["padding"]
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=outside)
    (rows, columns), (down, across) = attributes.get("dilation", (1, 1)), attributes["stride"]
    extent = tuple((size - 1) * step + 1 for size, step in zip(attributes["kernel"], (rows, columns), strict=True))
    return sliding_window_view(padded, extent, axis=(2, 3))[:, :, ::down, ::across, ::rows, ::columns]


def _convolution(x: Array, weight: Array, bias: Array | None, groups: int, attributes: Mapping[str, Any]) -> Array:
    windows = _windows(x, attributes, 0)
    inputs, outputs = x.shape[1] // groups, len(weight) // groups
    parts = [
        np.tensordot(
            windows[:, group * inputs : (group + 1) * inputs],
            weight[group * outputs : (group + 1) * outputs].astype(np.float64),
            axes=((1, 4, 5), (1, 2, 3)),
        ).transpose(0, 3, 1, 2)
        for group in range(groups)
    ]
    return np.concatenate(parts, axis=1) + (0 if bias is None else bias[:, None, None])


@dataclass(frozen=True)
class Imported:
    """An imported network whose outputs have been found equal to ONNX Runtime's."""

    network: NetworkGraph
    parameters: dict[str, NDArray[np.float32]]

    @property
    def kinds(self) -> list[str]:
        """The layers' kinds in order."""
        return [self.network.layers[name].kind for name in self.network.order]

    @property
    def last(self) -> Mapping[str, Any]:
        """The attributes of the last layer."""
        return self.network.layers[self.network.order[-1]].attributes


class OnnxCase:
    """Builds models of a few nodes, imports them and compares with ONNX Runtime."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.random = np.random.default_rng(5)

    def floats(self, *shape: int) -> NDArray[np.float32]:
        """Random numbers around 0."""
        return self.random.standard_normal(shape).astype(np.float32)

    def model(
        self,
        nodes: Sequence[Any],
        shape: Sequence[int | str | None] = ("N", 3, 8, 9),
        constants: Mapping[str, Any] | None = None,
        *,
        opset: int = 13,
        outputs: Sequence[str] = ("y",),
        domains: Sequence[str] = (),
    ) -> Path:
        """Write a model with the input x; constants become initialisers. Lists are taken as int64."""
        from onnx import TensorProto, helper, numpy_helper, shape_inference

        arrays = {
            name: np.asarray(value, np.int64 if isinstance(value, list) else None)
            for name, value in (constants or {}).items()
        }
        graph = helper.make_graph(
            list(nodes),
            "case",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in arrays.items()],
        )
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        model = shape_inference.infer_shapes(helper.make_model(graph, opset_imports=imports, ir_version=8))
        for output in model.graph.output:
            output.type.tensor_type.shape.SetInParent()
        path = self.directory / "case.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    def check(self, *arguments: Any, fold_batch_norm: bool = False, **options: Any) -> Imported:
        """Import a model of `model(...)` and compare its outputs with ONNX Runtime's on random images."""
        return self.compare(self.model(*arguments, **options), fold_batch_norm=fold_batch_norm)

    def compare(self, path: Path, *, fold_batch_norm: bool = False, tolerance: float = 1e-4) -> Imported:
        """Import a file and compare its outputs with ONNX Runtime's on random images."""
        import onnxruntime

        network, parameters = import_onnx(path, fold_batch_norm=fold_batch_norm)
        assert {name: array.shape for name, array in parameters.items()} == network.parameter_shapes()
        assert all(array.dtype == np.float32 for array in parameters.values())
        onnxruntime.set_default_logger_severity(4)
        session = onnxruntime.InferenceSession(path)
        feeds, images = {}, {}
        for declared, name in zip(session.get_inputs(), network.inputs, strict=True):
            sizes = [size if isinstance(size, int) else 2 for size in declared.shape]
            feeds[declared.name] = images[name] = 3 * self.floats(*sizes)
            if network.inputs[name].shape != tuple(sizes[1:]) and len(sizes) == 4:
                images[name] = images[name].transpose(0, 3, 1, 2)
        expected = session.run(None, feeds)
        actual = evaluate(network, parameters, images)
        for ours, theirs in zip(actual, expected, strict=True):
            np.testing.assert_allclose(ours.ravel(), theirs.ravel(), rtol=tolerance, atol=tolerance)
        return Imported(network, parameters)


@pytest.fixture
def onnx_case(tmp_path: Path) -> OnnxCase:
    """Models of a few nodes, checked against ONNX Runtime."""
    return OnnxCase(tmp_path)

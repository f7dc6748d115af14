"""Reading an .onnx file: from bytes that may be anything to a checked graph of the nodes that matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.support.diagnostics import Location, UserError, user_error
from binpoint.support.files import read_bytes

OLDEST_OPSET = 7
"""The first operator set whose binary operators broadcast as NumPy does; older ones mean something else."""


@dataclass(frozen=True)
class OnnxModel:
    """A checked model.

    `inputs` are the declared inputs that are not initialisers, `initializers` the stored tensors by name,
    `nodes` what the outputs depend on, in data-flow order, and `uses` how often each value is read by these
    nodes or leaves the graph.
    """

    path: Path
    proto: Any
    opset: int
    inputs: tuple[Any, ...]
    outputs: tuple[str, ...]
    initializers: dict[str, Any]
    nodes: tuple[Any, ...]
    uses: Counter[str]

    @property
    def location(self) -> Location:
        """The file; ONNX has no lines."""
        return Location(str(self.path))

    def initializer(self, name: str) -> NDArray[Any]:
        """A stored tensor as an array. Raises UserError where its data do not fit its shape."""
        from onnx import numpy_helper

        try:
            return np.asarray(numpy_helper.to_array(self.initializers[name]))
        except Exception as error:  # the library raises many kinds: bad types, sizes, encodings
            raise user_error(
                "corrupt-tensor",
                f'the tensor "{name}" cannot be read',
                location=self.location,
                found=_first_line(error),
            ) from None


def read_model(path: Path) -> OnnxModel:
    """Read and check an .onnx file, external tensors included. Raises UserError for whatever is wrong with it."""
    proto = _parse(path)
    _load_external_tensors(proto, path)
    _check(proto, path)
    opset = _opset(proto, path)
    if proto.functions:
        from onnx.inliner import inline_local_functions

        proto = inline_local_functions(proto)
    graph = proto.graph
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    outputs = tuple(output.name for output in graph.output)
    nodes = _live_nodes(graph)
    return OnnxModel(
        path=path,
        proto=proto,
        opset=opset,
        inputs=tuple(declared for declared in graph.input if declared.name not in initializers),
        outputs=outputs,
        initializers=initializers,
        nodes=nodes,
        uses=Counter([name for node in nodes for name in node.input] + list(outputs)),
    )


def _parse(path: Path) -> Any:
    try:
        import onnx
    except ImportError:
        hint = "install it with: pip install 'binpoint[onnx]'"
        raise user_error("missing-package", "reading ONNX models needs the onnx package", hint=hint) from None
    data = read_bytes(path, "ONNX model")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception:  # protobuf raises DecodeError, from a module that has no types
        raise _not_onnx(path, "its bytes are no ONNX protobuf, or were cut off") from None
    if not data or not proto.HasField("graph"):
        raise _not_onnx(path, "an empty file" if not data else "a protobuf without a graph")
    if any(isinstance(name, bytes) for name in _names(proto.graph)):
        raise _not_onnx(path, "names that are not UTF-8 text")
    return proto


def _names(graph: Any) -> Iterator[str | bytes]:
    """All names of a graph; protobuf hands over as bytes what is not UTF-8."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    for named in (*graph.input, *graph.output, *graph.initializer):
        yield named.name


def _not_onnx(path: Path, found: str) -> UserError:
    return user_error(
        "not-onnx",
        "the file is not a readable ONNX model",
        location=Location(str(path)),
        found=found,
        expected="an ONNX model in binary protobuf form",
    )


def _load_external_tensors(proto: Any, path: Path) -> None:
    """Read the tensors that large models keep in files of their own beside the model."""
    from onnx import load_external_data_for_model

    try:
        load_external_data_for_model(proto, str(path.parent))
    except Exception as error:  # the library raises many kinds: all of them mean bad or missing files
        raise user_error(
            "external-data",
            "the model keeps tensors in other files, and they cannot be read",
            location=Location(str(path)),
            found=_first_line(error),
            hint="keep the data files beside the model, under the names it was exported with",
        ) from None


def _check(proto: Any, path: Path) -> None:
    from onnx import checker

    if proto.ByteSize() > checker.MAXIMUM_PROTOBUF:
        # The checker refuses to look at that much; the importer's own checks have to do.
        return
    try:
        checker.check_model(proto)
    except checker.ValidationError as error:
        raise user_error(
            "invalid-onnx", "the model breaks ONNX's own rules", location=Location(str(path)), found=_first_line(error)
        ) from None


def _opset(proto: Any, path: Path) -> int:
    """The version of the standard operator set; opset 0 stands for a model that uses none of it."""
    version = max((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if 0 < version < OLDEST_OPSET:
        raise user_error(
            "old-opset",
            "the model uses an operator set with other broadcasting rules",
            location=Location(str(path)),
            found=f"opset {version}",
            expected=f"opset {OLDEST_OPSET} or newer",
            hint="onnx.version_converter.convert_version(model, 13) converts most models",
        )
    return version


def _live_nodes(graph: Any) -> tuple[Any, ...]:
    """The nodes that the outputs depend on, in the file's order, which is a data-flow order."""
    needed = {output.name for output in graph.output}
    live = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            live.append(node)
            needed.update(node.input)
            needed.update(_captured(node))
    return tuple(reversed(live))


def _captured(node: Any) -> set[str]:
    """The names that the bodies of a control-flow node read."""
    bodies = [body for attribute in node.attribute for body in (attribute.g, *attribute.graphs)]
    return {name for body in bodies for inner in body.node for name in (*inner.input, *_captured(inner))}


def has_body(node: Any) -> bool:
    """Whether the node carries graphs of its own: If, Loop, Scan."""
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)


def type_name(number: int) -> str:
    """The name of an element type: float, int8."""
    from onnx import TensorProto

    if number not in TensorProto.DataType.values():
        return f"type {number}"
    return str(TensorProto.DataType.Name(number)).lower()


def inferred_shapes(model: OnnxModel) -> dict[str, tuple[int, ...]]:
    """The shapes, for a batch of one, that ONNX's own inference finds for floating-point tensors."""
    from onnx import TensorProto, shape_inference

    try:
        graph = shape_inference.infer_shapes(model.proto, data_prop=True).graph
    except Exception:  # whatever goes wrong in here, the importer only learns less
        return {}
    shapes = {}
    for info in (*graph.value_info, *graph.output):
        sizes = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        if info.type.tensor_type.elem_type == TensorProto.FLOAT and sizes and all(size > 0 for size in sizes[1:]):
            shapes[info.name] = (1, *sizes[1:])
    return shapes


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

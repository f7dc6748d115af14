"""Importing a model: what its inputs are declared to read, and where the files go."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from binpoint.compiler.frontends.dsl.parser import parse_network
from binpoint.compiler.importing import PixelScaling, import_model
from binpoint.support.diagnostics import UserError

IMAGENET = PixelScaling(
    Fraction(1, 255),
    tuple(map(Fraction, ("0.485", "0.456", "0.406"))),
    tuple(map(Fraction, ("0.229", "0.224", "0.225"))),
)


def model(path: Path, inputs: str) -> Path:
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", 3, 4, 4)) for name in inputs]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", 3, 4, 4))
    graph = helper.make_graph([helper.make_node("Sum", list(inputs), ["s"])], "sum", declared, [output])
    graph.node.append(helper.make_node("Relu", ["s"], ["y"]))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(made.SerializeToString())
    return path


def test_one_number_a_channel(tmp_path: Path) -> None:
    output = tmp_path / "net.bp"
    import_model(model(tmp_path / "one.onnx", "a"), output, tmp_path / "w.safetensors", scaling=IMAGENET)
    declared = parse_network(output).inputs["a"]
    assert (declared.scale, declared.mean, declared.deviation) == (IMAGENET.scale, IMAGENET.mean, IMAGENET.deviation)


def test_the_scaling_of_several_inputs_is_left_to_the_user(tmp_path: Path) -> None:
    source, output, weights = model(tmp_path / "two.onnx", "ab"), tmp_path / "net.bp", tmp_path / "w.safetensors"
    with pytest.raises(UserError, match="several-inputs"):
        import_model(source, output, weights, scaling=IMAGENET)
    assert not output.exists()
    assert not weights.exists()
    assert list(import_model(source, output, weights).inputs) == ["a", "b"]


def test_what_is_returned_is_what_was_written(tmp_path: Path) -> None:
    output = tmp_path / "net.bp"
    network = import_model(model(tmp_path / "two.onnx", "ab"), output, tmp_path / "w.safetensors")
    again = parse_network(output)
    assert (again.name, list(again.layers), again.outputs) == (network.name, list(network.layers), network.outputs)
    assert again.weights == tmp_path / str(network.weights)

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.helper import make_node

from binpoint.compiler.frontends.onnx.importer import import_onnx
from binpoint.support.diagnostics import UserError


@pytest.mark.parametrize(
    ("name", "expected"),
    [("input.1", "input_1"), ("gpu_0/data_0", "gpu_0_data_0"), ("0", "x_0"), ("input", "x"), ("", "x"), ("relu", "x")],
)
def test_input_names_become_names_of_the_language(onnx_case, name, expected):
    model = onnx.load(onnx_case.model([make_node("Relu", ["x"], ["y"])]))
    model.graph.input[0].name = name or "//"
    model.graph.node[0].input[0] = name or "//"
    path = onnx_case.directory / "named.onnx"
    path.write_bytes(model.SerializeToString())
    network, _ = import_onnx(path)
    assert list(network.inputs) == [expected]


@pytest.mark.parametrize("batch", ["N", None, 0, 1, 7])
def test_the_batch_is_dropped(onnx_case, batch):
    path = onnx_case.model([make_node("Relu", ["x"], ["y"])], (batch, 3, 8, 9))
    network, _ = import_onnx(path)
    assert network.inputs["x"].shape == (3, 8, 9)


@pytest.mark.parametrize(("shape", "expected"), [(("N", 12), (12, 1, 1)), (("N", 3, 5), (3, 5, 1))])
def test_vectors_and_sequences(onnx_case, shape, expected):
    network, _ = import_onnx(onnx_case.model([make_node("Relu", ["x"], ["y"])], shape))
    assert network.inputs["x"].shape == expected


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        (("N", 3, "height", "width"), "float tensor of shape Nx3xheightxwidth"),
        (("N",), "float tensor of shape N"),
        ((1, 3, 4, 5, 6), "float tensor of shape 1x3x4x5x6"),
        ((), "float tensor of shape unknown"),
        ((1, 3, 2**20, 2**20), "a feature map of 3x1048576x1048576 is too large"),
    ],
)
def test_inputs_that_are_no_images(onnx_case, shape, found):
    with pytest.raises(UserError) as caught:
        import_onnx(onnx_case.model([make_node("Relu", ["x"], ["y"])], shape))
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.found) == ("unsupported-input", found)


def two_inputs(path, batches, element_type=TensorProto.FLOAT):
    declared = [
        helper.make_tensor_value_info(name, element_type, (batch, 3, 4, 4))
        for name, batch in zip("ab", batches, strict=True)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, (batches[0], 3, 4, 4))
    graph = helper.make_graph([make_node("Add", ["a", "b"], ["y"])], "two", declared, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def test_several_inputs(onnx_case, tmp_path):
    imported = onnx_case.compare(two_inputs(tmp_path / "two.onnx", ("N", "N")))
    assert list(imported.network.inputs) == ["a", "b"]


def test_several_batches(tmp_path):
    with pytest.raises(UserError, match="batch-mismatch"):
        import_onnx(two_inputs(tmp_path / "two.onnx", (1, 2)))


def test_all_bad_inputs_are_reported(tmp_path):
    with pytest.raises(UserError) as caught:
        import_onnx(two_inputs(tmp_path / "two.onnx", (1, 1), TensorProto.INT64))
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["unsupported-input"] * 2


def test_initialisers_listed_as_inputs_are_no_inputs(onnx_case):
    path = onnx_case.model([make_node("Add", ["x", "b"], ["y"])], constants={"b": np.float32([1])}, opset=9)
    model = onnx.load(path)
    model.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, (1,)))
    path.write_bytes(model.SerializeToString())
    network, _ = import_onnx(path)
    assert list(network.inputs) == ["x"]

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from onnx.helper import make_node

from binpoint.compiler.frontends.onnx.importer import import_onnx
from binpoint.support.diagnostics import UserError


def constant(name, value):
    return make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value)))


def test_weights_from_constant_nodes(onnx_case):
    nodes = [constant("w", onnx_case.floats(4, 3, 3, 3)), make_node("Conv", ["x", "w"], ["y"])]
    assert onnx_case.check(nodes).kinds == ["conv2d"]


def test_weights_from_constant_of_shape(onnx_case):
    value = numpy_helper.from_array(np.float32([0.25]))
    nodes = [
        make_node("ConstantOfShape", ["s"], ["w"], value=value),
        make_node("ConstantOfShape", ["k"], ["b"]),
        make_node("Conv", ["x", "w", "b"], ["y"]),
    ]
    imported = onnx_case.check(nodes, constants={"s": [4, 3, 3, 3], "k": [4]})
    assert (imported.parameters["conv1.weight"] == 0.25).all()


def test_large_constants_take_no_memory(onnx_case):
    nodes = [make_node("ConstantOfShape", ["s"], ["w"]), make_node("Gemm", ["x", "w"], ["y"], transB=1)]
    path = onnx_case.model(nodes, (1, 4 * 10**4), {"s": [4 * 10**4, 4 * 10**4]})
    _, parameters = import_onnx(path)
    assert parameters["fc1.weight"].strides == (0, 0)


@pytest.mark.parametrize("opset", [9, 13])
def test_a_chain_of_constants(onnx_case, opset):
    axes = {"axes": [1, 2]} if opset < 13 else {}
    operands = ["g"] if opset < 13 else ["g", "axes"]
    nodes = [
        make_node("Unsqueeze", operands, ["u"], **axes),
        make_node("Mul", ["u", "u"], ["sq"]),
        make_node("Mul", ["x", "sq"], ["y"]),
    ]
    constants = {"g": onnx_case.floats(3)} | ({"axes": [1, 2]} if opset >= 13 else {})
    assert onnx_case.check(nodes, constants=constants, opset=opset).kinds == ["depthwise"]


@pytest.mark.parametrize(
    ("nodes", "constants", "reason"),
    [
        ([make_node("Reshape", ["w", "s"], ["r"])], {"s": [7]}, "cannot be computed with"),
        ([make_node("ConstantOfShape", ["s"], ["r"])], {"s": [-1]}, "shape is impossible"),
        ([make_node("Magic", ["w"], ["r"], domain="wizards")], {}, "wizards"),
    ],
)
def test_constants_that_cannot_be_computed(onnx_case, nodes, constants, reason):
    nodes = [*nodes, make_node("Add", ["x", "r"], ["y"])]
    path = onnx_case.model(nodes, constants={"w": onnx_case.floats(3)} | constants, domains=("wizards",))
    with pytest.raises(UserError, match=reason):
        import_onnx(path)

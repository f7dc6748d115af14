from __future__ import annotations

import numpy as np
import pytest
from onnx.helper import make_node

from binpoint.compiler.frontends.onnx.importer import import_onnx
from binpoint.support.diagnostics import UserError


@pytest.mark.parametrize(
    ("target", "kinds"),
    [
        ([0, -1], ["flatten"]),
        ([-1, 24], ["flatten"]),
        ([0, 4, 3, 2], ["reshape"]),
        ([0, 2, 0, -1], []),
        ([-1, 24, 1, 1], ["flatten"]),
        ([0, 24, 1], ["flatten"]),
    ],
)
def test_reshape(onnx_case, target, kinds):
    nodes = [make_node("Relu", ["x"], ["r"]), make_node("Reshape", ["r", "s"], ["y"])]
    assert onnx_case.check(nodes, ("N", 2, 3, 4), {"s": target}).kinds == ["relu", *kinds]


@pytest.mark.parametrize("batch", [1, 5])
def test_a_batch_in_the_shape(onnx_case, batch):
    nodes = [make_node("Relu", ["x"], ["r"]), make_node("Reshape", ["r", "s"], ["y"])]
    assert onnx_case.check(nodes, (batch, 2, 3, 4), {"s": [batch, 24]}).kinds == ["relu", "flatten"]


def test_a_batch_of_one_may_come_and_go(onnx_case):
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("Reshape", ["r", "flat"], ["v"]),
        make_node("Reshape", ["v", "back"], ["y"]),
    ]
    assert onnx_case.check(nodes, (1, 2, 3, 4), {"flat": [-1], "back": [1, 2, 3, 4]}).kinds == ["relu"]


def test_a_shape_computed_from_the_input(onnx_case):
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("Shape", ["r"], ["all"]),
        make_node("Gather", ["all", "zero"], ["n"]),
        make_node("Concat", ["n", "rest"], ["s"], axis=0),
        make_node("Reshape", ["r", "s"], ["y"]),
    ]
    assert onnx_case.check(nodes, ("N", 2, 3, 4), {"zero": [0], "rest": [-1]}).kinds == ["relu", "flatten"]


def test_part_of_a_shape_and_a_size(onnx_case):
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("Shape", ["r"], ["channels"], start=1, end=2),
        make_node("Size", ["r"], ["n"]),
        make_node("Unsqueeze", ["n", "zero"], ["elements"]),
        make_node("Div", ["elements", "channels"], ["pixels"]),
        make_node("Concat", ["one", "pixels", "channels", "one"], ["s"], axis=0),
        make_node("Reshape", ["r", "s"], ["y"]),
    ]
    imported = onnx_case.check(nodes, (1, 2, 3, 4), {"zero": [0], "one": [1]}, opset=15)
    assert imported.last["shape"] == (12, 2, 1)


@pytest.mark.parametrize("axis", [1, -3])
def test_flatten(onnx_case, axis):
    assert onnx_case.check([make_node("Flatten", ["x"], ["y"], axis=axis)]).kinds == ["flatten"]


@pytest.mark.parametrize("opset", [11, 13])
def test_squeeze_and_unsqueeze(onnx_case, opset):
    def node(operator, source, target, axes):
        if opset < 13:
            return make_node(operator, [source], [target], axes=axes)
        return make_node(operator, [source, "axes" + str(len(axes))], [target])

    nodes = [
        make_node("GlobalMaxPool", ["x"], ["p"]),
        node("Squeeze", "p", "s", [2, 3]),
        make_node("Relu", ["s"], ["r"]),
        node("Unsqueeze", "r", "u", [-1]),
        node("Squeeze", "u", "y", [2, 3][:1]),
    ]
    if opset >= 13:
        nodes[3] = make_node("Unsqueeze", ["r", "last"], ["u"])
    constants = {"axes2": [2, 3], "axes1": [2], "last": [-1]} if opset >= 13 else {}
    assert onnx_case.check(nodes, constants=constants, opset=opset).kinds == ["global_max_pool", "relu"]


def test_squeeze_of_everything(onnx_case):
    nodes = [make_node("GlobalMaxPool", ["x"], ["p"]), make_node("Squeeze", ["p"], ["y"])]
    assert onnx_case.check(nodes, (1, 3, 4, 5)).kinds == ["global_max_pool"]


def test_a_channel_shuffle_becomes_a_convolution(onnx_case):
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("Reshape", ["r", "groups"], ["g"]),
        make_node("Transpose", ["g"], ["t"], perm=[0, 2, 1, 3, 4]),
        make_node("Reshape", ["t", "channels"], ["s"]),
        make_node("Conv", ["s", "w"], ["y"], group=6),
    ]
    constants = {"groups": [0, 2, 3, 4, 5], "channels": [0, 6, 4, 5], "w": onnx_case.floats(6, 1, 3, 3)}
    imported = onnx_case.check(nodes, ("N", 6, 4, 5), constants)
    assert imported.kinds == ["relu", "conv2d", "depthwise"]
    order = imported.parameters["shuffle1.weight"].argmax(axis=1).ravel()
    assert order.tolist() == [0, 3, 1, 4, 2, 5]


def test_channels_last_models_become_channels_first(onnx_case):
    nodes = [
        make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        make_node("Conv", ["t", "w"], ["c"]),
        make_node("Flatten", ["c"], ["y"]),
    ]
    imported = onnx_case.check(nodes, ("N", 5, 6, 3), {"w": onnx_case.floats(4, 3, 3, 3)})
    assert imported.network.inputs["x"].shape == (3, 5, 6)
    assert imported.kinds == ["conv2d", "flatten"]


def test_an_output_with_channels_last_stays_channels_first(onnx_case):
    nodes = [make_node("Relu", ["x"], ["r"]), make_node("Transpose", ["r"], ["y"], perm=[0, 2, 3, 1])]
    network, _ = import_onnx(onnx_case.model(nodes))
    assert network.outputs == ("relu1",)


@pytest.mark.parametrize(
    ("nodes", "shape", "reason"),
    [
        ([make_node("Reshape", ["x", "s"], ["y"])], (1, 2, 3, 4), "does not hold the 24 elements"),
        ([make_node("Reshape", ["x", "zeros"], ["y"])], (1, 2), "copies sizes"),
        ([make_node("Reshape", ["x", "merged"], ["y"])], ("N", 2, 3, 4), "merges the batch axis"),
        ([make_node("Flatten", ["x"], ["y"], axis=2)], ("N", 2, 3, 4), "merges the batch axis"),
        ([make_node("Transpose", ["x"], ["y"])], ("N", 2, 3, 4), "moves the batch axis"),
        ([make_node("Transpose", ["x"], ["y"], perm=[0, 1, 3, 2])], ("N", 2, 3, 4), "transposed"),
        ([make_node("Transpose", ["x"], ["y"], perm=[0, 1])], ("N", 2, 3, 4), "does not fit"),
        ([make_node("Squeeze", ["x", "one"], ["y"])], ("N", 2, 3, 4), "not all of size 1"),
        ([make_node("Pad", ["x", "pads"], ["y"], mode="reflect")], ("N", 2, 3, 4), "zeros only"),
        ([make_node("Pad", ["x", "pads", "half"], ["y"])], ("N", 2, 3, 4), "zeros only"),
        ([make_node("Pad", ["x", "channels"], ["y"])], ("N", 2, 3, 4), "only height and width"),
        ([make_node("Pad", ["x", "crop"], ["y"])], ("N", 2, 3, 4), "only height and width"),
        ([make_node("Pad", ["x", "one"], ["y"])], ("N", 2, 3, 4), "1 pads for 4 axes"),
    ],
)
def test_refused_layouts(onnx_case, nodes, shape, reason):
    constants = {
        "s": [1, 5],
        "zeros": [0, 0, 0],
        "merged": [-1, 4],
        "one": [1],
        "pads": [0, 0, 1, 1, 0, 0, 1, 1],
        "channels": [0, 1, 0, 0, 0, 0, 0, 0],
        "crop": [0, 0, -1, 0, 0, 0, 0, 0],
        "half": np.float32(0.5),
    }
    used = {name: value for name, value in constants.items() if name in nodes[0].input}
    with pytest.raises(UserError, match=reason):
        import_onnx(onnx_case.model(nodes, shape, used))


def test_pads_for_named_axes(onnx_case):
    nodes = [make_node("Pad", ["x", "p", "", "a"], ["t"]), make_node("Conv", ["t", "w"], ["y"])]
    constants = {"p": [1, 2, 3, 0], "a": [-1, 2], "w": onnx_case.floats(2, 3, 3, 3)}
    assert onnx_case.check(nodes, constants=constants, opset=18).last["padding"] == (2, 1, 0, 3)


def test_pads_as_attributes(onnx_case):
    nodes = [
        make_node("Pad", ["x"], ["t"], pads=[0, 0, 1, 0, 0, 0, 0, 2]),
        make_node("Conv", ["t", "w"], ["y"]),
    ]
    imported = onnx_case.check(nodes, constants={"w": onnx_case.floats(2, 3, 3, 3)}, opset=9)
    assert imported.last["padding"] == (1, 0, 0, 2)


def test_pads_of_nothing(onnx_case):
    nodes = [make_node("Pad", ["x", "p"], ["t"]), make_node("Relu", ["t"], ["y"])]
    assert onnx_case.check(nodes, constants={"p": [0] * 8}).kinds == ["relu"]

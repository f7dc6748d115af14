from __future__ import annotations

import numpy as np
import pytest
from onnx.helper import make_node

from binpoint.compiler.frontends.onnx.importer import import_onnx
from binpoint.support.diagnostics import UserError


def conv(*inputs, **attributes):
    return make_node("Conv", ["x", *inputs], ["y"], **attributes)


@pytest.mark.parametrize(
    ("attributes", "weight", "kind"),
    [
        ({}, (4, 3, 3, 3), "conv2d"),
        ({"pads": [1, 0, 2, 3]}, (4, 3, 3, 2), "conv2d"),
        ({"strides": [2, 1], "dilations": [1, 3]}, (4, 3, 3, 2), "conv2d"),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (4, 3, 3, 3), "conv2d"),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (4, 3, 4, 4), "conv2d"),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (4, 3, 1, 1), "conv2d"),
        ({"auto_pad": "VALID"}, (4, 3, 2, 5), "conv2d"),
        ({"group": 3}, (3, 1, 3, 3), "depthwise"),
        ({"group": 3, "pads": [1, 1, 1, 1]}, (6, 1, 3, 3), "depthwise"),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_convolution(onnx_case, attributes, weight, kind, bias):
    constants = {"w": onnx_case.floats(*weight)} | ({"b": onnx_case.floats(weight[0])} if bias else {})
    imported = onnx_case.check([conv(*constants, **attributes)], constants=constants)
    assert imported.kinds == [kind]
    assert imported.last["bias"] is bias


def test_grouped_convolution(onnx_case):
    imported = onnx_case.check([conv("w", group=2)], ("N", 4, 5, 5), {"w": onnx_case.floats(6, 2, 3, 3)})
    assert imported.kinds == ["conv2d"]
    assert imported.last["groups"] == 2


def test_same_padding_of_a_dilated_convolution(onnx_case):
    # ONNX Runtime refuses this, so the padding that keeps the size is worked out by hand: 2 * (3 - 1) in all.
    node = conv("w", auto_pad="SAME_UPPER", dilations=[2, 2])
    path = onnx_case.model([node], constants={"w": onnx_case.floats(4, 3, 3, 3)})
    network, _ = import_onnx(path)
    assert network.layers["conv1"].attributes["padding"] == (2, 2, 2, 2)


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 3]},
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 0, 0], "ceil_mode": 1},
        {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1},
        {"kernel_shape": [1, 1], "strides": [2, 2]},
    ],
)
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("size", [(8, 9), (7, 10)])
def test_pools(onnx_case, operator, attributes, size):
    imported = onnx_case.check([make_node(operator, ["x"], ["y"], **attributes)], ("N", 3, *size), opset=19)
    assert imported.kinds == [{"MaxPool": "max_pool", "AveragePool": "avg_pool"}[operator]]


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 1]])
@pytest.mark.parametrize("count", [0, 1])
def test_average_pool_counts_padding_as_asked(onnx_case, pads, count):
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pads, "count_include_pad": count}
    imported = onnx_case.check([make_node("AveragePool", ["x"], ["y"], **attributes)], ("N", 2, 7, 7))
    assert imported.last["include_padding"] is bool(count and any(pads))


def test_ceil_mode_without_padding_counts_no_zeros(onnx_case):
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1}
    imported = onnx_case.check([make_node("AveragePool", ["x"], ["y"], **attributes)], ("N", 2, 8, 8), opset=19)
    assert imported.last["padding"] == (0, 0, 1, 1)
    assert imported.last["include_padding"] is False


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[2, 2]), "dilated pools"),
        (make_node("MaxPool", ["x"], ["y", "y2"], kernel_shape=[2, 2]), "second result"),
        (make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], pads=[2, 2, 2, 2]), "padding of a pool"),
        (
            make_node(
                "AveragePool",
                ["x"],
                ["y"],
                kernel_shape=[3, 3],
                strides=[2, 2],
                pads=[1, 1, 0, 0],
                ceil_mode=1,
                count_include_pad=1,
            ),
            "ceil_mode",
        ),
        (make_node("MaxPool", ["x"], ["y"], kernel_shape=[9, 9]), "does not fit"),
        (
            make_node("MaxPool", ["x"], ["y"], kernel_shape=[1, 1], strides=[4, 4], auto_pad="SAME_UPPER"),
            "padding of -2",
        ),
        (make_node("ReduceMean", ["x"], ["y"], axes=[1]), "reduces axes"),
        (make_node("ReduceMean", ["x"], ["y"]), "reduces axes"),
    ],
)
def test_refused_windows(onnx_case, node, reason):
    outputs = ["y", "y2"] if len(node.output) > 1 else ["y"]
    with pytest.raises(UserError, match=reason):
        import_onnx(onnx_case.model([node], ("N", 3, 7, 8), outputs=outputs))


@pytest.mark.parametrize("rank", [3, 5])
def test_other_dimensions_are_refused(onnx_case, rank):
    extra = (8,) * (rank - 2)
    shape, weight = ("N", 3, *extra), onnx_case.floats(4, 3, *(3 for _ in extra))
    with pytest.raises(UserError, match="1-D" if rank == 3 else "unsupported-input"):
        import_onnx(onnx_case.model([conv("w")], shape, {"w": weight}))


def test_computed_weights_are_refused(onnx_case):
    with pytest.raises(UserError, match="weight depends on the network's inputs"):
        import_onnx(onnx_case.model([make_node("Conv", ["x", "x"], ["y"])], (1, 3, 4, 4)))


@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pools(onnx_case, operator):
    onnx_case.check([make_node(operator, ["x"], ["y"])])


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize(("opset", "axes"), [(13, [2, 3]), (13, [-1, -2]), (18, [2, 3])])
def test_mean_over_height_and_width(onnx_case, opset, axes, keep):
    axes = {"axes": axes}
    inputs, attributes = (["x", "axes"], {}) if opset >= 18 else (["x"], axes)
    node = make_node("ReduceMean", inputs, ["y"], keepdims=keep, **attributes)
    imported = onnx_case.check([node], constants=axes if opset >= 18 else {}, opset=opset)
    assert imported.kinds == ["global_avg_pool"]


def test_mean_of_a_map_with_channels_last(onnx_case):
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
        make_node("ReduceMean", ["t"], ["y"], axes=[1, 2], keepdims=0),
    ]
    assert onnx_case.check(nodes).kinds == ["relu", "global_avg_pool"]


def pad(source, target, pads):
    return make_node("Pad", [source, pads], [target])


PADS = {"p": [0, 0, 1, 0, 0, 0, 2, 1], "q": [0, 0, 0, 1, 0, 0, 1, 0]}


def test_pad_goes_into_the_next_convolution(onnx_case):
    nodes = [pad("x", "p1", "p"), pad("p1", "p2", "q"), make_node("Conv", ["p2", "w"], ["y"], pads=[1, 1, 0, 0])]
    imported = onnx_case.check(nodes, constants=PADS | {"w": onnx_case.floats(4, 3, 3, 3)})
    assert imported.kinds == ["conv2d"]
    assert imported.last["padding"] == (2, 2, 3, 1)


def test_pad_before_same_padding(onnx_case):
    nodes = [pad("x", "p1", "p"), make_node("Conv", ["p1", "w"], ["y"], auto_pad="SAME_UPPER", strides=[2, 2])]
    assert onnx_case.check(nodes, constants=PADS | {"w": onnx_case.floats(4, 3, 3, 3)}).kinds == ["conv2d"]


def test_pad_goes_into_an_average_pool_that_counts_it(onnx_case):
    nodes = [pad("x", "p1", "p"), make_node("AveragePool", ["p1"], ["y"], kernel_shape=[3, 3])]
    imported = onnx_case.check(nodes, constants=PADS)
    assert imported.kinds == ["avg_pool"]
    assert imported.last["include_padding"] is True


def test_pad_before_an_average_pool_with_padding_of_its_own(onnx_case):
    nodes = [pad("x", "p1", "p"), make_node("AveragePool", ["p1"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])]
    assert onnx_case.check(nodes, constants=PADS).kinds == ["depthwise", "avg_pool"]


def test_pad_goes_into_a_max_pool_only_where_nothing_is_negative(onnx_case):
    pool = make_node("MaxPool", ["p1"], ["y"], kernel_shape=[3, 3], strides=[2, 2])
    after_relu = [make_node("Relu", ["x"], ["r"]), pad("r", "p1", "p"), pool]
    assert onnx_case.check(after_relu, constants=PADS).kinds == ["relu", "max_pool"]
    assert onnx_case.check([pad("x", "p1", "p"), pool], constants=PADS).kinds == ["depthwise", "max_pool"]


def test_pad_that_several_read_becomes_one_layer(onnx_case):
    nodes = [pad("x", "p1", "p"), make_node("Relu", ["p1"], ["r"]), make_node("Add", ["r", "p1"], ["y"])]
    imported = onnx_case.check(nodes, constants=PADS)
    assert imported.kinds == ["depthwise", "relu", "add"]
    assert np.array_equal(imported.parameters["pad1.weight"], np.ones((3, 1, 1, 1)))

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_node

from binpoint.compiler.frontends.onnx.importer import import_onnx
from binpoint.support.diagnostics import UserError

LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(("operator", "kind"), [("Relu", "relu"), ("Sigmoid", "sigmoid"), ("LeakyRelu", "leaky_relu")])
def test_activations(onnx_case, operator, kind):
    assert onnx_case.check([make_node(operator, ["x"], ["y"])]).kinds == [kind]


def test_the_slope_is_the_decimal_that_was_meant(onnx_case):
    imported = onnx_case.check([make_node("LeakyRelu", ["x"], ["y"], alpha=0.1)])
    assert imported.last["slope"] == Fraction(1, 10)


def test_a_slope_that_the_language_has_not(onnx_case):
    with pytest.raises(UserError, match="its slope is 2"):
        import_onnx(onnx_case.model([make_node("LeakyRelu", ["x"], ["y"], alpha=2.0)]))


@pytest.mark.parametrize(
    ("low", "high", "kinds"),
    [
        (0.0, 6.0, ["relu6"]),
        (0.0, None, ["relu"]),
        (0.0, LARGEST, ["relu"]),
        (0.0, np.inf, ["relu"]),
        (None, None, []),
        (-LARGEST, LARGEST, []),
    ],
)
@pytest.mark.parametrize("opset", [10, 13])
def test_clip(onnx_case, low, high, kinds, opset):
    limits = {name: np.float32(value) for name, value in (("min", low), ("max", high)) if value is not None}
    if opset < 11:
        node = make_node("Clip", ["x"], ["c"], **{name: float(value) for name, value in limits.items()})
    else:
        node = make_node("Clip", ["x", *(name if name in limits else "" for name in ("min", "max"))], ["c"])
    constants = limits if opset >= 11 else {}
    imported = onnx_case.check([node, make_node("Sigmoid", ["c"], ["y"])], constants=constants, opset=opset)
    assert imported.kinds == [*kinds, "sigmoid"]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 6.0), (None, 6.0)])
def test_other_clips_are_refused(onnx_case, low, high):
    limits = {name: value for name, value in (("min", low), ("max", high)) if value is not None}
    with pytest.raises(UserError, match="it clips to"):
        import_onnx(onnx_case.model([make_node("Clip", ["x"], ["y"], **limits)], opset=10))


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1), (1, 1, 1), (), (4, 6, 7)])
def test_an_added_constant_becomes_the_bias(onnx_case, shape):
    bias = np.broadcast_to(onnx_case.floats(4, 1, 1), shape) if shape == (4, 6, 7) else onnx_case.floats(*shape)
    nodes = [make_node("Conv", ["x", "w"], ["c"]), make_node("Add", ["c", "b"], ["y"])]
    constants = {"w": onnx_case.floats(4, 3, 3, 3), "b": np.asarray(bias)}
    imported = onnx_case.check(nodes, constants=constants)
    assert imported.kinds == ["conv2d"]
    assert imported.last["bias"] is True


def test_an_added_constant_joins_a_bias(onnx_case):
    nodes = [make_node("Conv", ["x", "w", "a"], ["c"]), make_node("Sum", ["b", "c", "b"], ["y"])]
    constants = {"w": onnx_case.floats(4, 3, 3, 3), "a": onnx_case.floats(4), "b": onnx_case.floats(4, 1, 1)}
    assert onnx_case.check(nodes, constants=constants).kinds == ["conv2d"]


def test_a_bias_after_flatten(onnx_case):
    nodes = [make_node("Flatten", ["x"], ["f"]), make_node("Add", ["f", "b"], ["y"])]
    imported = onnx_case.check(nodes, ("N", 2, 2, 3), {"b": onnx_case.floats(12)})
    assert imported.kinds == ["flatten", "depthwise"]


def test_a_bias_one_a_channel_after_flatten_needs_no_flatten(onnx_case):
    nodes = [
        make_node("Conv", ["x", "w"], ["c"]),
        make_node("Flatten", ["c"], ["f"]),
        make_node("Add", ["f", "b"], ["y"]),
    ]
    constants = {"w": onnx_case.floats(4, 2, 1, 1), "b": onnx_case.floats(4).repeat(6)}
    assert onnx_case.check(nodes, ("N", 2, 2, 3), constants).kinds == ["conv2d", "flatten"]


def test_constants_stay_out_of_a_layer_that_others_read(onnx_case):
    nodes = [
        make_node("Conv", ["x", "w"], ["c"]),
        make_node("Mul", ["c", "k"], ["m"]),
        make_node("Add", ["c", "m"], ["y"]),
    ]
    constants = {"w": onnx_case.floats(4, 3, 3, 3), "k": onnx_case.floats(4, 1, 1)}
    assert onnx_case.check(nodes, constants=constants).kinds == ["conv2d", "depthwise", "add"]


@pytest.mark.parametrize("before", ["Conv", "Relu", "BatchNormalization"])
@pytest.mark.parametrize(
    "make",
    [
        lambda s: make_node("Mul", [s, "k"], ["y"]),
        lambda s: make_node("Mul", ["k", s], ["y"]),
        lambda s: make_node("Div", [s, "k"], ["y"]),
        lambda s: make_node("Sub", [s, "k"], ["y"]),
        lambda s: make_node("Sub", ["k", s], ["y"]),
        lambda s: make_node("Add", ["k", s], ["y"]),
    ],
)
def test_arithmetic_with_constants(onnx_case, before, make):
    constants = {"k": onnx_case.floats(4, 1, 1), "w": onnx_case.floats(4, 4, 1, 1)}
    constants |= {name: onnx_case.floats(4) for name in "gbm"} | {"v": np.abs(onnx_case.floats(4))}
    operands = {"Conv": ["w"], "Relu": [], "BatchNormalization": list("gbmv")}[before]
    used = {name: constants[name] for name in ("k", *operands)}
    imported = onnx_case.check([make_node(before, ["x", *operands], ["c"]), make("c")], ("N", 4, 5, 5), used)
    expected = {"Conv": ["conv2d"], "Relu": ["relu", "depthwise"], "BatchNormalization": ["batch_norm"]}
    assert imported.kinds == expected[before]


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (make_node("Mul", ["x", "x"], ["y"]), "product of two feature maps"),
        (make_node("Sub", ["x", "x"], ["y"]), "difference of two feature maps"),
        (make_node("Div", ["k", "x"], ["y"]), "divide by a feature map"),
        (make_node("Div", ["x", "zero"], ["y"]), "divides by zero"),
        (make_node("Add", ["x", "pixels"], ["y"]), "from pixel to pixel"),
        (make_node("Add", ["x", "larger"], ["y"]), "does not fit"),
        (make_node("Add", ["x", "nan"], ["y"]), "NaN or infinity"),
        (make_node("Mul", ["x", "bytes"], ["y"]), "is int8; only floating-point"),
        (make_node("Concat", ["x", "x"], ["y"], axis=2), "joins along axis 2"),
        (make_node("Concat", ["x", "x"], ["y"], axis=7), "axis 7 does not exist"),
        (make_node("Concat", ["x", "pixels"], ["y"], axis=1), "input 1 is a constant"),
        (make_node("Softmax", ["x"], ["y"], axis=0), "over the images"),
        (make_node("Softmax", ["x"], ["y"], axis=-1), "transposed"),
        (make_node("LogSoftmax", ["x"], ["y"], axis=1), "without the logarithm"),
        (make_node("Cast", ["x"], ["y"], to=TensorProto.INT32), "casts to int32"),
        (make_node("Dropout", ["x", "", "true"], ["y"]), "training mode"),
    ],
)
def test_refused_elementwise(onnx_case, node, reason):
    constants = {
        "k": onnx_case.floats(3, 1, 1),
        "zero": np.float32(0),
        "pixels": onnx_case.floats(1, 3, 4, 5),
        "larger": onnx_case.floats(2, 3, 4, 5),
        "nan": np.float32([np.nan]),
        "bytes": np.ones(3, np.int8)[:, None, None],
        "true": np.bool_(True),
    }
    used = {name: value for name, value in constants.items() if name in node.input}
    with pytest.raises(UserError, match=reason):
        import_onnx(onnx_case.model([node], (1, 3, 4, 5), used))


def batch_norm(source, target, **attributes):
    return make_node("BatchNormalization", [source, *"gbmv"], [target], **attributes)


def statistics(onnx_case, channels):
    values = {name: onnx_case.floats(channels) for name in "gbm"}
    return values | {"v": np.abs(onnx_case.floats(channels)) + np.float32(0.1)}


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize(
    ("operator", "weight", "attributes"),
    [("Conv", (4, 3, 3, 3), {}), ("Conv", (6, 1, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]})],
)
def test_batch_norm_is_kept_or_folded(onnx_case, fold, operator, weight, attributes):
    nodes = [make_node(operator, ["x", "w"], ["c"], **attributes), batch_norm("c", "y", epsilon=1e-3)]
    constants = {"w": onnx_case.floats(*weight)} | statistics(onnx_case, weight[0])
    imported = onnx_case.check(nodes, constants=constants, fold_batch_norm=fold)
    if fold:
        assert len(imported.kinds) == 1
    else:
        assert imported.kinds[1:] == ["batch_norm"]
        assert imported.last["epsilon"] == Fraction(1, 1000)
        np.testing.assert_array_equal(imported.parameters["bn1.variance"], constants["v"])


def test_batch_norm_is_folded_into_linear_layers(onnx_case):
    nodes = [make_node("Gemm", ["x", "w"], ["c"]), batch_norm("c", "y")]
    constants = {"w": onnx_case.floats(6, 4)} | statistics(onnx_case, 4)
    assert onnx_case.check(nodes, ("N", 6), constants, fold_batch_norm=True).kinds == ["linear"]


def test_batch_norm_stays_where_nothing_can_take_it(onnx_case):
    nodes = [make_node("Relu", ["x"], ["c"]), batch_norm("c", "y")]
    imported = onnx_case.check(nodes, constants=statistics(onnx_case, 3), fold_batch_norm=True)
    assert imported.kinds == ["relu", "batch_norm"]


def test_batch_norm_stays_where_the_convolution_is_read_twice(onnx_case):
    nodes = [
        make_node("Conv", ["x", "w"], ["c"]),
        batch_norm("c", "n"),
        make_node("Add", ["c", "n"], ["y"]),
    ]
    constants = {"w": onnx_case.floats(4, 3, 1, 1)} | statistics(onnx_case, 4)
    imported = onnx_case.check(nodes, constants=constants, fold_batch_norm=True)
    assert imported.kinds == ["conv2d", "batch_norm", "add"]


@pytest.mark.parametrize(
    ("attributes", "change", "reason"),
    [
        ({"training_mode": 1}, {}, "training mode"),
        ({}, {"v": np.float32([1, -1, 1])}, "variance plus epsilon is not positive"),
        ({}, {"m": np.zeros(4, np.float32)}, "one value for each of 3 channels"),
    ],
)
def test_refused_batch_norms(onnx_case, attributes, change, reason):
    path = onnx_case.model([batch_norm("x", "y", **attributes)], constants=statistics(onnx_case, 3) | change, opset=15)
    with pytest.raises(UserError, match=reason):
        import_onnx(path)


def test_sums_of_maps(onnx_case):
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("Sum", ["x", "r", "x"], ["s"]),
        make_node("Add", ["s", "r"], ["y"]),
    ]
    assert onnx_case.check(nodes).kinds == ["relu", "add", "add"]


def test_a_sum_of_differently_shaped_views(onnx_case):
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("Reshape", ["x", "s"], ["v"]),
        make_node("Reshape", ["r", "s"], ["u"]),
        make_node("GlobalAveragePool", ["v"], ["g"]),
        make_node("Add", ["u", "v"], ["y"]),
    ]
    imported = onnx_case.check(nodes, ("N", 4, 2, 3), {"s": [0, 2, 4, 3]}, outputs=("y", "g"))
    assert imported.kinds.count("reshape") == 2


def test_broadcast_between_maps_is_refused(onnx_case):
    nodes = [make_node("GlobalAveragePool", ["x"], ["g"]), make_node("Add", ["x", "g"], ["y"])]
    with pytest.raises(UserError, match="1x3x8x9 \\+ 1x3x1x1"):
        import_onnx(onnx_case.model(nodes))


def test_concat(onnx_case):
    nodes = [make_node("Relu", ["x"], ["r"]), make_node("Concat", ["x", "r", "x"], ["y"], axis=-3)]
    assert onnx_case.check(nodes).kinds == ["relu", "concat"]


def test_concat_of_vectors(onnx_case):
    nodes = [make_node("Flatten", ["x"], ["f"]), make_node("Concat", ["f", "f"], ["y"], axis=-1)]
    assert onnx_case.check(nodes).kinds == ["flatten", "concat"]


@pytest.mark.parametrize(
    ("shape", "opset", "axis", "kinds"),
    [
        (("N", 10), 13, -1, ["softmax"]),
        (("N", 10), 9, 1, ["softmax"]),
        (("N", 5, 1, 1), 9, 1, ["softmax"]),
        (("N", 5, 3, 4), 13, 1, ["softmax"]),
        (("N", 5, 3, 4), 13, -3, ["softmax"]),
        (("N", 5, 3, 4), 9, 1, ["flatten", "softmax", "reshape"]),
    ],
)
def test_softmax(onnx_case, shape, opset, axis, kinds):
    imported = onnx_case.check([make_node("Softmax", ["x"], ["y"], axis=axis)], shape, opset=opset)
    assert imported.kinds == kinds


def test_softmax_over_channels_last(onnx_case):
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
        make_node("Softmax", ["t"], ["s"], axis=-1),
        make_node("Transpose", ["s"], ["y"], perm=[0, 3, 1, 2]),
    ]
    assert onnx_case.check(nodes).kinds == ["relu", "softmax"]


def test_nodes_that_do_nothing(onnx_case):
    nodes = [
        make_node("Identity", ["x"], ["i"]),
        make_node("Dropout", ["i"], ["d"]),
        make_node("Cast", ["d"], ["c"], to=TensorProto.FLOAT),
        make_node("Concat", ["c"], ["o"], axis=1),
        make_node("Relu", ["o"], ["y"]),
    ]
    assert onnx_case.check(nodes).kinds == ["relu"]

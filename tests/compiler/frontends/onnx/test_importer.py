"""Whole models: the ones that the language can express, and what is said about the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.helper import make_node

from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.frontends.dsl.printer import print_network
from binpoint.compiler.frontends.onnx.importer import import_onnx
from binpoint.support.diagnostics import UserError

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
MNIST = Path(__file__).parents[4] / "examples/models/mnist-conv.onnx"

IMPORTED = {
    "light_densenet121": {"conv2d": 121, "batch_norm": 121, "concat": 58},
    "light_inception_v2": {"conv2d": 69, "batch_norm": 69, "concat": 10},
    "light_resnet50": {"conv2d": 53, "batch_norm": 53, "add": 16},
    "light_shufflenet": {"conv2d": 33 + 16, "depthwise": 16, "batch_norm": 49},
    "light_squeezenet": {"conv2d": 26, "concat": 8},
    "light_vgg19": {"conv2d": 16, "linear": 3},
}
"""Models inside the onnx package, all weights constant, and how many layers of some kinds they have."""

REFUSED = {"light_bvlc_alexnet": 2, "light_inception_v1": 2, "light_zfnet512": 2}
"""The others, and how many of their nodes are refused."""


def kinds(network):
    return Counter(layer.kind for layer in network.layers.values())


@pytest.mark.parametrize("name", IMPORTED)
def test_models_within_the_language(name):
    network, parameters = import_onnx(LIGHT / f"{name}.onnx")
    assert kinds(network).items() >= IMPORTED[name].items()
    assert {key: array.shape for key, array in parameters.items()} == network.parameter_shapes()
    again = parse_network_text(print_network(network), name, None)
    assert [(layer.name, layer.kind, layer.inputs, dict(layer.attributes)) for layer in again.layers.values()] == [
        (layer.name, layer.kind, layer.inputs, dict(layer.attributes)) for layer in network.layers.values()
    ]
    assert (again.name, list(again.inputs), again.outputs) == (network.name, list(network.inputs), network.outputs)


@pytest.mark.parametrize("name", REFUSED)
def test_models_outside_the_language(name):
    with pytest.raises(UserError) as caught:
        import_onnx(LIGHT / f"{name}.onnx")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.rows[0] == ("node", "operator", "why")
    assert [row[1] for row in diagnostic.rows[1:]] == ["LRN"] * REFUSED[name]


def with_random_weights(name: str, size: int, path: Path) -> Path:
    """A light model with random weights in place of the constant ones, for images of another size."""
    random = np.random.default_rng(3)
    model = onnx.load(LIGHT / f"{name}.onnx")
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    variances = {node.input[4] for node in model.graph.node if node.op_type == "BatchNormalization"}
    nodes, weights = [], []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            nodes.append(node)
            continue
        shape = tuple(shapes[node.input[0]])
        values = random.standard_normal(shape) * (2 / max(1, np.prod(shape[1:]))) ** 0.5
        values = np.abs(values) + 0.5 if node.output[0] in variances else values
        weights.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    if nodes[-1].op_type == "Softmax":
        # A softmax of large scores would hide differences.
        nodes[-1] = make_node("Identity", nodes[-1].input[:1], nodes[-1].output)
    declared = next(each for each in model.graph.input if each.name not in shapes)
    for axis in (2, 3):
        declared.type.tensor_type.shape.dim[axis].dim_value = size
    graph = helper.make_graph(nodes, name, [declared], model.graph.output, weights)
    for tensor in model.graph.initializer:
        if any(tensor.name in node.input for node in nodes):
            graph.initializer.append(tensor)
    path.write_bytes(helper.make_model(graph, opset_imports=model.opset_import, ir_version=7).SerializeToString())
    return path


@pytest.mark.parametrize(("name", "size"), [("light_squeezenet", 64), ("light_shufflenet", 224)])
def test_whole_models_compute_what_onnx_runtime_computes(onnx_case, tmp_path, name, size):
    path = with_random_weights(name, size, tmp_path / "random.onnx")
    imported = onnx_case.compare(path, fold_batch_norm=True, tolerance=1e-3)
    assert "batch_norm" not in imported.kinds


def test_the_shipped_model(onnx_case):
    imported = onnx_case.compare(MNIST)
    assert print_network(imported.network) == (
        "network mnist_conv {\n"
        "  input Input3: 1x28x28\n"
        "\n"
        "  conv1 = conv2d(Input3, channels=8, kernel=5, padding=2)\n"
        "  relu1 = relu(conv1)\n"
        "  pool1 = max_pool(relu1, kernel=2)\n"
        "  conv2 = conv2d(pool1, channels=16, kernel=5, padding=2)\n"
        "  relu2 = relu(conv2)\n"
        "  pool2 = max_pool(relu2, kernel=3)\n"
        "  flatten1 = flatten(pool2)\n"
        "  fc1 = linear(flatten1, features=10)\n"
        "\n"
        "  output fc1\n"
        "}\n"
    )


def test_every_layer_knows_its_node():
    network, _ = import_onnx(MNIST)
    assert str(network.layers["pool1"].location).endswith("mnist-conv.onnx: MaxPool Pooling66")


def test_several_outputs_in_the_models_order(onnx_case):
    nodes = [
        make_node("Relu", ["x"], ["a"]),
        make_node("Sigmoid", ["a"], ["b"]),
        make_node("Flatten", ["a"], ["c"]),
        make_node("Identity", ["a"], ["d"]),
    ]
    imported = onnx_case.check(nodes, outputs=("b", "a", "c"))
    assert imported.network.outputs == ("sigmoid1", "relu1", "flatten1")
    network, _ = import_onnx(onnx_case.model(nodes, outputs=("a", "d")))
    assert network.outputs == ("relu1",)


def test_nodes_that_no_output_needs_are_left_out(onnx_case):
    nodes = [make_node("LRN", ["x"], ["unused"], size=3), make_node("Relu", ["x"], ["y"])]
    assert onnx_case.check(nodes).kinds == ["relu"]


def test_all_refused_nodes_are_reported_at_once(onnx_case):
    nodes = [
        make_node("LRN", ["x"], ["a"], name="norm", size=3),
        make_node("MaxPool", ["a"], ["b"], name="pool", kernel_shape=[2, 2], dilations=[2, 2]),
        make_node("Elu", ["b"], ["c"], name="elu"),
        make_node("Magic", ["c"], ["d"], name="spell", domain="wizards"),
        make_node("Relu", ["d"], ["e"], name="fine"),
        make_node("Tanh", ["e"], ["y"]),
    ]
    path = onnx_case.model(nodes, domains=("wizards",))
    with pytest.raises(UserError) as caught:
        import_onnx(path)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.rows[1:] == (
        ("norm", "LRN", "the language has no normalisation across channels; batch_norm is what newer networks use"),
        ("pool", "MaxPool", "the language has no dilated pools"),
        ("elu", "Elu", "the language has no such layer"),
        ("spell", "Magic", 'the operator belongs to the extension "wizards", not to ONNX itself'),
        ("y", "Tanh", "the language has no such layer"),
    )
    assert diagnostic.message == "5 nodes of 6 cannot be expressed in the network language"
    lines = str(diagnostic).splitlines()
    assert lines[2:4] == [
        "  node   operator  why",
        "  norm   LRN       the language has no normalisation across channels; batch_norm is what newer networks use",
    ]


def branch(name):
    value = helper.make_tensor_value_info(f"{name}_out", onnx.TensorProto.FLOAT, ["N", 3, 8, 9])
    return helper.make_graph([make_node("Relu", ["x"], [f"{name}_out"])], name, [], [value])


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (
            [make_node("If", ["yes"], ["y"], then_branch=branch("then"), else_branch=branch("otherwise"))],
            "no control flow",
        ),
        ([make_node("QuantizeLinear", ["x", "scale"], ["q"]), make_node("Relu", ["q"], ["y"])], "quantised model"),
        ([make_node("Relu", ["half"], ["y"])], "does not depend on the network's inputs"),
        ([make_node("RandomNormal", [], ["r"], shape=[1, 3, 8, 9]), make_node("Add", ["x", "r"], ["y"])], "random"),
        ([make_node("Identity", ["x"], ["y"])], "an input of the network, unchanged"),
    ],
)
def test_what_no_network_can_express(onnx_case, nodes, reason):
    constants = {"yes": np.bool_(True), "scale": np.float32(1), "half": np.float32([0.5])}
    used = {name: value for name, value in constants.items() if any(name in node.input for node in nodes)}
    with pytest.raises(UserError, match=reason):
        import_onnx(onnx_case.model(nodes, constants=used))


def test_local_functions_are_inlined(onnx_case):
    body = [make_node("Mul", ["a", "two"], ["b"]), make_node("Relu", ["b"], ["c"])]
    two = make_node("Constant", [], ["two"], value=numpy_helper.from_array(np.float32([2])))
    imports = [helper.make_opsetid("", 13)]
    function = helper.make_function("mine", "Twice", ["a"], ["c"], [two, *body], imports)
    path = onnx_case.model([make_node("Twice", ["x"], ["y"], domain="mine")], domains=("mine",))
    model = onnx.load(path)
    model.functions.append(function)
    path.write_bytes(model.SerializeToString())
    assert onnx_case.compare(path).kinds == ["depthwise", "relu"]

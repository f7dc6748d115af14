"""The network graph: names, arity, cycles, shapes and order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.compiler.network import Input, Layer, NetworkGraph, normalize_attributes
from binpoint.support.diagnostics import Location, UserError


def layer(name, kind, *inputs, line=None, **written):
    place = None if line is None else Location("net.bp", line, 1)
    return Layer(name, kind, inputs, normalize_attributes(kind, written), place)


X = Input("x", (3, 8, 8))


def faults(layers, outputs=(), inputs=(X,)):
    with pytest.raises(UserError) as caught:
        NetworkGraph("net", inputs, layers, outputs, location=Location("net.bp", 1, 1))
    return [(fault.code, fault.found) for fault in caught.value.diagnostics]


def test_a_network_knows_its_shapes_parameters_and_outputs():
    network = NetworkGraph(
        "net",
        [X],
        [
            layer("fc", "linear", "flat", features=5),
            layer("flat", "flatten", "conv"),
            layer("conv", "conv2d", "x", channels=4, kernel=(3, 3)),
        ],
    )
    assert network.shapes == {"x": (3, 8, 8), "conv": (4, 6, 6), "flat": (144, 1, 1), "fc": (5, 1, 1)}
    assert network.order == ("conv", "flat", "fc")
    assert network.outputs == ("fc",)
    assert network.input_shapes("fc") == ((144, 1, 1),)
    assert list(network.parameter_shapes().items()) == [
        ("conv.weight", (4, 3, 3, 3)),
        ("conv.bias", (4,)),
        ("fc.weight", (5, 144)),
        ("fc.bias", (5,)),
    ]
    assert set(network.graph.edges) == {("x", "conv"), ("conv", "flat"), ("flat", "fc")}


def test_a_layer_may_read_the_same_map_twice():
    network = NetworkGraph("net", [X], [layer("y", "concat", "x", "x")])
    assert network.shapes["y"] == (6, 8, 8)


def test_outputs_as_written_win():
    layers = [layer("a", "relu", "x"), layer("b", "relu", "a")]
    assert NetworkGraph("net", [Input("x", (1, 1, 1))], layers, ["a"]).outputs == ("a",)


@given(st.permutations(range(8)))
def test_the_order_follows_the_file_as_far_as_the_data_flow_lets_it(numbers):
    """Layers of a chain and layers without each other's results, written in any order."""
    chain = [layer(f"c{n}", "relu", f"c{n - 1}" if n else "x") for n in range(4)]
    free = [layer(f"f{n}", "relu", "x") for n in range(4)]
    written = [[*chain, *free][number] for number in numbers]
    order = NetworkGraph("net", [Input("x", (1, 1, 1))], written).order
    assert [name for name in order if name[0] == "c"] == ["c0", "c1", "c2", "c3"]
    assert [name for name in order if name[0] == "f"] == [item.name for item in written if item.name[0] == "f"]


def test_names_and_arity_are_reported_together():
    layers = [
        layer("a", "relu", "y"),
        layer("a", "relu", "x"),
        layer("b", "add", "x"),
        layer("c", "relu", "x", "x"),
        layer("x", "relu", "a"),
    ]
    assert faults(layers, ["d"]) == [
        ("duplicate-name", "a"),
        ("duplicate-name", "x"),
        ("unknown-name", "y"),
        ("wrong-arity", "1"),
        ("wrong-arity", "2"),
        ("unknown-name", "d"),
    ]


def test_close_names_are_suggested():
    with pytest.raises(UserError) as caught:
        NetworkGraph("net", [Input("image", (1, 1, 1))], [layer("a", "relu", "imag")])
    assert caught.value.diagnostics[0].hint == 'did you mean "image"?'


def test_an_input_is_no_output():
    assert faults([layer("a", "relu", "x")], ["x"]) == [("unknown-name", "x")]


def test_a_network_needs_an_input_and_a_layer():
    assert faults([], inputs=()) == [("no-input", None), ("no-layer", None)]


@pytest.mark.parametrize(
    ("layers", "cycle"),
    [
        ([layer("a", "relu", "a")], "a -> a"),
        ([layer("a", "add", "x", "c"), layer("b", "relu", "a"), layer("c", "relu", "b")], "a -> b -> c -> a"),
    ],
)
def test_cycles(layers, cycle):
    assert faults(layers) == [("cycle", cycle)]


def test_every_shape_is_checked_but_none_after_a_fault():
    layers = [
        layer("a", "max_pool", "x", line=2, kernel=(9, 9)),
        layer("b", "linear", "a", line=3, features=3),
        layer("c", "linear", "x", line=4, features=3),
    ]
    with pytest.raises(UserError) as caught:
        NetworkGraph("net", [X], layers)
    assert [(fault.code, str(fault.location)) for fault in caught.value.diagnostics] == [
        ("shape-mismatch", "net.bp:2:1"),
        ("shape-mismatch", "net.bp:4:1"),
    ]
    assert caught.value.diagnostics[1].hint == "put flatten(...) around the input"


def test_attributes_are_read_only_and_complete():
    attributes = normalize_attributes("avg_pool", {"kernel": (2, 3)})
    assert attributes == {
        "kernel": (2, 3),
        "stride": (2, 3),
        "padding": (0, 0, 0, 0),
        "include_padding": False,
    }
    with pytest.raises(TypeError):
        attributes["kernel"] = (1, 1)


def test_what_is_too_large_to_compute_is_refused():
    wide = layer("a", "linear", "v", features=2**16)
    inputs = (X, Input("v", (2**16, 1, 1)))
    assert faults([wide, layer("b", "relu", "a")], inputs=inputs) == [("shape-mismatch", "65536x65536")]
    assert faults([layer("up", "upsample", "x", scale=(2**14, 2**14))]) == [("shape-mismatch", "3x131072x131072")]
    large = Input("m", (1, 2**16, 2**16))
    assert faults([layer("pool", "global_max_pool", "m")], inputs=(large,)) == [("shape-mismatch", "1x65536x65536")]
    assert NetworkGraph("net", inputs, [layer("a", "linear", "v", features=2**15)]).shapes["a"] == (2**15, 1, 1)

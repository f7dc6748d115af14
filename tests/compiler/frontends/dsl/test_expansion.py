"""Blocks: what their instances are named, and where their faults are."""

from tests.compiler.frontends.dsl.network_texts import faults, layers, network, parse

RESIDUAL = """
    block residual(x, channels, stride = 1, middle = channels / 4) {
      a = normalized(x, channels=middle, kernel=1)
      b = normalized(relu(a), channels=middle, kernel=3, stride=stride)
      c = normalized(relu(b), channels=channels, kernel=1)
      return relu(c)
    }
    block normalized(x, channels, kernel, stride = 1) {
      conv = conv2d(x, channels=channels, kernel=kernel, stride=stride, padding=(kernel - 1) / 2, bias=false)
      norm = batch_norm(conv)
      return norm
    }
"""


def test_instances_are_named_after_the_statement():
    parsed = parse(network("body = residual(x, channels=8, stride=2)", "y = relu(body)", rest=RESIDUAL))
    assert layers(parsed) == [
        ("body.a.conv", "conv2d", ("x",)),
        ("body.a.norm", "batch_norm", ("body.a.conv",)),
        ("body.b.relu", "relu", ("body.a.norm",)),
        ("body.b.conv", "conv2d", ("body.b.relu",)),
        ("body.b.norm", "batch_norm", ("body.b.conv",)),
        ("body.c.relu", "relu", ("body.b.norm",)),
        ("body.c.conv", "conv2d", ("body.c.relu",)),
        ("body.c.norm", "batch_norm", ("body.c.conv",)),
        ("body", "relu", ("body.c.norm",)),
        ("y", "relu", ("body",)),
    ]
    assert parsed.layers["body.a.conv"].attributes["channels"] == 2
    assert parsed.shapes["y"] == (8, 4, 4)


def test_an_instance_stands_for_what_it_returns():
    parsed = parse(network("n = normalized(x, channels=2, kernel=1)", "y = relu(n)", "output n", rest=RESIDUAL))
    assert parsed.layers["y"].inputs == ("n.norm",)
    assert parsed.outputs == ("n.norm",)


def test_a_block_can_return_another_block():
    text = network("y = outer(x)", rest="block outer(x) { return inner(x) } block inner(x) { r = relu(x) return r }")
    assert layers(parse(text)) == [("y.inner.r", "relu", ("x",))]


def test_a_block_can_be_nested_in_a_call():
    text = network("y = relu(twice(x))", rest="block twice(x) { return relu(relu(x)) }")
    assert [name for name, _, _ in layers(parse(text))] == ["y.twice.relu", "y.twice", "y"]


def test_layers_inside_an_instance_can_be_read():
    parsed = parse(network("b = residual(x, channels=4)", "y = relu(b.a.conv)", "output y", rest=RESIDUAL))
    assert parsed.layers["y"].inputs == ("b.a.conv",)


def test_a_block_can_take_several_feature_maps_sizes_and_flags():
    block = "block mix(a, b, kernel, bias) { return conv2d(add(a, b), channels=2, kernel=kernel, bias=bias) }"
    parsed = parse(network("y = mix(x, relu(x), kernel=3x1, bias=false)", rest=block))
    assert parsed.layers["y"].attributes["kernel"] == (3, 1)
    assert parsed.layers["y"].attributes["bias"] is False


def test_a_fault_inside_says_where_the_block_is_used():
    block = "block b(a, n) {\n  return conv2d(a, channels=n / 3, kernel=1)\n}\n"
    (fault,) = faults(network("y = b(x, n=6)", "z = b(y, n=4)", rest=block))
    assert str(fault) == (
        'error[wrong-type]: wrong value of "channels"\n'
        "  --> net.bp:7:29\n"
        "   |\n"
        " 7 |   return conv2d(a, channels=n / 3, kernel=1)\n"
        "   |                             ^^^^^\n"
        "  used at:  net.bp:4:7\n"
        "  found:    n / 3 = 4/3\n"
        "  expected: a whole number from 1 to 16777216"
    )


def test_a_shape_that_does_not_fit_inside_says_where_the_block_is_used():
    block = "block b(a) {\n  return conv2d(a, channels=1, kernel=9)\n}\n"
    (fault,) = faults(network("y = b(x)", rest=block))
    assert (fault.code, str(fault.location), str(fault.location.used_at)) == (
        "shape-mismatch",
        "net.bp:6:10",
        "net.bp:3:7",
    )


def test_the_same_fault_of_many_instances_is_one_fault():
    block = "block b(a, n = 1/2) { return conv2d(a, channels=n, kernel=1) }"
    assert len(faults(network("y = b(x)", "z = b(x)", "w = b(x)", rest=block))) == 1

"""What the user reads where a network file is wrong."""

import pytest

from tests.compiler.frontends.dsl.network_texts import faults, network, places


def test_the_text_of_a_semantic_fault():
    (fault,) = faults(network("conv1 = conv2d(x, channels=8, kernl=3, kernel=3)"))
    assert str(fault) == (
        'error[unknown-attribute]: conv2d has no attribute "kernl"\n'
        "  --> net.bp:3:33\n"
        "   |\n"
        " 3 |   conv1 = conv2d(x, channels=8, kernl=3, kernel=3)\n"
        "   |                                 ^^^^^\n"
        "  found:    kernl\n"
        "  expected: one of channels, kernel, stride, padding, groups, dilation, bias\n"
        '  hint:     did you mean "kernel"?'
    )


def test_the_text_of_a_syntax_fault():
    (fault,) = faults(network("conv1 = conv2d(x, channels=8, kernel==3)"))
    assert str(fault) == (
        'error[syntax-error]: unexpected "="\n'
        "  --> net.bp:3:40\n"
        "   |\n"
        " 3 |   conv1 = conv2d(x, channels=8, kernel==3)\n"
        "   |                                        ^\n"
        "  expected: a value"
    )


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("linear(x, 10)", "features=10"),
        ("conv2d(x, 16, 3)", "channels=16"),
        ("conv2d(linear(x, features=2), channels=8, 3)", "kernel=3"),
        ("reshape(x, 3x5x7)", "shape=3x5x7"),
        ("max_pool(x, [2, 2])", "kernel=[...]"),
        ("body(x, 16)", "name=16"),
        ("relu(x, 16)", None),
        ("relu(x y)", None),
    ],
)
def test_bare_values_among_arguments(call, hint):
    (fault,) = faults(network(f"a = {call}"))
    assert fault.code == "syntax-error"
    assert fault.hint == (hint and f"attributes are written by name: {hint}")


def test_the_text_of_something_missing_at_the_end_of_a_line():
    (fault,) = faults(network("a = relu(x", "b = relu(a)"))
    assert str(fault) == (
        'error[syntax-error]: unexpected end of the line after "x"\n'
        "  --> net.bp:3:13\n"
        "   |\n"
        " 3 |   a = relu(x\n"
        "   |             ^\n"
        '  expected: ")", ",", "(" or "="'
    )


@pytest.mark.parametrize(
    ("statement", "code", "column"),
    [
        ("a = rleu(x)", "unknown-layer-kind", 7),
        ("a = relu(y)", "unknown-name", 12),
        ("a = relu(a.b)", "unknown-name", 12),
        ("a = relu()", "wrong-arity", 7),
        ("a = relu(x, x)", "wrong-arity", 7),
        ("a = add(x)", "wrong-arity", 7),
        ("x = relu(x)", "duplicate-name", 3),
        ("a = conv2d(x, kernel=1)", "missing-attribute", 7),
        ("a = relu(x, slope=1)", "unknown-attribute", 15),
        ("a = max_pool(x, kernel=2, kernel=2)", "duplicate-attribute", 29),
        ("a = max_pool(x, kernel=0)", "wrong-type", 26),
        ("a = max_pool(x, kernel=-2)", "wrong-type", 26),
        ("a = max_pool(x, kernel=1.5)", "wrong-type", 26),
        ("a = max_pool(x, kernel=2x2x2)", "wrong-type", 26),
        ("a = max_pool(x, kernel=true)", "wrong-type", 26),
        ("a = max_pool(x, kernel=99999999999)", "wrong-type", 26),
        ("a = max_pool(x, kernel=2, padding=-1)", "wrong-type", 37),
        ("a = max_pool(x, kernel=2, padding=[1, 1, 1])", "wrong-type", 37),
        ("a = max_pool(x, kernel=2, padding=[1x1, 1])", "wrong-type", 38),
        ("a = conv2d(x, channels=1x1, kernel=1)", "wrong-type", 26),
        ("a = conv2d(x, channels=1, kernel=1, bias=1)", "wrong-type", 44),
        ("a = reshape(x, shape=16x16)", "wrong-type", 24),
        ("a = leaky_relu(x, slope=3x3)", "wrong-type", 27),
        ("a = leaky_relu(x, slope=2)", "out-of-range", 27),
        ("a = leaky_relu(x, slope=-0.1)", "out-of-range", 27),
        ("a = leaky_relu(x, slope=1/0)", "wrong-type", 29),
        ("a = leaky_relu(x, slope=n)", "unknown-parameter", 27),
        ("a = leaky_relu(x, slope=1e500)", "out-of-range", 27),
        (f"a = leaky_relu(x, slope={'9' * 2000})", "out-of-range", 27),
        (f"a = leaky_relu(x, slope={'*'.join(['1e-300'] * 20)})", "out-of-range", 27),
        ("a = leaky_relu(x, slope=1 - true)", "wrong-type", 31),
        ("a = max_pool(x, kernel=9)", "shape-mismatch", 7),
        ("input x: 4", "duplicate-name", 9),
        ("input y: 0", "wrong-type", 12),
        ("input y: 4x4", "wrong-type", 12),
        ("input y: 4 { scle = 1 }", "unknown-setting", 16),
        ("input y: 4 { scale = 0 }", "out-of-range", 24),
        ("input y: 4 { scale = 1 bits }", "wrong-type", 26),
        ("input y: 4 { scale = true }", "wrong-type", 24),
        ("input y: 4 { scale = [1, 1] }", "wrong-type", 24),
        ("input y: 4 { mean = [1, 1] }", "wrong-type", 23),
        ("input y: 4 { deviation = -1 }", "out-of-range", 28),
        ("input y: 4 { mean = 1  mean = 1 }", "duplicate-setting", 26),
        ("output y", "unknown-name", 10),
        ("output x", "wrong-output", 10),
        ("output z, z", "wrong-output", 13),
        (r'weights "\q"', "wrong-escape", 11),
        (r'weights "\ud83d"', "wrong-escape", 11),
        ('weights ""', "wrong-value", 11),
        ('weights "\\u0000"', "wrong-value", 11),
        ('weights "a" weights "b"', "duplicate-setting", 15),
        ("weights 'a'", "unknown-character", 11),
        ('weights "a', "unclosed-text", 11),
        ("a = relu(x);", "unknown-character", 14),
        ("a = relu(x),", "syntax-error", 14),
        ("a = x", "syntax-error", 8),
        ("a = relu(3)", "syntax-error", 12),
        ("outptu z", "syntax-error", 10),
        ("a = relu(x \0)", "unknown-character", 14),
    ],
)
def test_faults_have_a_place(statement, code, column):
    assert places(network(statement, "z = relu(x)"))[:1] == [(code, 3, column)]


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        ("block b(a) { c = relu(a) }", "wrong-return", 7),
        ("block b(a) { return relu(a) return a }", "wrong-return", 29),
        ("block b(a, c) { return relu(a) }", "unused-parameter", 12),
        ("block b(a, a) { return relu(a) }", "duplicate-name", 12),
        ("block b(a) { a = relu(a) return a }", "duplicate-name", 14),
        ("block b(a) { return relu(q) }", "unknown-name", 26),
        ("block b(a) { return max_pool(a, kernel=q) }", "unknown-parameter", 40),
        ("block b(a) { return max_pool(a, kernel=a) }", "wrong-parameter", 9),
        ("block b(a = 1) { return relu(a) }", "wrong-parameter", 9),
        ("block b(true) { return relu(true) }", "wrong-name", 9),
        ("block relu(a) { return sigmoid(a) }", "duplicate-name", 7),
        ("block b(a) { return relu(a) } block b(a) { return relu(a) }", "duplicate-name", 37),
        ("block b(a) { return b(a) }", "recursive-block", 7),
        ("block b(a) { return c(a) } block c(a) { return relu(b(a)) }", "recursive-block", 7),
        ("block b(a) { return rleu(a) }", "unknown-layer-kind", 21),
        ("network other { input i: 3 }", "repeated-section", 1),
        ("numeric { } numeric { }", "repeated-section", 13),
    ],
)
def test_faults_of_unused_blocks_and_sections(text, code, column):
    assert places(network("z = relu(x)", rest=text)) == [(code, 5, column)]


@pytest.mark.parametrize(
    ("call", "code", "column"),
    [
        ("b(x)", "missing-attribute", 7),
        ("b(x, x, n=1)", "wrong-arity", 7),
        ("b(x, n=1, m=1)", "unknown-attribute", 17),
        ("b(x, n=1, n=1)", "duplicate-attribute", 17),
        ("b(x, n=q)", "unknown-parameter", 14),
    ],
)
def test_faults_of_block_calls(call, code, column):
    block = "block b(a, n) { return max_pool(a, kernel=n) }"
    assert places(network(f"y = {call}", "z = relu(y.anything)", rest=block)) == [(code, 3, column)]


def test_block_faults_show_how_to_call_it():
    block = "block b(a, n, m = 2 * n) { return max_pool(a, kernel=n, stride=m) }"
    (fault,) = faults(network("y = b(x)", rest=block))
    assert fault.expected == "b(a, n, m=2 * n)"


def test_semantic_faults_come_together_and_in_order():
    text = network("a = relu(y)", "b = conv2d(x, channels=0, kernel=3)", rest="numeric { weights = 99 bits }")
    assert places(text) == [("unknown-name", 3, 12), ("wrong-type", 4, 26), ("out-of-range", 6, 21)]


def test_shape_faults_come_together_with_numeric_ones():
    text = network("a = max_pool(x, kernel=9)", "b = linear(x, features=1)", rest="numeric { weights = 1 bits }")
    assert [code for code, _, _ in places(text)] == ["shape-mismatch", "shape-mismatch", "out-of-range"]


def test_syntax_faults_come_together():
    text = network(
        "a = = relu(x)",
        "b = relu(x",
        "c = max_pool(x,",
        "    kernel==2,",
        "    stride=2)",
        "d = relu(x) }",
        rest="block b(x) {\n  y = 3\n  return y\n}\nnumeric {\n  weights 8\n  layer a { 5 }\n  biases = 8 bitz\n}\n",
    ).replace("}\n}\nblock", "}\nblock")
    assert places(text) == [
        ("syntax-error", 3, 7),
        ("syntax-error", 4, 13),
        ("syntax-error", 6, 14),
        ("syntax-error", 10, 7),
        ("syntax-error", 14, 11),
        ("syntax-error", 15, 13),
        ("syntax-error", 16, 18),
    ]


def test_a_missing_brace_is_found_where_the_next_section_begins():
    (fault,) = faults("network n {\n  input x: 3\n  a = relu(x)\n\nblock b(x) { return x }\n")
    assert (str(fault.location), fault.hint) == ("net.bp:5:1", 'the "{" of line 1 is not closed')


def test_a_missing_brace_at_the_end():
    (fault,) = faults("network n {\n  input x: 3\n  a = relu(x)\n")
    assert (str(fault.location), fault.hint) == ("net.bp:3:14", 'the "{" of line 1 is not closed')


def test_a_misspelt_keyword_has_a_hint():
    assert faults(network("otput z"))[0].hint == 'did you mean "output"?'
    assert faults("netwrk n { }")[0].hint == 'did you mean "network"?'


@pytest.mark.parametrize("text", ["", "# nothing", "numeric { }", "block b(x) { return relu(x) }"])
def test_a_file_without_a_network(text):
    assert [fault.code for fault in faults(text)] == ["no-network"]


def test_a_network_without_input_or_layer():
    assert [fault.code for fault in faults("network n { }")] == ["no-input", "no-layer"]
    assert [fault.code for fault in faults("network n { input x: 3 }")] == ["no-layer"]


def test_cycles():
    (fault,) = faults(network("a = relu(b)", "b = relu(a)"))
    assert (fault.code, fault.found) == ("cycle", "a -> b -> a")
    text = network("a = same(b)", "b = same(a)", "c = relu(a)", rest="block same(x) { return x }")
    assert {fault.code for fault in faults(text)} == {"cycle"}

"""Nothing a user can write leads to anything but a network or a UserError, and neither takes long."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.compiler.frontends.dsl.expansion import MAXIMUM_LAYERS
from binpoint.compiler.frontends.dsl.faults import MAXIMUM_FAULTS
from binpoint.compiler.frontends.dsl.parser import LONGEST_FILE
from binpoint.compiler.frontends.dsl.reader import KEYWORDS, MAXIMUM_SYNTAX_ERRORS
from binpoint.support.diagnostics import UserError
from tests.compiler.frontends.dsl.network_texts import EXAMPLES, faults, network, parse

SOUP = [
    *(f"{keyword.lower()} " for keyword in KEYWORDS),
    *"{}()[]<>=,:+-*/.#\n\"'",
    "relu",
    "conv2d",
    "x",
    " y ",
    "b",
    "3",
    "3x5",
    "1e5",
    "0.5",
    '"w"',
    ".*",
    "kernel",
    "channels",
    "floor",
    "true",
    "update",
    "msb",
    "lsb",
    "\0",
]
"""Words and fragments for random files."""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("\0" * 100_000, "unknown-character"),
        ("(" * 100_000, "syntax-error"),
        ("{" * 100_000, "syntax-error"),
        ("network n { x = " + "relu(" * 100_000, "nested-too-deep"),
        ("network n { x = relu(y, k=" + "(" * 100_000, "nested-too-deep"),
        ("network n { x = relu(y, k=" + "[" * 40 + "]" * 40 + ") }", "nested-too-deep"),
        (network("a = leaky_relu(x, slope=" + "+".join(["1"] * 5_000) + ")"), "out-of-range"),
        (network("a = leaky_relu(x, slope=" + "*".join(["999"] * 5_000) + ")"), "out-of-range"),
        (network("a = conv2d(x, kernel=" + "x".join(["3"] * 20_000) + ", channels=1)"), "wrong-type"),
        (" " * (LONGEST_FILE + 1), "too-large"),
        ("network n { " + "x" * 1_000_000 + " = " + "}", "syntax-error"),
    ],
)
def test_large_and_deep_files(text, code):
    start = time.process_time()
    first = faults(text)[0]
    assert first.code == code
    assert max(map(len, str(first).splitlines())) < 2_000
    assert time.process_time() - start < 5


def test_syntax_faults_do_not_go_on_without_end():
    assert len(faults("network n {\n" + "x = = y\n" * 10_000)) == MAXIMUM_SYNTAX_ERRORS


@pytest.mark.parametrize(
    "statement",
    [
        "l{} = rleu(x)",
        "l{} = relu(unknown{})",
        "l{} = relu(x, slope{}=1)",
        "l{} = conv2d(x, channels=0, kernel=1)",
        "output unknown{}",
        "input l{}: 4x4",
    ],
)
def test_semantic_faults_do_not_go_on_without_end(statement):
    count = 1_000
    start = time.process_time()
    shown = faults(network("z = relu(x)", *(statement.replace("{}", str(number)) for number in range(count))))
    assert len(shown) == MAXIMUM_FAULTS + 1
    assert [fault.location.line for fault in shown[:-1]] == list(range(4, 4 + MAXIMUM_FAULTS))
    assert shown[-1].message == f"{count - MAXIMUM_FAULTS} more faults are not shown"
    assert time.process_time() - start < 10


def test_blocks_that_grow_exponentially():
    steps = "".join(f"block b{n}(x) {{ y = b{n + 1}(x) z = b{n + 1}(y) return z }}\n" for n in range(40))
    start = time.process_time()
    (fault,) = faults(network("y = b0(x)", rest=steps + "block b40(x) { return x }"))
    assert (fault.code, fault.expected) == ("too-many-layers", f"at most {MAXIMUM_LAYERS} layers")
    assert time.process_time() - start < 10


def test_a_long_chain_of_blocks():
    chain = "".join(f"block b{n}(x) {{ return relu(b{n + 1}(x)) }}\n" for n in range(500))
    (fault,) = faults(network("y = b0(x)", rest=chain + "block b500(x) { return x }"))
    assert fault.code == "nested-too-deep"


def test_control_characters_do_not_reach_the_terminal():
    for fault in faults(network("a = relu(\x1b[31m)", 'weights "\x1b[31m" z')):
        assert "\x1b" not in str(fault)


def test_a_network_of_many_layers():
    chain = [f"l{number} = relu({f'l{number - 1}' if number else 'x'})" for number in range(2000)]
    assert len(parse(network(*chain)).layers) == 2000


@given(st.text(max_size=200))
def test_any_text(text):
    with pytest.raises(UserError):
        parse(text)


@given(st.lists(st.sampled_from(SOUP), max_size=60), st.booleans())
def test_any_words(words, inside):
    text = "".join(words)
    try:
        parse(network(text, "z = relu(x)") if inside else text)
    except UserError as error:
        print(error)  # every fault can be shown


@given(st.data())
def test_any_edit_of_an_example(data):
    text = data.draw(st.sampled_from(EXAMPLES)).read_text(encoding="utf-8")
    start = data.draw(st.integers(0, len(text)))
    end = min(len(text), start + data.draw(st.integers(0, 20)))
    edited = text[:start] + data.draw(st.sampled_from(["", *SOUP])) + text[end:]
    try:
        parse(edited)
    except UserError as error:
        print(error)  # every fault can be shown

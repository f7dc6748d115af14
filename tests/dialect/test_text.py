"""IR as text: what is printed reads back exactly, and no text ends in anything but a module or a user error."""

import re
from fractions import Fraction
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, note, settings
from hypothesis import strategies as st
from xdsl.printer import Printer

from binpoint.compiler import pipeline, training_pipeline
from binpoint.compiler.block_defaults import with_target_blocks
from binpoint.compiler.build_nn import build_nn
from binpoint.compiler.frontends.dsl.parser import parse_network, parse_network_text
from binpoint.compiler.frontends.dsl.printer import print_network
from binpoint.compiler.pass_runner import run_passes
from binpoint.compiler.pipeline import fx_passes
from binpoint.compiler.training_pipeline import TrainingOptions, training_passes
from binpoint.dialect.text import parse_module, print_module
from binpoint.support.diagnostics import UserError
from tests.compiler.frontends.dsl.test_printer import networks
from tests.dialect.texts import FX, NN, TRAINING
from tests.programs import TARGET
from tests.trainable import EVERY_LAYER, with_head

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "networks").glob("*.bp"))


def generic(module):
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(module)
    return stream.getvalue()


def assert_reads_back(module):
    text = print_module(module)
    again = parse_module(text, "again.mlir")
    assert again.is_structurally_equivalent(module)
    assert print_module(again) == text
    assert parse_module(generic(module), "generic.mlir").is_structurally_equivalent(module)


INFERENCE = (*pipeline.NN_PASSES, *fx_passes(TARGET))
TRAINED = (
    *training_pipeline.NN_PASSES,
    *training_passes(TARGET, TrainingOptions(4, Fraction(9, 10), Fraction(1, 2000), 3)),
)


def stages(network, passes):
    """The module after every pass, as text."""
    texts = []
    module = build_nn(network)
    texts.append(print_module(module))
    for each in passes:
        run_passes(module, [each])
        texts.append(print_module(module))
    return texts


@pytest.mark.parametrize("text", [FX, TRAINING], ids=["fx", "training"])
def test_a_program_prints_as_it_was_written(text):
    assert print_module(parse_module(text, "small.mlir")) == text


@pytest.mark.parametrize("text", [NN, FX, TRAINING], ids=["nn", "fx", "training"])
def test_custom_and_generic_text_read_back(text):
    assert_reads_back(parse_module(text, "small.mlir"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_stage_of_the_examples_reads_back(path):
    for text in stages(parse_network(path), INFERENCE):
        assert print_module(parse_module(text, "stage.mlir")) == text


def test_every_stage_of_training_reads_back():
    for text in stages(parse_network_text(EVERY_LAYER, "every.bp", None), TRAINED):
        assert print_module(parse_module(text, "stage.mlir")) == text


@given(networks())
@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_every_stage_of_any_network_reads_back(network):
    # As the pipeline does: what cuts maps into blocks says how these find their exponents.
    network = with_target_blocks(network, TARGET)
    note(print_network(network))
    codes: set[str] = set()
    module = build_nn(network)
    assert_reads_back(module)
    for each in INFERENCE:
        try:
            run_passes(module, [each])
        except UserError as error:
            codes = {diagnostic.code for diagnostic in error.diagnostics}
            break
        assert_reads_back(module)
    # A layer may narrow the range of exponents after the network has given one.
    assert codes <= {"exponent-out-of-range"}


@given(networks())
@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_the_training_of_any_network_reads_back(network):
    network = with_head(network)
    note(print_network(network))
    codes: set[str] = set()
    module = build_nn(network)
    try:
        run_passes(module, TRAINED)
    except UserError as error:
        codes = {diagnostic.code for diagnostic in error.diagnostics}
    else:
        assert_reads_back(module)
    assert codes <= {"exponent-out-of-range"}


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("nn.netwrk @x {}", "Operation nn.netwrk is not registered", 1),
        ("\n\nfx.program @x { fx.output (%a) }", "%a is not defined", 3),
        ('fx.program @x { %a = fx.input "a', "string is not terminated", 1),
        ('fx.program @x { %a = fx.input "\\q" }', "invalid escape", 1),
        ("fx.program @x { ? }", None, 1),
        ("", None, 1),
        ("// nothing\n", None, 2),
        ("(" * 5000, None, None),
        (f"\n!fx.acc<{'9' * 5000}", "number is too long", 2),
        ("!a = tuple<" + "tuple<" * 5000, "nested too deeply", None),
        ('"fx.yield"() : () -> ()', "Expected 1 operand", None),
        ("fx.program @x {\n}", "expected a single block", 1),
        ('"fx.program"() <{symbol = #nn.name<"x">}> ({\n^bb0:\n}) : () -> ()', "a block is empty", None),
        ('fx.program @x {\n  "fx.output"() : () -> ()\n}', "at least one output", None),
        (re.sub(r" numeric = <.*> {", " {", NN), "nn.network: property 'numeric' expected", 2),
        ('fx.program @x targt = "a" {}', 'unknown property "targt": did you mean "target"?', 1),
        ('fx.program @x target "a" {}', """Expected '=' after the property "target\"""", 1),
        ('fx.program @x target = "a" target = "b" {}', 'expected a "," before the property "target"', 1),
        ('fx.program @x target = "a", target = "b" {}', 'the property "target" is given twice', 1),
    ],
)
def test_wrong_texts(text, message, line):
    with pytest.raises(UserError) as caught:
        parse_module(text, "wrong.mlir")
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == "invalid-ir"
    assert diagnostic.location.file == "wrong.mlir"
    assert message is None or message in diagnostic.message
    assert line is None or diagnostic.location.line == line


def test_an_unknown_operation_gets_a_hint():
    with pytest.raises(UserError) as caught:
        parse_module("fx.progam @x {}", "wrong.mlir")
    assert caught.value.diagnostics[0].hint == 'did you mean "fx.program"?'


def test_every_operation_that_does_not_verify_is_reported():
    text = NN.replace("tensor<?x6x8x8xf32>\n    %dw", "tensor<?x6x7x8xf32>\n    %dw").replace("10x6xf32", "10x7xf32")
    with pytest.raises(UserError) as caught:
        parse_module(text, "wrong.mlir")
    found = [(each.location.line, each.message.split(":")[0]) for each in caught.value.diagnostics]
    assert found == [(7, "nn.relu"), (10, "nn.add"), (24, "nn.linear")]


TOKENS = st.sampled_from(
    [
        "",
        "%",
        "?",
        "x",
        "<",
        ">",
        "{",
        "}",
        '"',
        "\\",
        "-",
        "0",
        "99999999999",
        "b",
        "^",
        "#",
        "!",
        "@",
        "fx.",
        "//",
        "\0",
        "é",
    ]
)


@given(
    st.sampled_from([NN, FX, TRAINING]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30), TOKENS), min_size=1, max_size=3),
)
@example(FX, [(0.5, 1, "é")])
@settings(max_examples=150, deadline=None)
def test_damaged_text_is_a_module_or_a_user_error(text, edits):
    for place, length, token in edits:
        start = int(place * len(text))
        text = text[:start] + token + text[start + length :]
    codes: set[str] = set()
    try:
        assert_reads_back(parse_module(text, "damaged.mlir"))
    except UserError as error:
        codes = {each.code for each in error.diagnostics}
    assert codes <= {"invalid-ir"}

"""docs/language.md says what the tables and the grammar say."""

import re

import pytest

from binpoint.compiler.frontends.dsl.formatting import signature
from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.frontends.dsl.reader import grammar
from binpoint.compiler.frontends.dsl.syntax_errors import WORDS
from binpoint.compiler.layers import LAYER_KINDS
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import (
    BITS_RANGE,
    CONSTANT_BITS_RANGE,
    DEFAULT_BITS,
    OPTIONS_OF_RULE,
    ExponentRule,
    NumericPolicy,
    Rounding,
    TensorClass,
)
from tests.compiler.frontends.dsl.network_texts import ROOT, faults, network, parse

MANUAL = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")


def test_it_lists_every_layer_kind():
    rows = re.findall(r"^\| `(\w+\((?:x|a, b).*)` \| (.*) \|$", MANUAL, re.MULTILINE)
    assert rows == [(signature(kind), kind.summary) for kind in LAYER_KINDS.values()]


def test_it_lists_every_width():
    rows = re.findall(r"^\| `(\w+) = (\d+) bits` \| (\d+) to (\d+) \|", MANUAL, re.MULTILINE)
    widths = {
        str(tensor_class): (DEFAULT_BITS.get(tensor_class, 40), *BITS_RANGE[tensor_class])
        for tensor_class in TensorClass
    }
    assert {name: tuple(map(int, numbers)) for name, *numbers in rows} == {
        **widths,
        "constants": (NumericPolicy().constant_bits, *CONSTANT_BITS_RANGE),
    }


def test_it_names_every_word():
    for word in (*Rounding, *ExponentRule):
        assert f"`{word}" in MANUAL


def test_it_lists_the_options_of_every_rule():
    rows = re.findall(r"^\| `([a-z+-]+)` \| (none|`r_max`.*|`window`.*) \|$", MANUAL, re.MULTILINE)
    listed = {rule: tuple(re.findall(r"`(\w+)`", options)) for rule, options in rows}
    assert listed == {str(rule): options for rule, options in OPTIONS_OF_RULE.items()}


@pytest.mark.parametrize(
    ("option", "least", "most", "beyond"),
    [
        ("r_max", "0", "1, not 1", "1"),
        ("r_min", "0", "1, not 1", "1"),
        ("confidence", "1/2", "1, not 1", "1"),
        ("window", "1", "4096", "4097"),
        ("patience", "1", "1000000", "1000001"),
        ("headroom", "0", "8", "9"),
    ],
)
def test_it_says_the_ranges_of_options(option, least, most, beyond):
    assert re.search(rf"^\| `{option}` \| .* \| {least} to {most} \|", MANUAL, re.MULTILINE)
    text = "numeric {{ update = msb+lsb({} = {}) }}"
    assert parse(network("a = relu(x)", rest=text.format(option, least)))
    (fault,) = faults(network("a = relu(x)", rest=text.format(option, beyond)))
    assert fault.code == "out-of-range"


def test_its_grammar_is_the_grammar():
    source = (ROOT / "compiler" / "frontends" / "dsl" / "grammar.lark").read_text(encoding="utf-8")
    assert f"```lark\n{source}```\n" in MANUAL


def test_its_examples_parse():
    examples = re.findall(r"```bp\n(.*?)```", MANUAL, re.DOTALL)
    assert len(examples) >= 4
    for example in examples:
        parse(example)


def test_its_error_is_the_error():
    (wrong,) = re.findall(r"```bp-error\n(.*?)```", MANUAL, re.DOTALL)
    with pytest.raises(UserError) as caught:
        parse_network_text(wrong, "wrong.bp", None)
    printed = "\n\n".join(map(str, caught.value.diagnostics))
    assert f"```text\n{printed}\n```" in MANUAL


def test_every_terminal_has_words():
    names = {terminal.name for terminal in grammar().terminals} - set(grammar().ignore_tokens) - {"UNKNOWN"}
    assert names <= set(WORDS)


def test_the_grammar_fits_on_a_screen():
    lines = (ROOT / "compiler" / "frontends" / "dsl" / "grammar.lark").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 65

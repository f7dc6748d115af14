"""Attributes of exponents of blocks: texts, defaults, faults."""

from fractions import Fraction
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from binpoint.dialect.block_attributes import BlocksAttr, PositionsAttr
from binpoint.dialect.policies import NumericAttr
from binpoint.dialect.text import make_context
from binpoint.support.numeric import (
    BlockMethod,
    BlockPolicy,
    BlockWords,
    Granularity,
    Measure,
    Neighbour,
    NumericPolicy,
    Selection,
)

SPELLINGS = {
    "<analyse, measure = overflows, candidates = 8, alignment = fraction>": BlockPolicy(),
    "<analyse, measure = absolute-error, positions = [6, 4, -2], alignment = integer>": BlockPolicy(
        measure=Measure.ABSOLUTE_ERROR, positions=(6, 4, -2), selection=Selection.INTEGER
    ),
    "<predict, measure = mse, candidates = 4, neighbours = [left], threshold = 5/2, alignment = fraction>": BlockPolicy(
        BlockMethod.PREDICT, Measure.MSE, 4, None, (Neighbour.LEFT,), Fraction(5, 2)
    ),
}

WORDS = st.builds(
    BlockWords,
    st.sampled_from(BlockMethod),
    st.none() | st.sampled_from(Measure),
    st.none() | st.integers(1, 64),
    st.none() | st.lists(st.integers(-99, 99), min_size=1, max_size=5, unique=True).map(tuple),
    st.none() | st.lists(st.sampled_from(Neighbour), min_size=1, unique=True).map(tuple),
    st.none() | st.fractions(0, 99),
    st.none() | st.sampled_from(Selection),
)


def write(attribute):
    stream = StringIO()
    attribute.print_value(Printer(stream))
    return stream.getvalue()


def read(attribute, text):
    return attribute.new(attribute.parse_value(Parser(make_context(), text)))


@pytest.mark.parametrize(("text", "policy"), SPELLINGS.items(), ids=["analyse", "positions", "predict"])
def test_spellings(text, policy):
    assert write(BlocksAttr(policy)) == text
    assert read(BlocksAttr, text).data == policy


@given(WORDS)
def test_what_is_said_reads_back(words):
    policy = NumericPolicy(blocks=words, weights_per_channel=True, granularity=Granularity((2, 3)))
    assert read(NumericAttr, write(NumericAttr(policy))).data == policy
    assert read(BlocksAttr, write(BlocksAttr(words.policy()))).data == words.policy()


def test_what_is_not_said_is_as_by_default():
    assert read(BlocksAttr, "<predict>").data == BlockPolicy(BlockMethod.PREDICT)
    # A threshold means nothing to an analysis.
    assert read(BlocksAttr, "<analyse, threshold = 3>").data == BlockPolicy()


def test_positions_that_are_met():
    attribute = PositionsAttr(((4, (3, 3)), (9, (6, 6))))
    assert write(attribute) == "[4 of 3x3, 9 of 6x6]"
    assert read(PositionsAttr, "[4 of 3x3, 9 of 6x6]") == attribute


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<analyze>", 'did you mean "analyse"?'),
        ("<analyse, candidate = 3>", 'did you mean "candidates"?'),
        ("<analyse, measure = overflow>", 'did you mean "overflows"?'),
        ("<predict, neighbours = [below]>", "one of upper-left"),
    ],
)
def test_wrong_words(text, message):
    with pytest.raises(ParseError) as caught:
        read(BlocksAttr, text)
    assert message in caught.value.msg


@pytest.mark.parametrize(
    "text",
    [
        "<analyse, candidates = 65>",
        "<analyse, candidates = 0>",
        "<analyse, positions = [1, 1]>",
        "<predict, neighbours = []>",
        "<predict, threshold = -1>",
    ],
)
def test_impossible_policies(text):
    with pytest.raises(VerifyException):
        read(BlocksAttr, text)
    with pytest.raises(VerifyException):
        read(NumericAttr, f"<blocks = {text}>").verify()

"""Numeric policies in the IR: every policy reads back exactly."""

from dataclasses import replace
from fractions import Fraction
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from binpoint.dialect.policies import NumericAttr, PolicyAttr
from binpoint.dialect.text import make_context
from binpoint.support.numeric import (
    CONSTANT_BITS_RANGE,
    ExponentRule,
    Granularity,
    NumericPolicy,
    Rounding,
    TensorClass,
    TensorPolicy,
    UpdatePolicy,
)

RANGES = st.tuples(st.integers(-1024, 0), st.integers(0, 1023))
SHARES = st.fractions(0, 1)
UPDATES = st.builds(
    UpdatePolicy,
    st.sampled_from(ExponentRule),
    SHARES,
    SHARES,
    period=st.integers(1, 1000),
    window=st.none() | st.integers(1, 99),
    confidence=st.none() | SHARES.filter(lambda share: 0 < share < 1),
    patience=st.integers(1, 9),
    headroom=st.integers(0, 3),
)
GRANULARITIES = st.builds(Granularity, st.none() | st.tuples(st.integers(1, 99), st.integers(1, 99)), st.booleans())
PLAIN = st.builds(
    NumericPolicy,
    st.dictionaries(st.sampled_from(TensorClass), st.integers(2, 64)),
    GRANULARITIES,
    st.sampled_from(Rounding),
    UPDATES,
    st.dictionaries(st.sampled_from(TensorClass), UPDATES, max_size=3),
    st.integers(*CONSTANT_BITS_RANGE),
    RANGES,
    st.dictionaries(st.text(), st.integers(-128, 127), max_size=3),
)
POLICIES = st.builds(
    lambda base, overrides: replace(base, overrides=overrides), PLAIN, st.dictionaries(st.text(), PLAIN, max_size=2)
)


def write(attribute):
    stream = StringIO()
    attribute.print_value(Printer(stream))
    return stream.getvalue()


def read(attribute, text):
    return attribute.new(attribute.parse_value(Parser(make_context(), text)))


@given(POLICIES)
def test_numeric_policies_read_back(policy):
    attribute = NumericAttr(policy)
    again = read(NumericAttr, write(attribute))
    assert again == attribute
    assert hash(again) == hash(attribute)


@given(st.builds(lambda update, bounds, start: TensorPolicy(update, start, bounds), UPDATES, RANGES, st.none()))
def test_tensor_policies_read_back(policy):
    assert read(PolicyAttr, write(PolicyAttr(policy))).data == policy


def test_what_is_usual_is_short():
    assert write(PolicyAttr(TensorPolicy())) == "<msb-histogram, r_max = 1/50000, range = [-128, 127]>"
    fixed = TensorPolicy(UpdatePolicy(ExponentRule.FIXED, Fraction(0)), -3, (-8, 7))
    assert write(PolicyAttr(fixed)) == "<fixed, range = [-8, 7], initial = -3>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<msb-histogrm>", 'did you mean "msb-histogram"?'),
        ("<msb-max, rmax = 1>", 'did you mean "r_max"?'),
        ("<msb-max, period = 1, period = 2>", "twice"),
        ("<msb-max, range = [0]>", "2 integers"),
    ],
)
def test_wrong_policies(text, message):
    with pytest.raises(ParseError) as caught:
        read(PolicyAttr, text)
    assert message in caught.value.msg


@pytest.mark.parametrize(
    "text",
    [
        "<msb-max, r_max = 3/2>",
        "<msb+lsb, r_min = -1>",
        "<msb-max, period = 0>",
        "<msb-max, window = 0>",
        "<msb-max, patience = 0>",
        "<msb-histogram, confidence = 1>",
        "<msb-max, range = [1, 0]>",
        "<msb-max, range = [-1025, 0]>",
        "<msb-max, range = [0, 1024]>",
        "<msb-max, range = [0, 3], initial = 4>",
    ],
)
def test_impossible_policies(text):
    with pytest.raises(VerifyException):
        read(PolicyAttr, text)


def test_policies_of_single_classes():
    text = "<updates = {gradients = <msb-max, window = 16, headroom = 1>, weights = <fixed>}>"
    read_back = read(NumericAttr, text)
    read_back.verify()
    assert read_back.data.updates == {
        TensorClass.GRADIENTS: UpdatePolicy(ExponentRule.MSB_MAX, Fraction(0), window=16, headroom=1),
        TensorClass.WEIGHTS: UpdatePolicy(ExponentRule.FIXED, Fraction(0)),
    }
    assert "updates = {gradients = <msb-max, window = 16, headroom = 1>, weights = <fixed>}" in write(read_back)
    with pytest.raises(ParseError, match='did you mean "gradients"'):
        read(NumericAttr, "<updates = {gradient = <msb-max>}>")
    with pytest.raises(VerifyException):
        read(NumericAttr, "<updates = {gradients = <msb-max, period = 0>}>").verify()


def test_constants_need_two_bits():
    with pytest.raises(VerifyException, match="expected 2 to 16"):
        read(NumericAttr, "<constants = 1b>")

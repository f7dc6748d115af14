"""Bare values of attributes: what is printed reads back, what is wrong is refused with its place."""

from fractions import Fraction
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from binpoint.dialect.attributes import (
    BitsAttr,
    ConstantAttr,
    CountAttr,
    FractionAttr,
    FractionsAttr,
    NameAttr,
    NamesAttr,
    PaddingAttr,
    PairAttr,
    ShapeAttr,
)
from binpoint.dialect.fx_attributes import (
    AcquiresAttr,
    OnOverflowAttr,
    Overflow,
    OverflowAttr,
    ReciprocalsAttr,
)
from binpoint.dialect.policies import GranularityAttr, RoundingAttr
from binpoint.dialect.text import make_context
from binpoint.support.numeric import FixedConstant, Granularity, OnOverflow, Rounding


def read(attribute, text):
    parser = Parser(make_context(), text)
    value = attribute.new(attribute.parse_value(parser))
    assert parser.pos == len(text), "something is left"
    return value


def write(value):
    stream = StringIO()
    value.print_value(Printer(stream))
    return stream.getvalue()


SPELLINGS = [
    (FractionAttr(Fraction(1, 255)), "1/255"),
    (FractionAttr(Fraction(-3)), "-3"),
    (FractionsAttr((Fraction(97, 200), Fraction(0))), "[97/200, 0]"),
    (CountAttr(32), "32"),
    (BitsAttr(8), "8b"),
    (PairAttr((5, 3)), "5x3"),
    (PaddingAttr((0, 1, 2, 3)), "[0, 1, 2, 3]"),
    (ShapeAttr((16, 28, 28)), "16x28x28"),
    (NameAttr("conv1"), '"conv1"'),
    (NameAttr('a "quoted" \\ name'), '"a \\22quoted\\22 \\\\ name"'),
    (NamesAttr(("conv1", "relu1")), '["conv1", "relu1"]'),
    (ConstantAttr(FixedConstant(205, 11)), "205 * 2^-11"),
    (ConstantAttr(FixedConstant(-1, 0)), "-1 * 2^-0"),
    (RoundingAttr(Rounding.HALF_EVEN), "half-even"),
    (GranularityAttr(Granularity()), "tensor"),
    (GranularityAttr(Granularity(None, True)), "channel"),
    (GranularityAttr(Granularity((4, 2))), "block<4x2>"),
    (GranularityAttr(Granularity((4, 2), True)), "channel-block<4x2>"),
    (OnOverflowAttr(OnOverflow.WRAP), "wrap"),
    (OverflowAttr(Overflow.IMPOSSIBLE), "impossible"),
    (AcquiresAttr(("msb", "lsb")), "[msb, lsb]"),
    (ReciprocalsAttr((((4, 512), (9, 228)), 11)), "[1/4 = 512, 1/9 = 228] * 2^-11"),
]


@pytest.mark.parametrize(("value", "text"), SPELLINGS, ids=lambda item: item if isinstance(item, str) else "")
def test_spellings(value, text):
    assert write(value) == text
    assert read(type(value), text) == value


@pytest.mark.parametrize(
    ("attribute", "text", "message"),
    [
        (FractionAttr, "1/0", "denominator"),
        (FractionAttr, "half", "integer"),
        (CountAttr, "0", "at least 1"),
        (BitsAttr, "8", "'b'"),
        (PairAttr, "5", "2 sizes"),
        (PairAttr, "0x5", "2 sizes"),
        (PairAttr, "?x5", "2 sizes"),
        (PaddingAttr, "[1, 1]", "4 integers"),
        (PaddingAttr, "[1, 1, -1, 1]", "negative"),
        (ShapeAttr, "3x4", "3 sizes"),
        (NameAttr, "conv1", "string"),
        (ConstantAttr, "205 * 3^-11", "'2'"),
        (ConstantAttr, "205 * 2^11", "power of two"),
        (RoundingAttr, "half-evn", 'did you mean "half-even"?'),
        (RoundingAttr, "sideways", "one of floor, half-up"),
        (GranularityAttr, "block", "'<'"),
        (AcquiresAttr, "[mbs]", 'did you mean "msb"?'),
        (ReciprocalsAttr, "[2/4 = 512] * 2^-11", "'1'"),
    ],
)
def test_wrong_spellings(attribute, text, message):
    with pytest.raises(ParseError) as caught:
        read(attribute, text)
    assert message in caught.value.msg


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConstantAttr(FixedConstant(150, -1)),
        lambda: ConstantAttr(FixedConstant(2**63, 0)),
        lambda: ConstantAttr(FixedConstant(1, 1101)),
        lambda: AcquiresAttr(()),
        lambda: AcquiresAttr(("msb", "msb")),
        lambda: AcquiresAttr(("mantissa",)),
        lambda: ReciprocalsAttr(((), 0)),
        lambda: ReciprocalsAttr((((4, 1), (2, 1)), 3)),
        lambda: ReciprocalsAttr((((0, 1),), 3)),
        lambda: ReciprocalsAttr((((1, 2**63),), 3)),
    ],
)
def test_impossible_values(make):
    with pytest.raises(VerifyException):
        make()


@given(st.fractions())
def test_fractions_are_exact(value):
    assert read(FractionAttr, write(FractionAttr(value))).data == value


@given(st.text())
def test_names_hold_any_text(name):
    assert read(NameAttr, write(NameAttr(name))).data == name


@given(st.integers(1 - 2**63, 2**63 - 1), st.integers(0, 1100))
def test_constants_of_any_size(multiplier, fraction_bits):
    constant = FixedConstant(multiplier, fraction_bits)
    assert read(ConstantAttr, write(ConstantAttr(constant))).data == constant

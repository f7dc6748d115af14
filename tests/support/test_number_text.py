from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.support.number_text import format_number, parse_number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "0"),
        ("-3", "-3"),
        ("1/3", "1/3"),
        ("1/10", "0.1"),
        ("-1/4", "-0.25"),
        ("1/256", "1/256"),
        ("25/2", "12.5"),
        ("2e-5", "2e-5"),
        ("1.5e-7", "1.5e-7"),
        ("0.001", "0.001"),
        ("1e11", "100000000000"),
        ("1e20", "1e20"),
        ("0.0123", "0.0123"),
    ],
)
def test_numbers_are_printed_short(value, text):
    assert format_number(Fraction(value)) == text


@given(st.fractions() | st.integers().map(Fraction))
def test_printed_numbers_are_exact(value):
    numerator, _, denominator = format_number(value).partition("/")
    assert Fraction(numerator) / Fraction(denominator or 1) == value


@pytest.mark.parametrize(
    ("text", "value"), [("0.1", "1/10"), (" 1 / 255 ", "1/255"), (".5", "1/2"), ("-2e-3", "-1/500"), ("1/0.5", "2")]
)
def test_numbers_are_read_exactly(text, value):
    assert parse_number(text) == Fraction(value)


@pytest.mark.parametrize(
    "text", ["", "x", "nan", "inf", "1_0", "1/0", "1/2/3", "\u0663", "1e401", "1e-999999999999", "1" * 1301]
)
def test_what_is_no_number_or_too_large_is_refused_at_once(text):
    with pytest.raises(ValueError, match=r"number|zero"):
        parse_number(text)

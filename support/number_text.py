"""Exact numbers as text that reads back as the same number."""

from __future__ import annotations

import re
from fractions import Fraction

LONGEST_NUMBER, LARGEST_POWER = 1300, 400
"""Digits of a number that is read, and its power of ten: exact arithmetic on more would take forever."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")

_LONGEST_DECIMAL = 17
"""Digits of the longest number that is written as a decimal: those of a 64-bit floating-point number."""


def parse_number(text: str) -> Fraction:
    """The exact value of a decimal number, 0.1 or 1e-5, or of a fraction of two, 1/255.

    Raises ValueError for what is no number, and for one that is too large or too long.
    """
    numerator, slash, denominator = text.partition("/")
    try:
        return _parse_decimal(numerator) / (_parse_decimal(denominator) if slash else 1)
    except ZeroDivisionError:
        raise ValueError(f"{text} divides by zero") from None


def _parse_decimal(text: str) -> Fraction:
    number = _NUMBER.fullmatch(text.strip())
    # Lengths first: converting a power of a million digits would itself take forever.
    if number is None or len(text) > LONGEST_NUMBER or len(number[1] or "") > 5:
        raise ValueError("this is no number, or it is too long")
    if abs(int(number[1] or 0)) > LARGEST_POWER:
        raise ValueError("the number is too large or too small")
    return Fraction(number[0])


def format_number(value: Fraction) -> str:
    """A number, exactly: as a decimal, or as a fraction such as 1/255 where a decimal has no end or is long."""
    if value.denominator == 1 and abs(value) < 10**12:
        return str(value)
    rest, places = value.denominator, 0
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest, power = rest // prime, power + 1
        places = max(places, power)
    digits = (value * 10**places).numerator
    if rest != 1 or len(str(abs(digits)).rstrip("0")) > _LONGEST_DECIMAL:
        return str(value)
    decimal = _decimal(digits, -places)
    return decimal if len(decimal) <= len(str(value)) + 2 else str(value)


def _decimal(digits: int, power: int) -> str:
    """digits * 10^power in the shorter of the two usual forms: 0.001, 1e-5."""
    text = str(abs(digits))
    stripped = text.rstrip("0") or "0"
    power += len(text) - len(stripped)
    sign = "-" if digits < 0 else ""
    point = len(stripped) + power
    """Digits before the decimal point."""
    if -3 <= point <= 0:
        return f"{sign}0.{'0' * -point}{stripped}"
    if 0 < point < len(stripped):
        return f"{sign}{stripped[:point]}.{stripped[point:]}"
    mantissa = stripped if len(stripped) == 1 else f"{stripped[0]}.{stripped[1:]}"
    return f"{sign}{mantissa}e{point - 1}"

"""Values as the language writes them, exactly: what is printed reads back as the same number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from binpoint.compiler.layers import Attribute, AttributeType, LayerKind, format_shape

Value = Fraction | bool | tuple[Fraction, ...]
"""A number, a flag, or a size or list of numbers."""

_LONGEST_DECIMAL = 17
"""Digits of the longest number that is written as a decimal: those of a 64-bit floating-point number."""


def format_value(value: Value) -> str:
    """A value as the language writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Fraction):
        return format_number(value)
    if value and all(number.denominator == 1 and number >= 0 for number in value) and len(value) > 1:
        return "x".join(str(number) for number in value)
    return f"[{', '.join(format_number(number) for number in value)}]"


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


def format_attribute(attribute: Attribute, value: Any) -> str:
    """An attribute's normal form in its shortest spelling: 3 for (3, 3), 1x2 for padding (1, 2, 1, 2)."""
    match attribute.type:
        case AttributeType.FLAG:
            return "true" if value else "false"
        case AttributeType.INTEGER:
            return str(value)
        case AttributeType.REAL:
            return format_number(value)
        case AttributeType.SHAPE:
            return format_shape(value)
        case AttributeType.PADDING if value[:2] != value[2:]:
            return f"[{', '.join(map(str, value))}]"
    vertical, horizontal = value[:2]
    return str(vertical) if vertical == horizontal else f"{vertical}x{horizontal}"


def signature(kind: LayerKind) -> str:
    """How a layer kind is called: conv2d(x, channels, kernel, stride=1, ...); required attributes have no default."""
    least, most = kind.arity
    operands = ["x"] if most == 1 else [chr(ord("a") + index) for index in range(least)] + ["..."]
    attributes = sorted(kind.attributes, key=lambda attribute: not attribute.required)
    return f"{kind.name}({', '.join([*operands, *map(_declaration, attributes)])})"


def _declaration(attribute: Attribute) -> str:
    if attribute.required:
        return attribute.name
    default = "kernel" if attribute.default is None else format_attribute(attribute, attribute.default)
    return f"{attribute.name}={default}"

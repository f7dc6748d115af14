"""Values as the language writes them, exactly: what is printed reads back as the same number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from binpoint.compiler.layers import Attribute, AttributeType, LayerKind, format_shape
from binpoint.support.number_text import format_number

Value = Fraction | bool | tuple[Fraction, ...]
"""A number, a flag, or a size or list of numbers."""


def format_value(value: Value) -> str:
    """A value as the language writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Fraction):
        return format_number(value)
    if value and all(number.denominator == 1 and number >= 0 for number in value) and len(value) > 1:
        return "x".join(str(number) for number in value)
    return f"[{', '.join(format_number(number) for number in value)}]"


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

"""Expressions -> exact values -> attributes in normal form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from binpoint.compiler.frontends.dsl import syntax
from binpoint.compiler.frontends.dsl.formatting import Value, format_value
from binpoint.compiler.frontends.dsl.source import Source, shorten
from binpoint.compiler.layers import Attribute, AttributeType
from binpoint.support.diagnostics import Location, UserError, did_you_mean
from binpoint.support.number_text import LARGEST_POWER, LONGEST_NUMBER, format_number, parse_number

LARGEST_SIZE = 2**24
"""The largest extent of a feature map, window or list of channels."""

_MOST_BITS = 4096
"""Bits of a result: exact arithmetic on more would take forever."""

FLAGS = {"true": True, "false": False}
"""Words that are values: no parameter of a block can be called so."""

EXPECTED = {
    AttributeType.INTEGER: f"a whole number from 1 to {LARGEST_SIZE}",
    AttributeType.REAL: "a number such as 0.1, 1e-5 or 1/255",
    AttributeType.FLAG: "true or false",
    AttributeType.PAIR: f"a size such as 3 or 3x5 (vertical x horizontal), each from 1 to {LARGEST_SIZE}",
    AttributeType.PADDING: "1, 1x2 (vertical x horizontal) or [top, left, bottom, right], whole numbers from 0",
    AttributeType.SHAPE: "a shape such as 10 or 3x224x224 (channels x height x width)",
}
"""The types of attributes in words."""


@dataclass(frozen=True)
class Evaluator:
    """Evaluates expressions of one scope.

    `parameters` holds the numbers of the block, `used_at` says where the block is used; both are empty in the
    network itself. Every method raises UserError with one fault.
    """

    source: Source
    parameters: Mapping[str, Value]
    used_at: Location | None = None

    def value(self, expression: syntax.Expression) -> Value:
        """The exact value of an expression."""
        match expression:
            case syntax.Word():
                return self._word(expression)
            case syntax.Size(numbers=numbers):
                return tuple(self._literal(number) for number in numbers)
            case syntax.List(items=items):
                return tuple(self.number(item) for item in items)
            case _:
                return self.number(expression)

    def number(self, expression: syntax.Expression) -> Fraction:
        """The exact value of an expression that has to be a number."""
        match expression:
            case syntax.Number():
                return self._literal(expression)
            case syntax.Sum(terms=terms):
                total = Fraction(0)
                for sign, term in terms:
                    total += self.number(term) if sign == "+" else -self.number(term)
                    self._check_size(total, expression)
                return total
            case syntax.Product(first=first, rest=rest):
                return self._product(expression, first, rest)
        value = self.value(expression)
        if isinstance(value, Fraction):
            return value
        raise self.error("wrong-type", "arithmetic and lists take numbers", expression, "a number", value)

    def attribute(self, attribute: Attribute, expression: syntax.Expression) -> Any:
        """An attribute of a layer kind in normal form."""
        value = self.value(expression)
        normal: Any = _NORMAL_FORMS[attribute.type](value)
        if normal is None:
            expected = EXPECTED[attribute.type]
            raise self.error("wrong-type", f'wrong value of "{attribute.name}"', expression, expected, value)
        if attribute.bounds is not None and not attribute.bounds[0] <= normal <= attribute.bounds[1]:
            least, most = (format_number(bound) for bound in attribute.bounds)
            message = f'"{attribute.name}" is out of range'
            raise self.error("out-of-range", message, expression, f"a number from {least} to {most}", value)
        return normal

    def error(
        self,
        code: str,
        message: str,
        node: syntax.Expression | syntax.Detail,
        expected: str,
        value: Value | None = None,
        hint: str | None = None,
    ) -> UserError:
        """An error at a node; a value that is not written there is shown beside it."""
        found = self.source.excerpt(node.span)
        if value is not None and (shown := shorten(format_value(value))) != found:
            found = f"{found} = {shown}"
        return UserError(
            self.source.fault(code, message, node.span, found=found, expected=expected, hint=hint, used_at=self.used_at)
        )

    def _product(
        self,
        expression: syntax.Product,
        first: syntax.Expression,
        rest: tuple[tuple[str, syntax.Expression], ...],
    ) -> Fraction:
        result = self.number(first)
        for operator, factor in rest:
            value = self.number(factor)
            if operator == "/" and value == 0:
                raise self.error("wrong-type", "division by zero", factor, "a number that is not 0", value)
            result = result * value if operator == "*" else result / value
            self._check_size(result, expression)
        return result

    def _word(self, word: syntax.Word) -> Value:
        if word.text in FLAGS:
            return FLAGS[word.text]
        if word.text in self.parameters:
            return self.parameters[word.text]
        message = f'"{word.text}" is no parameter'
        expected = "a value or a parameter of the block" if self.parameters else "a value"
        hint = did_you_mean(word.text, [*self.parameters, *FLAGS])
        raise self.error("unknown-parameter", message, word, expected, hint=hint)

    def _literal(self, number: syntax.Number) -> Fraction:
        try:
            return parse_number(number.text)
        except ValueError:
            expected = f"at most {LONGEST_NUMBER} digits and powers of ten from -{LARGEST_POWER} to {LARGEST_POWER}"
            raise self.error("out-of-range", "the number is too large or too long", number, expected) from None

    def _check_size(self, value: Fraction, expression: syntax.Expression) -> None:
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
            expected = f"numbers of at most {_MOST_BITS} bits"
            raise self.error("out-of-range", "the result is too large or too fine", expression, expected)


def text_value(source: Source, text: syntax.Text) -> str:
    """A text without its quotes and escapes. Raises UserError for an escape that does not exist."""
    try:
        value: str = json.loads(text.quoted, strict=False)
        value.encode()  # fails at one half of a pair of escapes such as \ud83d\ude00
    except (json.JSONDecodeError, UnicodeEncodeError):
        expected = r"\" \\ \/ \b \f \n \r \t or \u and four hexadecimal digits after a backslash"
        found = source.excerpt(text.span)
        fault = source.fault("wrong-escape", "unknown escape in a text", text.span, found=found, expected=expected)
        raise UserError(fault) from None
    return value


def _whole(numbers: Value, least: int) -> tuple[int, ...] | None:
    """The numbers as integers, None where one is none or out of range. A single number is a tuple of one."""
    if isinstance(numbers, bool):
        return None
    listed = numbers if isinstance(numbers, tuple) else (numbers,)
    if all(number.denominator == 1 and least <= number <= LARGEST_SIZE for number in listed):
        return tuple(int(number) for number in listed)
    return None


def _integer(value: Value) -> int | None:
    whole = None if isinstance(value, tuple) else _whole(value, 1)
    return whole[0] if whole else None


def _real(value: Value) -> Fraction | None:
    return value if isinstance(value, Fraction) else None


def _flag(value: Value) -> bool | None:
    return value if isinstance(value, bool) else None


def _pair(value: Value) -> tuple[int, int] | None:
    match _whole(value, 1):
        case (int(both),):
            return both, both
        case (int(vertical), int(horizontal)):
            return vertical, horizontal
    return None


def _padding(value: Value) -> tuple[int, int, int, int] | None:
    match _whole(value, 0):
        case (int(all_sides),):
            return all_sides, all_sides, all_sides, all_sides
        case (int(vertical), int(horizontal)):
            return vertical, horizontal, vertical, horizontal
        case (int(top), int(left), int(bottom), int(right)):
            return top, left, bottom, right
    return None


def shape_of(value: Value) -> tuple[int, int, int] | None:
    """A shape (C, H, W); a single number is a vector. None where the value is no shape."""
    match _whole(value, 1):
        case (int(channels),):
            return channels, 1, 1
        case (int(channels), int(height), int(width)):
            return channels, height, width
    return None


_NORMAL_FORMS = {
    AttributeType.INTEGER: _integer,
    AttributeType.REAL: _real,
    AttributeType.FLAG: _flag,
    AttributeType.PAIR: _pair,
    AttributeType.PADDING: _padding,
    AttributeType.SHAPE: shape_of,
}

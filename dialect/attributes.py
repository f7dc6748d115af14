"""Attributes that both dialects share: exact numbers, sizes, names, words.

Each prints its value the same way everywhere: bare inside an operation (`kernel = 5x5`) and in angle brackets
as an attribute of its own (`#nn.pair<5x5>`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar, Generic, TypeVar

from xdsl.ir import Attribute, Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from binpoint.support.diagnostics import did_you_mean
from binpoint.support.numeric import FixedConstant

T = TypeVar("T")
W = TypeVar("W", bound=StrEnum)

CONSTANT_BITS, FRACTION_BITS = 63, 1100
"""The most bits of a constant's multiplier and after its binary point."""

_POWER = re.compile(r"\^-[0-9]+")


class ValueAttr(Data[T], ABC, Generic[T]):
    """An attribute around one Python value, with a short text of its own."""

    @classmethod
    @abstractmethod
    def parse_value(cls, parser: AttrParser) -> T:
        """Read the bare value."""

    @abstractmethod
    def print_value(self, printer: Printer) -> None:
        """Write the bare value."""

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> T:
        """Read the value in angle brackets."""
        with parser.in_angle_brackets():
            return cls.parse_value(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Write the value in angle brackets."""
        with printer.in_angle_brackets():
            self.print_value(printer)


def parse_fraction(parser: AttrParser) -> Fraction:
    """Read `3`, `-3` or `1/255`."""
    numerator = parser.parse_integer(allow_boolean=False)
    if parser.parse_optional_punctuation("/") is None:
        return Fraction(numerator)
    position = parser.pos
    denominator = parser.parse_integer(allow_boolean=False, allow_negative=False)
    if denominator == 0:
        parser.raise_error("a fraction's denominator must not be 0", position)
    return Fraction(numerator, denominator)


def parse_word(parser: AttrParser, words: Iterable[str]) -> str:
    """Read one of some words, such as `half-even` or `msb+lsb`."""
    known = list(words)
    position = parser.pos
    word = parser.parse_identifier()
    while (mark := parser.parse_optional_punctuation("-") or parser.parse_optional_punctuation("+")) is not None:
        word += mark + parser.parse_identifier()
    if word not in known:
        hint = did_you_mean(word, known) or f"one of {', '.join(known)}"
        parser.raise_error(f'unknown word "{word}": {hint}', position)
    return word


def parse_fields(parser: AttrParser, fields: dict[str, Callable[[], T]]) -> dict[str, T]:
    """Read `name = value, name = value` up to the closing bracket; each name at most once."""
    values: dict[str, T] = {}
    while True:
        position = parser.pos
        name = parser.parse_optional_identifier()
        if name is None:
            return values
        if name not in fields:
            hint = did_you_mean(name, fields) or f"one of {', '.join(fields)}"
            parser.raise_error(f'unknown field "{name}": {hint}', position)
        if name in values:
            parser.raise_error(f'the field "{name}" is given twice', position)
        parser.parse_punctuation("=")
        values[name] = fields[name]()
        if parser.parse_optional_punctuation(",") is None:
            return values


def parse_text(parser: AttrParser) -> str:
    """Read a string. The lexer takes one with escapes beyond ASCII for bytes."""
    position = parser.pos
    data = parser.parse_optional_bytes_literal()
    if data is None:
        return parser.parse_str_literal()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        parser.raise_error("the string is not UTF-8", position)


def parse_bits(parser: AttrParser) -> int:
    """Read a width such as `8b`."""
    bits = parser.parse_integer(allow_boolean=False, allow_negative=False)
    parser.parse_keyword("b", " after a width in bits")
    return bits


def parse_size(parser: AttrParser, dimensions: int) -> tuple[int, ...]:
    """Read sizes such as `3x224x224`: so many positive integers."""
    position = parser.pos
    sizes = tuple(parser.parse_dimension_list())
    if len(sizes) != dimensions or any(size < 1 for size in sizes):
        parser.raise_error(f"expected {dimensions} sizes of at least 1, such as {'x'.join('3' * dimensions)}", position)
    return sizes


def parse_integers(parser: AttrParser, count: int) -> tuple[int, ...]:
    """Read so many integers in square brackets: `[-128, 127]`."""
    position = parser.pos
    numbers = parser.parse_comma_separated_list(
        parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False)
    )
    if len(numbers) != count:
        parser.raise_error(f"expected {count} integers in square brackets", position)
    return tuple(numbers)


def join_sizes(sizes: Sequence[int]) -> str:
    """Sizes as they are printed: 3x224x224."""
    return "x".join(str(size) for size in sizes)


@irdl_attr_definition
class FractionAttr(ValueAttr[Fraction]):
    """An exact real number: `1/255`."""

    name = "nn.fraction"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> Fraction:
        """Read `1/255` or `3`."""
        return parse_fraction(parser)

    def print_value(self, printer: Printer) -> None:
        """Write `1/255` or `3`."""
        printer.print_string(str(self.data))


@irdl_attr_definition
class FractionsAttr(ValueAttr[tuple[Fraction, ...]]):
    """Exact real numbers, one or one a channel: `[97/200, 57/125]`."""

    name = "nn.fractions"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> tuple[Fraction, ...]:
        """Read fractions in square brackets."""
        return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_fraction(parser)))

    def print_value(self, printer: Printer) -> None:
        """Write fractions in square brackets."""
        printer.print_string(f"[{', '.join(str(value) for value in self.data)}]")


@irdl_attr_definition
class CountAttr(ValueAttr[int]):
    """A positive integer: `groups = 32`."""

    name = "nn.count"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> int:
        """Read a positive integer."""
        position = parser.pos
        value = parser.parse_integer(allow_boolean=False, allow_negative=False)
        if value < 1:
            parser.raise_error("expected an integer of at least 1", position)
        return value

    def print_value(self, printer: Printer) -> None:
        """Write the integer."""
        printer.print_string(str(self.data))


@irdl_attr_definition
class BitsAttr(ValueAttr[int]):
    """A width in bits: `8b`."""

    name = "fx.bits"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> int:
        """Read `8b`."""
        return parse_bits(parser)

    def print_value(self, printer: Printer) -> None:
        """Write `8b`."""
        printer.print_string(f"{self.data}b")


@irdl_attr_definition
class PairAttr(ValueAttr[tuple[int, int]]):
    """(vertical, horizontal), each at least 1: `5x5`."""

    name = "nn.pair"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> tuple[int, int]:
        """Read `5x5`."""
        vertical, horizontal = parse_size(parser, 2)
        return vertical, horizontal

    def print_value(self, printer: Printer) -> None:
        """Write `5x5`."""
        printer.print_string(join_sizes(self.data))


@irdl_attr_definition
class PaddingAttr(ValueAttr[tuple[int, int, int, int]]):
    """(top, left, bottom, right), each at least 0: `[1, 1, 1, 1]`."""

    name = "nn.padding"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> tuple[int, int, int, int]:
        """Read `[1, 1, 1, 1]`."""
        position = parser.pos
        top, left, bottom, right = parse_integers(parser, 4)
        if min(top, left, bottom, right) < 0:
            parser.raise_error("padding must not be negative", position)
        return top, left, bottom, right

    def print_value(self, printer: Printer) -> None:
        """Write `[1, 1, 1, 1]`."""
        printer.print_string(str(list(self.data)))


@irdl_attr_definition
class ShapeAttr(ValueAttr[tuple[int, int, int]]):
    """A feature map's (C, H, W): `16x28x28`."""

    name = "nn.shape"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> tuple[int, int, int]:
        """Read `16x28x28`."""
        channels, height, width = parse_size(parser, 3)
        return channels, height, width

    def print_value(self, printer: Printer) -> None:
        """Write `16x28x28`."""
        printer.print_string(join_sizes(self.data))


@irdl_attr_definition
class NameAttr(ValueAttr[str]):
    """A name of the network file: `"conv1"`."""

    name = "nn.name"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> str:
        """Read a string."""
        return parse_text(parser)

    def print_value(self, printer: Printer) -> None:
        """Write a string."""
        printer.print_string_literal(self.data)


@irdl_attr_definition
class NamesAttr(ValueAttr[tuple[str, ...]]):
    """Names of the network file: `["conv1", "relu1"]`."""

    name = "nn.names"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> tuple[str, ...]:
        """Read strings in square brackets."""
        return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_text(parser)))

    def print_value(self, printer: Printer) -> None:
        """Write strings in square brackets."""
        with printer.in_square_brackets():
            printer.print_list(self.data, printer.print_string_literal)


class WordAttr(ValueAttr[W], ABC, Generic[W]):
    """One of the words of an enumeration, bare: `half-even`."""

    WORDS: ClassVar[type[StrEnum]]

    @classmethod
    def parse_value(cls, parser: AttrParser) -> W:
        """Read one of the words."""
        return cls.WORDS(parse_word(parser, list(cls.WORDS)))  # type: ignore[return-value]

    def print_value(self, printer: Printer) -> None:
        """Write the word."""
        printer.print_string(self.data)


@irdl_attr_definition
class ConstantAttr(ValueAttr[FixedConstant]):
    """A fixed-point constant of the arithmetic: `205 * 2^-11`, or with what it stands in for `205 * 2^-11 for 1/10`."""

    name = "fx.constant"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> FixedConstant:
        """Read `205 * 2^-11` or `205 * 2^-11 for 1/10`."""
        multiplier, fraction_bits = parser.parse_integer(allow_boolean=False), parse_power(parser)
        named = parser.parse_optional_keyword("for") is not None
        return FixedConstant(multiplier, fraction_bits, parse_fraction(parser) if named else None)

    def print_value(self, printer: Printer) -> None:
        """Write `205 * 2^-11` or `205 * 2^-11 for 1/10`."""
        printer.print_string(str(self.data))
        if self.data.nearest_to is not None:
            printer.print_string(f" for {self.data.nearest_to}")

    def verify(self) -> None:
        """A constant never has a negative number of fraction bits: 300 is 300 * 2^-0."""
        multiplier, fraction_bits = self.data.multiplier, self.data.fraction_bits
        if multiplier.bit_length() > CONSTANT_BITS or not 0 <= fraction_bits <= FRACTION_BITS:
            raise VerifyException(
                f"a constant of {multiplier.bit_length()} bits and {fraction_bits} fraction bits, "
                f"expected at most {CONSTANT_BITS} and 0 to {FRACTION_BITS}"
            )


def parse_power(parser: AttrParser) -> int:
    """Read `* 2^-11`; the number of fraction bits, 11."""
    parser.parse_punctuation("*")
    parser.parse_characters("2")
    # The lexer takes ^-11 for the name of a block, so the token is found in the text.
    match = _POWER.match(parser.lexer.input.content, parser.pos)
    if match is None:
        parser.raise_error("expected a power of two such as 2^-11")
    parser.parse_characters(match.group())
    return int(match.group()[2:])


SHARED_ATTRIBUTES: list[type[Attribute]] = [
    FractionAttr,
    FractionsAttr,
    CountAttr,
    PairAttr,
    PaddingAttr,
    ShapeAttr,
    NameAttr,
    NamesAttr,
]
"""The attributes whose names begin with `nn`; the fx dialect uses them too."""

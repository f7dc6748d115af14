"""Attributes of the fx dialect alone: overflow and its proof, what is acquired, reciprocals of an average pool."""

from __future__ import annotations

from enum import StrEnum

from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.attributes import ConstantAttr, ValueAttr, WordAttr, parse_power, parse_word
from binpoint.support.numeric import ACQUISITIONS, FixedConstant, OnOverflow
from binpoint.support.phases import Phase


class Overflow(StrEnum):
    """The compiler's verdict from widths and the length of the reduction."""

    IMPOSSIBLE = "impossible"
    POSSIBLE = "possible"


@irdl_attr_definition
class OnOverflowAttr(WordAttr[OnOverflow]):
    """`saturate` or `wrap`."""

    name = "fx.on_overflow"
    WORDS = OnOverflow


@irdl_attr_definition
class OverflowAttr(WordAttr[Overflow]):
    """`impossible` or `possible`."""

    name = "fx.overflow"
    WORDS = Overflow


@irdl_attr_definition
class PhaseAttr(WordAttr[Phase]):
    """A part of a mini-batch: `forward`, `loss`, `backward` or `update`."""

    name = "fx.phase_of"
    WORDS = Phase


@irdl_attr_definition
class ChannelAttr(ValueAttr[int]):
    """The number of a channel, from 0: `16`."""

    name = "fx.channel"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> int:
        """Read an integer of at least 0."""
        return parser.parse_integer(allow_boolean=False, allow_negative=False)

    def print_value(self, printer: Printer) -> None:
        """Write the integer."""
        printer.print_string(str(self.data))


@irdl_attr_definition
class ExponentAttr(ValueAttr[int]):
    """An exponent: `-3`."""

    name = "fx.exponent"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> int:
        """Read an integer."""
        return parser.parse_integer(allow_boolean=False)

    def print_value(self, printer: Printer) -> None:
        """Write the integer."""
        printer.print_string(str(self.data))


@irdl_attr_definition
class TermsAttr(ValueAttr[tuple[tuple[int, ...], ...]]):
    """Products of operands by number, one a sum: `[0, 0 * 0]` sums the first operand, and its square."""

    name = "fx.terms"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> tuple[tuple[int, ...], ...]:
        """Read products in square brackets."""

        def product() -> tuple[int, ...]:
            factors = [parser.parse_integer(allow_boolean=False, allow_negative=False)]
            while parser.parse_optional_punctuation("*") is not None:
                factors.append(parser.parse_integer(allow_boolean=False, allow_negative=False))
            return tuple(factors)

        return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, product))

    def print_value(self, printer: Printer) -> None:
        """Write products in square brackets."""
        printer.print_string(f"[{', '.join(' * '.join(str(factor) for factor in term) for term in self.data)}]")


@irdl_attr_definition
class AcquiresAttr(ValueAttr[tuple[str, ...]]):
    """What the statistics circuits acquire: `[msb, lsb]`."""

    name = "fx.acquires"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> tuple[str, ...]:
        """Read words in square brackets."""
        words = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_word(parser, ACQUISITIONS))
        return tuple(words)

    def print_value(self, printer: Printer) -> None:
        """Write words in square brackets."""
        printer.print_string(f"[{', '.join(self.data)}]")

    def verify(self) -> None:
        """Each of the known quantities at most once, and at least one."""
        if not self.data or len(set(self.data)) < len(self.data) or not set(self.data) <= set(ACQUISITIONS):
            raise VerifyException(f"statistics of {list(self.data)}: expected msb, lsb or both, each once")


@irdl_attr_definition
class ReciprocalsAttr(ValueAttr[tuple[tuple[tuple[int, int], ...], int]]):
    """Multipliers of 1/d, one a divisor, at a common number of fraction bits: `[1/4 = 256, 1/6 = 171] * 2^-10`.

    The value is ((divisor, multiplier), ...) by ascending divisor, and the fraction bits.
    """

    name = "fx.reciprocals"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> tuple[tuple[tuple[int, int], ...], int]:
        """Read the multipliers and their power of two."""

        def entry() -> tuple[int, int]:
            parser.parse_characters("1")
            parser.parse_punctuation("/")
            divisor = parser.parse_integer(allow_boolean=False, allow_negative=False)
            parser.parse_punctuation("=")
            return divisor, parser.parse_integer(allow_boolean=False, allow_negative=False)

        entries = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, entry)
        return tuple(entries), parse_power(parser)

    def print_value(self, printer: Printer) -> None:
        """Write the multipliers and their power of two."""
        entries, fraction_bits = self.data
        text = ", ".join(f"1/{divisor} = {multiplier}" for divisor, multiplier in entries)
        printer.print_string(f"[{text}] * 2^-{fraction_bits}")

    def verify(self) -> None:
        """Divisors are positive and ascending; a multiplier is a constant of its own."""
        for _, multiplier in self.data[0]:
            ConstantAttr(FixedConstant(multiplier, self.data[1]))
        divisors = [divisor for divisor, _ in self.data[0]]
        if not divisors or divisors[0] < 1 or divisors != sorted(set(divisors)):
            raise VerifyException(f"the divisors {divisors} are not positive and ascending")

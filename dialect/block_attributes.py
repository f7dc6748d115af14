"""Attributes for exponents of blocks: how they are found, how many of them a PE meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.attributes import ValueAttr, join_sizes, parse_fields, parse_fraction, parse_size, parse_word
from binpoint.support.numeric import (
    BLOCK_OPTIONS,
    MOST_CANDIDATES,
    BlockMethod,
    BlockPolicy,
    BlockWords,
    Measure,
    Neighbour,
    Selection,
)

Positions = tuple[tuple[int, tuple[int, int]], ...]
"""(how many, of how many pixels), the latter as (height, width)."""


@irdl_attr_definition
class BlocksAttr(ValueAttr[BlockPolicy]):
    """How the blocks of a result get their exponents.

    <analyse, measure = overflows, candidates = 8, alignment = fraction>

    A prediction has `neighbours = [upper, left], threshold = 10` too; listed candidates are `positions = [6, 5, 4, 3]`.
    """

    name = "fx.blocks"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> BlockPolicy:
        """Read method and options in angle brackets."""
        return parse_words(parser).policy()

    def print_value(self, printer: Printer) -> None:
        """Write method and options in angle brackets."""
        printer.print_string(words_text(words_of(self.data)))

    def verify(self) -> None:
        """Candidates and neighbours are lists of distinct values, the threshold is not negative."""
        verify_words(words_of(self.data))


@irdl_attr_definition
class PositionsAttr(ValueAttr[Positions]):
    """How many exponents a PE meets at most in how many pixels: `[4 of 3x3, 9 of 6x6]`."""

    name = "fx.positions"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> Positions:
        """Read counts and sizes in square brackets."""

        def entry() -> tuple[int, tuple[int, int]]:
            count = parser.parse_integer(allow_boolean=False, allow_negative=False)
            parser.parse_keyword("of")
            height, width = parse_size(parser, 2)
            return count, (height, width)

        return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, entry))

    def print_value(self, printer: Printer) -> None:
        """Write counts and sizes in square brackets."""
        printer.print_string(f"[{', '.join(f'{count} of {join_sizes(size)}' for count, size in self.data)}]")


def words_of(policy: BlockPolicy) -> BlockWords:
    """The words that make a policy, without those that mean nothing to it."""
    words = BlockWords(**vars(policy))
    if policy.positions is not None:
        words = BlockWords(**(vars(words) | {"candidates": None}))
    if policy.method is BlockMethod.ANALYSE:
        words = BlockWords(**(vars(words) | {"neighbours": None, "threshold": None}))
    return words


def words_text(words: BlockWords) -> str:
    """`<predict, candidates = 4, neighbours = [left]>`."""
    fields = [f"{BLOCK_OPTIONS[name]} = {_text(value)}" for name, value in words.said.items() if name != "method"]
    return f"<{', '.join([words.method or BlockMethod.ANALYSE, *fields])}>"


def _text(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def parse_words(parser: AttrParser) -> BlockWords:
    """Read `<method, option = value, ...>`."""

    def integers() -> tuple[int, ...]:
        parse = parser.parse_integer
        return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse(allow_boolean=False)))

    def neighbours() -> tuple[Neighbour, ...]:
        words = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_word(parser, list(Neighbour)))
        return tuple(map(Neighbour, words))

    readers: dict[str, Callable[[], Any]] = {
        "measure": lambda: Measure(parse_word(parser, list(Measure))),
        "candidates": lambda: parser.parse_integer(allow_boolean=False, allow_negative=False),
        "positions": integers,
        "neighbours": neighbours,
        "threshold": lambda: parse_fraction(parser),
        "alignment": lambda: Selection(parse_word(parser, list(Selection))),
    }
    with parser.in_angle_brackets():
        method = BlockMethod(parse_word(parser, list(BlockMethod)))
        fields = {} if parser.parse_optional_punctuation(",") is None else parse_fields(parser, readers)
    return BlockWords(method, **{name: fields[option] for name, option in BLOCK_OPTIONS.items() if option in fields})


def verify_words(words: BlockWords) -> None:
    """Raise VerifyException for values that are out of range."""
    if words.candidates is not None and not 1 <= words.candidates <= MOST_CANDIDATES:
        raise VerifyException(f"{words.candidates} candidates, expected 1 to {MOST_CANDIDATES}")
    for name, listed in (("positions", words.positions), ("neighbours", words.neighbours)):
        if listed is not None and not 1 <= len(set(listed)) == len(listed) <= MOST_CANDIDATES:
            raise VerifyException(f"{name} = {_text(listed)}: expected at least one, each once")
    if words.threshold is not None and words.threshold < 0:
        raise VerifyException(f"the threshold {words.threshold} is negative")

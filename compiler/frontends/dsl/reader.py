"""Source text -> syntax tree: drives lark's parser token by token, so that one fault does not hide the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from binpoint.compiler.frontends.dsl import syntax
from binpoint.compiler.frontends.dsl.builder import build_tree
from binpoint.compiler.frontends.dsl.source import Source, Span
from binpoint.compiler.frontends.dsl.syntax_errors import STATEMENT_ENDS, OpenCall, syntax_error
from binpoint.support.diagnostics import Collector

MAXIMUM_SYNTAX_ERRORS = 20
"""After that many faults the rest is more likely noise than help."""

MAXIMUM_NESTING = 32
"""How deep parentheses, brackets and braces may nest."""

KEYWORDS = frozenset(
    (
        *("NETWORK", "INPUT", "WEIGHTS", "OUTPUT", "BLOCK", "RETURN", "NUMERIC", "LAYER", "EXPONENTS", "BITS", "EVERY"),
        "PER",
        *("DETECTION", "CLASSES", "FROM", "HEAD"),
    )
)
"""Terminals that are ordinary names wherever only a name fits, and before "="."""

_OPENING = frozenset({"LPAR", "LSQB", "LBRACE"})
_AFTER_KEYWORD = KEYWORDS | {"NAME", "STRING", "LBRACE"}


class _KeepUnknown:
    """Makes lark's lexer hand over UNKNOWN, which no rule uses, instead of raising at the first one."""

    always_accept = ("UNKNOWN",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


@cache
def grammar() -> Lark:
    """The compiled grammar (`grammar.lark`)."""
    text = resources.files(__package__).joinpath("grammar.lark").read_text(encoding="utf-8")
    options: dict[str, Any] = {"start": "file", "parser": "lalr", "lexer": "basic", "postlex": _KeepUnknown()}
    return Lark(text, propagate_positions=True, **options)


def read(source: Source) -> syntax.File:
    """The syntax tree of a network file.

    Raises:
        UserError: with up to MAXIMUM_SYNTAX_ERRORS faults; after each, reading goes on with the next statement.
    """
    reader = _Reader(source)
    tree = reader.run()
    reader.collector.raise_any()
    return build_tree(tree)


@dataclass(frozen=True)
class _ResumePoint:
    """A place on the parser's stack where a statement can begin, and the terminals that fit there."""

    parser: InteractiveParser
    fitting: frozenset[str]


class _Reader:
    """One pass over the tokens of a file.

    After a fault, tokens are skipped up to the next statement: the first token of a line that is not indented
    deeper than the broken statement, or the brace that closes around it. Reading goes on at the innermost list
    of statements where that token fits.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.collector = Collector()
        self.parser = grammar().parse_interactive()
        self.resume_points: list[_ResumePoint] = []
        """Not empty while skipping, innermost first."""
        self.broken_column = 1
        self.skipped_braces = 0

    def run(self) -> Tree[Token]:
        """Feed all tokens; the tree is whole only where the collector stays empty."""
        previous = Token("$START", "", 0, 1, 1, 1, 1, 0)
        tree: Tree[Token] = Tree("file", [])
        for token, following in _with_next(grammar().lex(self.source.text), len(self.source.text)):
            self._settle_keyword(token, previous, following)
            if not self.resume_points or self._resumes(token, previous):
                if token.type in _OPENING and len(self._open_brackets()) >= MAXIMUM_NESTING:
                    self._report_nesting(token)
                    break
                try:
                    tree = self.parser.feed_token(token)
                except UnexpectedToken:
                    self._report(token, previous)
                    if len(self.collector.diagnostics) >= MAXIMUM_SYNTAX_ERRORS:
                        break
                    self._start_skipping(token)
                    if self._resumes(token, previous):
                        self.parser.feed_token(token)
            previous = token
        return tree

    def _settle_keyword(self, token: Token, previous: Token, following: Token) -> None:
        """Turn a keyword that can only be a name here into a name."""
        if token.type not in KEYWORDS:
            return
        starts_line = token.line != previous.line and following.line == token.line
        starts_statement = starts_line and following.type in _AFTER_KEYWORD
        fits = starts_statement or token.type in self.parser.choices()  # type: ignore[no-untyped-call]
        fits = fits or any(token.type in point.fitting for point in self.resume_points)
        if following.type == "EQUAL" or not fits:
            token.type = "NAME"

    def _report(self, token: Token, previous: Token) -> None:
        braces = [bracket for bracket in self._open_brackets() if bracket.type == "LBRACE"]
        unclosed = braces[-1] if braces else None
        call = self._open_call()
        self.collector.add(syntax_error(self.source, token, previous, _fitting(self.parser), unclosed, call))

    def _report_nesting(self, token: Token) -> None:
        span = Span(token.start_pos or 0, token.end_pos or 0)
        expected = f"at most {MAXIMUM_NESTING} brackets inside each other"
        self.collector.add(self.source.fault("nested-too-deep", "the brackets nest too deep", span, expected=expected))

    def _open_brackets(self) -> list[Token]:
        """The brackets that the parser has not seen closed, outermost first."""
        stack = self.parser.parser_state.value_stack
        return [value for value in stack if isinstance(value, Token) and value.type in _OPENING]

    def _open_call(self) -> OpenCall | None:
        """The call whose arguments the parser is in."""
        stack = self.parser.parser_state.value_stack
        depths = [depth for depth, value in enumerate(stack) if isinstance(value, Token) and value.type in _OPENING]
        if not depths or depths[-1] == 0:
            return None
        callee = stack[depths[-1] - 1]
        if stack[depths[-1]].type != "LPAR" or not isinstance(callee, Token) or callee.type != "NAME":
            return None
        return OpenCall(str(callee), frozenset(_attribute_names(stack[depths[-1] + 1 :])))

    def _start_skipping(self, token: Token) -> None:
        """Find the places where reading could go on, and how far the broken statement is indented."""
        stack = [*self.parser.parser_state.value_stack, token]
        for depth in range(len(stack) - 1, -1, -1):
            parser = self.parser.copy(deepcopy_values=False)  # type: ignore[no-untyped-call]
            del parser.parser_state.state_stack[depth + 1 :]
            del parser.parser_state.value_stack[depth:]
            fitting = _fitting(parser)
            if not fitting.isdisjoint(STATEMENT_ENDS):
                if not self.resume_points:
                    first = stack[depth].meta if isinstance(stack[depth], Tree) else stack[depth]
                    self.broken_column = getattr(first, "column", None) or _column(token)
                self.resume_points.append(_ResumePoint(parser, fitting))
        self.skipped_braces = 0

    def _resumes(self, token: Token, previous: Token) -> bool:
        """Whether reading goes on with this token; if so, the parser is ready for it."""
        if token.type == "LBRACE":
            self.skipped_braces += 1
        elif token.type == "RBRACE" and self.skipped_braces:
            self.skipped_braces -= 1
            return False
        starts_statement = token.line != previous.line and _column(token) <= self.broken_column
        if self.skipped_braces or not (starts_statement or token.type in STATEMENT_ENDS):
            return False
        for point in self.resume_points:
            if token.type in point.fitting:
                self.parser, self.resume_points = point.parser, []
                return True
        return False


def _with_next(tokens: Iterable[Token], end: int) -> Iterator[tuple[Token, Token]]:
    """Each token with the one after it; the last is $END, which is followed by itself."""
    current: Token | None = None
    for token in tokens:
        if current is not None:
            yield current, token
        current = token
    line, column = (current.end_line, current.end_column) if current is not None else (1, 1)
    last = Token("$END", "", end, line, column, line, column, end)
    if current is not None:
        yield current, last
    yield last, last


def _fitting(parser: InteractiveParser) -> frozenset[str]:
    """The terminals that fit next."""
    return frozenset(parser.accepts())  # type: ignore[no-untyped-call]


def _attribute_names(values: Iterable[Any]) -> Iterator[str]:
    """The names of the attributes among a call's arguments; lark gathers repeated ones in trees of its own."""
    for value in values:
        if isinstance(value, Tree) and value.data == "attribute":
            yield str(value.children[0])
        elif isinstance(value, Tree) and str(value.data).startswith("_"):
            yield from _attribute_names(value.children)


def _column(token: Token) -> int:
    return token.column or 1

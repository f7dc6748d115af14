"""Syntax errors in words a user understands."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lark import Token

from binpoint.compiler.frontends.dsl.source import Source, Span
from binpoint.compiler.layers import LAYER_KINDS
from binpoint.support.diagnostics import Diagnostic, did_you_mean

WORDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "SIZE": "a size such as 3x5",
    "STRING": "a text in quotes",
    "INSIDE": '".*"',
    "SIGN": '"+" or "-"',
    "OPERATOR": '"*" or "/"',
    "RPAR": '")"',
    "RSQB": '"]"',
    "COMMA": '","',
    "LPAR": '"("',
    "LSQB": '"["',
    "EQUAL": '"="',
    "COLON": '":"',
    "LESSTHAN": '"<"',
    "MORETHAN": '">"',
    "LBRACE": '"{"',
    "RBRACE": '"}"',
    "NETWORK": '"network"',
    "INPUT": '"input"',
    "WEIGHTS": '"weights"',
    "OUTPUT": '"output"',
    "BLOCK": '"block"',
    "RETURN": '"return"',
    "DETECTION": '"detection"',
    "CLASSES": '"classes"',
    "FROM": '"from"',
    "HEAD": '"head"',
    "NUMERIC": '"numeric"',
    "LAYER": '"layer"',
    "EXPONENTS": '"exponents"',
    "BITS": '"bits"',
    "PER": '"per"',
    "EVERY": '"every"',
    "$END": "the end of the file",
}
"""The terminals of the grammar, in the order in which an error lists them."""

_GROUPS = (
    (frozenset({"NAME", "NUMBER", "SIZE", "LSQB", "LPAR", "SIGN"}), "a value"),
    (frozenset({"NAME", "NUMBER", "SIZE", "LSQB", "LPAR"}), "a value"),
    (frozenset({"SIGN", "OPERATOR"}), "an operator"),
)
"""Terminals that are clearer as one word where all of them fit."""

_HINTS = {
    ";": "statements need nothing between them",
    ",": "statements need nothing between them",
    "'": 'texts stand in "double quotes"',
}


STATEMENT_ENDS = frozenset({"RBRACE", "$END"})
"""Where one of these fits, a statement may have ended."""

_KEYWORDS = tuple(word.strip('"') for name, word in WORDS.items() if word == f'"{name.lower()}"')


@dataclass(frozen=True)
class OpenCall:
    """A call whose arguments are not all read: a layer kind or a block, and the attributes that it has so far."""

    name: str
    attributes: frozenset[str]


def syntax_error(
    source: Source,
    token: Token,
    previous: Token,
    fitting: Collection[str],
    unclosed: Token | None,
    call: OpenCall | None = None,
) -> Diagnostic:
    """The diagnostic of a token that does not fit after the previous one.

    `fitting` are the terminals that would fit, `unclosed` is the innermost brace that is still open, `call` the call
    whose arguments the token stands among.
    """
    span = Span(token.start_pos or 0, token.end_pos or 0)
    expected = _listing(fitting)
    if token.type == "UNKNOWN":
        return _unknown(source, token, span, expected)
    hint = _hint(token, previous, fitting, unclosed) or _hint_at_attribute(token, fitting, call)
    if token.type != "$END" and (token.line == previous.line or not STATEMENT_ENDS.isdisjoint(fitting)):
        shown = source.excerpt(span) if token.type == "STRING" else f'"{source.excerpt(span)}"'
        return source.fault("syntax-error", f"unexpected {shown}", span, expected=expected, hint=hint)
    # The place to look at is where something is missing, not where the next statement begins.
    what = "file" if token.type == "$END" else "line"
    end = previous.end_pos or 0
    message = f'unexpected end of the {what} after "{source.excerpt(Span(previous.start_pos or 0, end))}"'
    return source.fault("syntax-error", message, Span(end, end), expected=expected, hint=hint)


def _unknown(source: Source, token: Token, span: Span, expected: str) -> Diagnostic:
    if token.startswith('"'):
        message, expected = "the text in quotes is not closed on its line", 'a closing " on the line'
        return source.fault("unclosed-text", message, span, expected=expected)
    first = token[0]
    message = f"unexpected character {first if first.isprintable() else f'U+{ord(first):04X}'}"
    return source.fault("unknown-character", message, span, expected=expected, hint=_HINTS.get(first))


def _hint(token: Token, previous: Token, fitting: Collection[str], unclosed: Token | None) -> str | None:
    if token.type == "COMMA" and not STATEMENT_ENDS.isdisjoint(fitting):
        return _HINTS[","]
    if unclosed is not None and token.type in {"NETWORK", "BLOCK", "DETECTION", "NUMERIC", "$END"}:
        return f'the "{{" of line {unclosed.line} is not closed'
    # A misspelt keyword is a name: this one, or the one before that seems to begin an assignment.
    word = previous if "EQUAL" in fitting else token
    known = _KEYWORDS if word is previous else [name.lower() for name in fitting if name.lower() in _KEYWORDS]
    return did_you_mean(str(word), known) if word.type == "NAME" and str(word) not in _KEYWORDS else None


def _hint_at_attribute(token: Token, fitting: Collection[str], call: OpenCall | None) -> str | None:
    """How to write a bare value among the arguments of a call: linear(x, 10)."""
    if call is None or token.type not in {"NUMBER", "SIZE", "LSQB"} or "NAME" not in fitting:
        return None
    name: str | None = "name"  # of a block, which may not have been read yet
    if call.name in LAYER_KINDS:
        known = [attribute.name for attribute in LAYER_KINDS[call.name].attributes]
        name = next((attribute for attribute in known if attribute not in call.attributes), None)
    return name and f"attributes are written by name: {name}={'[...]' if token.type == 'LSQB' else token}"


def _listing(fitting: Collection[str]) -> str:
    """The terminals as a sentence: a name, "(" or the end of the file."""
    names = set(fitting)
    words = []
    for members, word in _GROUPS:
        if members <= names:
            names -= members
            words.append(word)
    words += [word for name, word in WORDS.items() if name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"

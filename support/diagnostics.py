"""User errors: one type, with place, found, expected and hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Location:
    """A place in a user's file. Lines and columns count from 1; None where the format has none."""

    file: str
    line: int | None = None
    column: int | None = None
    length: int = 1
    text: str | None = None
    """The offending source line, shown under the message."""
    used_at: Location | None = None
    """Where the block that holds this place is used, for places inside a reusable block."""

    def __str__(self) -> str:
        numbers = [str(n) for n in (self.line, self.column) if n is not None]
        return ":".join([self.file, *numbers])


@dataclass(frozen=True)
class Diagnostic:
    """One fault in the user's input.

    `code` is a stable kebab-case name, `message` one sentence, `found` the offending text or value. `rows` is
    a table of particulars, its first row the headings; it is printed with aligned columns.
    """

    code: str
    message: str
    location: Location | None = None
    found: str | None = None
    expected: str | None = None
    hint: str | None = None
    rows: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        """The diagnostic as the command line prints it: message, place, source line, table, expected, hint."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.location is not None:
            lines.append(f"  --> {self.location}")
            lines.extend(_excerpt(self.location))
            lines.extend(f"  used at:  {place}" for place in _uses(self.location))
        lines.extend(_aligned(self.rows))
        for label in ("found", "expected", "hint"):
            value = getattr(self, label)
            if value is not None:
                lines.append(f"  {label + ':':<9} {value}")
        return printable("\n".join(lines))


class UserError(Exception):
    """Bad input of any kind, as one or more diagnostics. The command line prints them and exits with 2."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        if not diagnostics:
            raise ValueError("a UserError needs at least one diagnostic")
        self.diagnostics = diagnostics
        super().__init__("\n".join(str(diagnostic) for diagnostic in diagnostics))


def user_error(
    code: str,
    message: str,
    *,
    location: Location | None = None,
    found: object = None,
    expected: str | None = None,
    hint: str | None = None,
) -> UserError:
    """A UserError of one diagnostic; `found` is shown with str()."""
    text = None if found is None else str(found)
    return UserError(Diagnostic(code, message, location, text, expected, hint))


@dataclass
class Collector:
    """Gathers diagnostics so that several faults are reported in one go."""

    diagnostics: list[Diagnostic] = field(default_factory=list)

    def add(self, diagnostic: Diagnostic) -> None:
        """Keep one diagnostic for later."""
        self.diagnostics.append(diagnostic)

    @contextmanager
    def catch(self) -> Iterator[None]:
        """Keep the diagnostics of a UserError raised inside and go on after the block."""
        try:
            yield
        except UserError as error:
            self.diagnostics.extend(error.diagnostics)

    def raise_any(self) -> None:
        """Raise everything gathered, in order, if there is anything."""
        if self.diagnostics:
            raise UserError(*self.diagnostics)


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """A hint that names the closest candidate, or None when nothing is close."""
    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f'did you mean "{close[0]}"?' if close else None


def _aligned(rows: tuple[tuple[str, ...], ...]) -> list[str]:
    """The rows as text, each column as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip() for row in rows
    ]


EXCERPT_WIDTH = 120
"""Longer source lines are cut to a window around the offending column."""


def _excerpt(location: Location) -> list[str]:
    """The source line with a caret line under the offending columns."""
    if location.text is None or location.line is None:
        return []
    column = location.column or 1
    first = max(0, column - EXCERPT_WIDTH // 2) if len(location.text) > EXCERPT_WIDTH else 0
    # A tab becomes one space, so that columns are characters.
    text = location.text[first : first + EXCERPT_WIDTH].expandtabs(1).rstrip()
    margin = " " * len(str(location.line))
    lines = [f" {margin} |", f" {location.line} | {text}"]
    if location.column is not None:
        width = max(1, min(location.length, len(text) - (column - first) + 1))
        lines.append(f" {margin} | {' ' * (column - first - 1)}{'^' * width}")
    return lines


def printable(text: str) -> str:
    """The text without control characters, which could steer the terminal; line ends stay."""
    return "".join(
        character if character.isprintable() or character == "\n" else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def _uses(location: Location) -> Iterator[Location]:
    """The places where the enclosing blocks are used, innermost first."""
    while location.used_at is not None:
        location = location.used_at
        yield location

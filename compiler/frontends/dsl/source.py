"""A source text and places in it: offsets become lines and columns only when somebody asks."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from binpoint.support.diagnostics import Diagnostic, Location


class Span(NamedTuple):
    """A stretch of the source as half-open offsets."""

    start: int
    end: int


@dataclass(frozen=True)
class Source:
    """The text of one file, and its name as diagnostics print it."""

    file: str
    text: str

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self._lines:
            starts.append(starts[-1] + len(line) + 1)
        return starts[:-1]

    def location(self, span: Span, used_at: Location | None = None) -> Location:
        """The place of a span; one that goes on over a line end is cut there."""
        line = bisect_right(self._starts, span.start)
        text = self._lines[line - 1].rstrip("\r")
        column = span.start - self._starts[line - 1] + 1
        length = max(1, min(span.end - span.start, len(text) - column + 1))
        return Location(self.file, line, column, length, text, used_at)

    def excerpt(self, span: Span) -> str:
        """The text of a span on one line, shortened where it is long."""
        return shorten(" ".join(self.text[span.start : min(span.end, span.start + 200)].split()))

    def fault(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        found: str | None = None,
        expected: str | None = None,
        hint: str | None = None,
        used_at: Location | None = None,
    ) -> Diagnostic:
        """A diagnostic at a span; `used_at` is the call of the block that the span lies in."""
        return Diagnostic(code, message, self.location(span, used_at), found, expected, hint)


def shorten(text: str) -> str:
    """A text that fits beside its label in a diagnostic."""
    return text if len(text) <= 60 else f"{text[:57]}..."

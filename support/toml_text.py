"""Where the keys of a TOML text stand: `tomllib` gives values without places, diagnostics want both."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from binpoint.support.diagnostics import Location, UserError, user_error

_WORD = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_DOTTED = rf"{_WORD}(?:\s*\.\s*{_WORD})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]")
_PAIR = re.compile(rf"\s*({_DOTTED})\s*=\s*")
_MOST_BITS = 1024
"""Far more than TOML wants (64). Python does not turn much larger numbers into text."""

_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


class TomlText:
    """A parsed TOML text: its `data` and the places of its keys.

    Keys inside an inline table or an array have the place of the key that holds them.

    Raises:
        UserError: located, when the text is not TOML.
    """

    def __init__(self, text: str, file: str, what: str) -> None:
        self.file = file
        self.lines = text.split("\n")
        try:
            self.data: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise user_error(
                "bad-toml",
                f"the {what} is not TOML: {_PLACE.sub('', str(error))}",
                location=self._error_place(str(error)),
            ) from None
        except RecursionError:
            raise user_error("bad-toml", f"the {what} nests too deep", location=Location(file)) from None
        except ValueError:  # a number of more digits than Python converts
            raise self._too_large(what, Location(file)) from None
        self._places = dict(self._scan())
        for path in _large_integers(self.data):
            raise self._too_large(what, self.value(*path))

    def key(self, *path: str) -> Location:
        """The place of a key (or table header), or of the nearest key around it."""
        line, columns, _ = self._nearest(path)
        return self._location(line, columns)

    def value(self, *path: str) -> Location:
        """The place of a key's value, or of the nearest value around it."""
        line, _, columns = self._nearest(path)
        return self._location(line, columns)

    def _nearest(self, path: tuple[str, ...]) -> _Place:
        while path and path not in self._places:
            path = path[:-1]
        return self._places.get(path, _NOWHERE)

    def _location(self, line: int, columns: tuple[int, int]) -> Location:
        if line == 0:
            return Location(self.file)
        start, end = columns
        return Location(self.file, line, start + 1, max(1, end - start), self.lines[line - 1])

    def _scan(self) -> list[tuple[tuple[str, ...], _Place]]:
        """(path, place) of every header and key. The text is known to be valid, so line by line is enough."""
        places = []
        table: tuple[str, ...] = ()
        quotes: str | None = None
        for number, line in enumerate(self.lines, 1):
            start_inside = quotes is not None
            quotes = _open_quotes(line, quotes)
            if start_inside:
                continue
            if header := _HEADER.match(line):
                table = _split(header[1])
                places.append((table, (number, header.span(1), header.span(1))))
            elif pair := _PAIR.match(line):
                end = len(line.split("#")[0].rstrip()) if "#" in line[pair.end() :] else len(line.rstrip())
                places.append(((*table, *_split(pair[1])), (number, pair.span(1), (pair.end(), end))))
        return places

    def _too_large(self, what: str, place: Location) -> UserError:
        message, expected = f"the {what} holds a number that is too large", f"at most {_MOST_BITS} bits"
        return user_error("bad-toml", message, location=place, expected=expected)

    def _error_place(self, message: str) -> Location:
        place = _PLACE.search(message)
        line, column = (int(place[1]), int(place[2])) if place and place[1] else (len(self.lines), None)
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else None
        return Location(self.file, line or None, column, 1, text)


_Place = tuple[int, tuple[int, int], tuple[int, int]]
"""Line (from 1), columns of the key and of the value (from 0, half open)."""

_NOWHERE: _Place = (0, (0, 0), (0, 0))


def _large_integers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of whole numbers that are too large to be shown."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _large_integers(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from _large_integers(item, path)
    elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
        yield path


def _split(dotted: str) -> tuple[str, ...]:
    return tuple(word.strip("\"'") for word in re.findall(_WORD, dotted))


def _open_quotes(line: str, quotes: str | None) -> str | None:
    '''The multi-line quotes (""" or \'\'\') that are open after this line.'''
    for mark in re.findall(r'"""|\'\'\'', line):
        if quotes is None:
            quotes = mark
        elif quotes == mark:
            quotes = None
    return quotes

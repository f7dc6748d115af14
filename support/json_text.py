"""Where the values of a JSON text stand: `json` gives values without places, diagnostics want both."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from binpoint.support.diagnostics import Location, user_error

Path = tuple[str | int, ...]
"""The way to a value: keys of objects and indices of arrays, from the outside in."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


class JsonText:
    """A parsed JSON text: its `data` and, on demand, the places of its values.

    Raises:
        UserError: located, when the text is not JSON, or an object has a key twice.
    """

    def __init__(self, text: str, file: str, what: str) -> None:
        self.text, self.file, self._what = text, file, what
        try:
            self.data: Any = json.loads(text, object_pairs_hook=self._object, parse_constant=self._constant)
        except json.JSONDecodeError as error:
            message = f"the {what} is not JSON: {error.msg[0].lower()}{error.msg[1:]}"
            raise user_error("bad-json", message, location=self._location(error.pos, 1)) from None
        except RecursionError:
            raise user_error("bad-json", f"the {what} nests too deep", location=Location(file)) from None
        except ValueError:  # an integer of more digits than Python converts
            raise user_error(
                "bad-json", f"the {what} holds a number that is too large", location=Location(file)
            ) from None

    def place(self, path: Path) -> Location:
        """The place of one value."""
        return self.places({path})[path]

    def places(self, paths: Collection[Path]) -> dict[Path, Location]:
        """The places of values, in one walk through the text. A path to nothing has the place of what is around it."""
        wanted = {part for path in paths for part in _inwards(path)}
        found = {path: self._location(start, length) for path, start, length in self._walk() if path in wanted}
        return {path: next(found[part] for part in _inwards(path) if part in found) for path in paths}

    def _walk(self) -> Iterator[tuple[Path, int, int]]:
        """(path, offset, length) of every value in the order of the text; an object or array counts as its bracket."""
        stack: list[str | int | None] = []  # the key or index of the value that comes next, for each open bracket
        for token in _TOKEN.finditer(self.text):
            mark = token[0]
            if mark in ("]", "}"):
                stack.pop()
            elif mark == ",":
                stack[-1] = stack[-1] + 1 if isinstance(stack[-1], int) else None
            elif mark == ":":
                continue
            elif stack and stack[-1] is None:
                stack[-1] = json.loads(mark)
            else:
                yield tuple(key for key in stack if key is not None), token.start(), len(mark)
                if mark in ("[", "{"):
                    stack.append(0 if mark == "[" else None)

    def _location(self, offset: int, length: int) -> Location:
        line = self.text.count("\n", 0, offset) + 1
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", start)
        return Location(self.file, line, offset - start + 1, length, self.text[start : None if end < 0 else end])

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            message = f"the {self._what} has a key twice in one object"
            raise user_error("repeated-key", message, location=Location(self.file), found=twice)
        return data

    def _constant(self, name: str) -> Any:
        message = f"the {self._what} holds {name}, which is not JSON"
        raise user_error("bad-json", message, location=Location(self.file), found=name)


def _inwards(path: Path) -> list[Path]:
    """A path and the paths of everything around it, the nearest first."""
    return [path[:length] for length in range(len(path), -1, -1)]

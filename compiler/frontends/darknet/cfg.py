"""The text of a .cfg file as sections of located options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from binpoint.support.diagnostics import Collector, Diagnostic, Location, user_error
from binpoint.support.files import read_text

LONGEST_FILE = 2**22
"""The most characters of a .cfg file."""

MOST_SECTIONS = 10_000
"""The most sections of a file."""

COMMENT_STARTS = ("#", ";")


@dataclass(frozen=True)
class Option:
    """The text behind `key=`, without spaces, and where it stands."""

    text: str
    location: Location


@dataclass(frozen=True)
class Section:
    """A `[name]` line and the options below it."""

    name: str
    location: Location
    options: Mapping[str, Option]


def read_cfg(path: Path) -> tuple[Section, ...]:
    """The sections of a file, at least one.

    Spaces mean nothing anywhere; a line that begins with # or ; is a comment, and so is what follows # in a value.

    Raises:
        UserError: with every line that is neither a section nor an option, and every option set to two values.
    """
    text = read_text(path, "Darknet network")
    if len(text) > LONGEST_FILE:
        found, expected = f"{len(text)} characters", f"at most {LONGEST_FILE} characters"
        place = Location(str(path))
        raise user_error(
            "too-large", "the Darknet network is too large", location=place, found=found, expected=expected
        )
    collector = Collector()
    reader = _Reader(str(path), collector)
    for number, line in enumerate(text.split("\n"), start=1):
        reader.read(number, line.rstrip("\r"))
    collector.raise_any()
    if not reader.sections:
        message, expected = "the file has no sections", "[net], then a section for each layer"
        raise user_error("not-a-cfg", message, location=Location(str(path)), expected=expected)
    if len(reader.sections) > MOST_SECTIONS:
        found, expected = f"{len(reader.sections)} sections", f"at most {MOST_SECTIONS}"
        raise user_error(
            "too-large",
            "the network has too many sections",
            location=Location(str(path)),
            found=found,
            expected=expected,
        )
    return tuple(Section(name, place, options) for name, place, options in reader.sections)


class _Reader:
    """Sorts lines into sections."""

    def __init__(self, file: str, collector: Collector) -> None:
        self.sections: list[tuple[str, Location, dict[str, Option]]] = []
        self._file, self._collector = file, collector

    def read(self, number: int, line: str) -> None:
        text = "".join(line.split())
        if not text or text.startswith(COMMENT_STARTS):
            return
        column = len(line) - len(line.lstrip()) + 1
        location = Location(self._file, number, column, len(line.strip()), line)
        if text.startswith("["):
            name = text.partition("#")[0]
            if not name.endswith("]"):
                message = "the name of a section is not closed"
                self._collector.add(Diagnostic("not-a-cfg", message, location, text, "[name]"))
            self.sections.append((name.strip("[]"), location, {}))
            return
        key, equal, value = text.partition("#")[0].partition("=")
        if not equal or not key or not value:
            message = "this is neither a section nor an option"
            self._collector.add(
                Diagnostic("not-a-cfg", message, location, expected="[section], key=value or # comment")
            )
        elif not self.sections:
            message = "the option stands before the first section"
            self._collector.add(Diagnostic("not-a-cfg", message, location, expected="[net] first"))
        else:
            self._set(key, Option(value, location))

    def _set(self, key: str, option: Option) -> None:
        name, _, options = self.sections[-1]
        if options.setdefault(key, option).text != option.text:
            message = f'"{key}" of [{name}] is set to two values'
            found = f"{option.text}, after {options[key].text}"
            self._collector.add(Diagnostic("duplicate-setting", message, option.location, found, "one value"))

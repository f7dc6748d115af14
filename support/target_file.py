"""Target descriptions as TOML: reading with located diagnostics, writing, and the shipped ones by name."""

from __future__ import annotations

import json
import math
import os
import textwrap
from collections.abc import Iterable
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Any

from binpoint.support.diagnostics import Collector, Diagnostic, Location, did_you_mean, user_error
from binpoint.support.files import read_text
from binpoint.support.numeric import BlockWords, OnOverflow
from binpoint.support.target import (
    MAXIMUM_PES,
    Allocation,
    Fault,
    InvalidTargetError,
    Strategy,
    Target,
    unused_parameter,
    unused_parameters,
)
from binpoint.support.target_blocks import PREFIX, TargetBlocks
from binpoint.support.target_keys import BY_FIELD, BY_PATH, KEYS, TABLES, Sharing
from binpoint.support.toml_text import TomlText

WHAT = "target file"


def load_target(name_or_path: str) -> Target:
    """The target of a file, or a shipped one by its bare name (`dlu2048`).

    Raises:
        UserError: with every fault of the file, located.
    """
    file = name_or_path if _is_path(name_or_path) else f"{name_or_path}.toml"
    return parse_target(target_text(name_or_path), file)


def target_text(name_or_path: str) -> str:
    """The text that describes a target, comments and all. Raises UserError."""
    if _is_path(name_or_path):
        return read_text(Path(name_or_path), WHAT)
    names = shipped_targets()
    if name_or_path not in names:
        raise user_error(
            "unknown-target",
            f'there is no target "{name_or_path}"',
            found=name_or_path,
            expected=f"{', '.join(names)}, or the path of a .toml file",
            hint=did_you_mean(name_or_path, names),
        )
    return resources.files("binpoint.targets").joinpath(f"{name_or_path}.toml").read_text(encoding="utf-8")


def _is_path(name_or_path: str) -> bool:
    return os.sep in name_or_path or name_or_path.endswith(".toml")


def shipped_targets() -> list[str]:
    """The names of the targets that come with binpoint, sorted."""
    files = resources.files("binpoint.targets").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def parse_target(text: str, file: str) -> Target:
    """The target that a TOML text describes; `file` names it in diagnostics.

    Raises:
        UserError: with every fault found: syntax, unknown keys, types, ranges, values that contradict each other.
    """
    return _Reader(TomlText(text, file, WHAT)).target()


class _Reader:
    """Turns one parsed text into a target and gathers what is wrong on the way."""

    def __init__(self, source: TomlText) -> None:
        self.source = source
        self.collector = Collector()
        self.values: dict[str, Any] = {}
        self.faulty: set[str] = set()
        """Fields that already have a diagnostic: faults that follow from them are not reported."""

    def target(self) -> Target:
        for path, value in self._entries():
            self._read(path, value)
        self._require()
        self._expand_statistics()
        allocation = self._allocation()
        target = self._build(allocation)
        self.collector.diagnostics.sort(key=_line)
        self.collector.raise_any()
        assert target is not None
        return target

    def _entries(self) -> Iterable[tuple[tuple[str, ...], Any]]:
        for name, value in self.source.data.items():
            if name in TABLES and isinstance(value, dict):
                yield from (((name, key), item) for key, item in value.items())
            else:
                yield (name,), value

    def _read(self, path: tuple[str, ...], value: Any) -> None:
        key = BY_PATH.get(path)
        if key is None:
            self._unknown(path, value)
            return
        try:
            self.values[key.field] = key.type.convert(value)
        except ValueError:
            unknown = key.type.unknown(value)
            hint = None if unknown is None else did_you_mean(unknown, key.type.choices)
            code = "wrong-type" if unknown is None else "unknown-choice"
            message = f"{'.'.join(path)} cannot be {_show(value)}"
            self._report(key.field, code, message, self.source.value(*path), _show(value), key.type.expected, hint)

    def _unknown(self, path: tuple[str, ...], value: Any) -> None:
        name = path[-1]
        if len(path) == 1 and name in TABLES:
            message, expected = f"{name} is a table", f"[{name}] with keys below it"
            self._report(name, "wrong-type", message, self.source.key(*path), _show(value), expected)
            self.faulty.update(key.field for key in KEYS if key.path[0] == name)
            return
        siblings = [key.path[-1] for key in KEYS if key.path[:-1] == path[:-1]]
        siblings += list(TABLES) if len(path) == 1 else []
        elsewhere = [key.path for key in KEYS if key.path[-1] == name and len(key.path) > 1]
        hint = f"{name} belongs to [{elsewhere[0][0]}]" if elsewhere else did_you_mean(name, siblings)
        where = f"[{path[0]}]" if len(path) > 1 else "the top of a target file"
        message, expected = f'{where} has no key "{name}"', ", ".join(siblings)
        self._report(name, "unknown-key", message, self.source.key(*path), name, expected, hint)
        # A misspelt key is not also a missing one.
        self.faulty.update(key.field for key in KEYS if key.path[:-1] == path[:-1] and _close(name, key.path[-1]))
        if len(path) == 1:
            self.faulty.update(key.field for key in KEYS if len(key.path) > 1 and _close(name, key.path[0]))

    def _require(self) -> None:
        missing = [key for key in KEYS if key.required and key.field not in self.values]
        for key in missing:
            if key.field not in self.faulty:
                self._missing(key.path, f"{key.path[-1]} = {key.type.expected}")
                self.faulty.add(key.field)
        if not {"every", "statistics_pes"} & (self.values.keys() | self.faulty):
            self._missing(("statistics", "every"), "every = k for each k-th PE, or pes = [...] for a list")
        if self.values.get("strategy") in (Strategy.MECHANICAL, Strategy.THINNED_ROTATED):
            for name in ("x", "y"):
                if name not in self.values and name not in self.faulty:
                    self._missing(
                        ("allocation", name), f"{name} = a whole number: {self.values['strategy']} thins by it"
                    )

    def _missing(self, path: tuple[str, ...], expected: str) -> None:
        message = f"the target file has no {'.'.join(path)}"
        self.collector.add(Diagnostic("missing-key", message, self.source.key(*path), expected=expected))

    def _expand_statistics(self) -> None:
        """Turn `every` into the list of statistics PEs; the list itself may be written in any order."""
        pes, every = self.values.get("pes"), self.values.pop("every", None)
        listed = self.values.get("statistics_pes")
        if every is not None and listed is not None:
            message, place = "statistics has both every and pes", self.source.key("statistics", "pes")
            self._report("statistics_pes", "contradiction", message, place, "both", "one of them")
        elif every is not None and pes is not None and 1 <= pes <= MAXIMUM_PES:
            if 1 <= every <= pes:
                self.values["statistics_pes"] = tuple(range(0, pes, every))
            else:
                place = self.source.value("statistics", "every")
                self._report("every", "out-of-range", "every is out of range", place, str(every), f"1 to {pes}")
        elif listed is not None:
            self.values["statistics_pes"] = tuple(sorted(listed))

    def _allocation(self) -> Allocation:
        fields = ("strategy", "x", "y", "shift", "rotation")
        given = {field: self.values.pop(field) for field in fields if field in self.values}
        if "strategy" in given:
            for field in unused_parameters(given["strategy"]):
                if field in given:
                    self._fault(unused_parameter(given["strategy"], field, given.pop(field)))
        try:
            return Allocation(**given)
        except InvalidTargetError as error:
            for fault in error.faults:
                self._fault(fault)
            return Allocation()

    def _blocks(self, values: dict[str, Any]) -> TargetBlocks | None:
        """The [blocks] section, whose values it takes out; None where there is none, or a faulty one."""
        given = {name.removeprefix(PREFIX): values.pop(name) for name in list(values) if name.startswith(PREFIX)}
        if not given:
            return None
        if "size" not in given:
            if "blocks_size" not in self.faulty:
                self._missing(("blocks", "size"), "size = [height, width] of a block")
            return None
        sharing = given.pop("sharing", Sharing.IMAGE)
        hardware = {name: given.pop(name) for name in ("size", "filter") if name in given}
        try:
            return TargetBlocks(per_channel=sharing is Sharing.CHANNEL, words=BlockWords(**given), **hardware)
        except InvalidTargetError as error:
            for fault in error.faults:
                self._fault(fault)
            return None

    def _build(self, allocation: Allocation) -> Target | None:
        given = dict(self.values)
        overflow = given.pop("accumulator_overflow", OnOverflow.SATURATE)
        pes = given.setdefault("pes", 1)
        given.setdefault("name", "unnamed")
        given.setdefault("grid", square_grid(pes) if 1 <= pes <= MAXIMUM_PES else (1, 1))
        given.setdefault("statistics_pes", ())
        blocks = self._blocks(given)
        try:
            return Target(**given, blocks=blocks, accumulator_wraps=overflow is OnOverflow.WRAP, allocation=allocation)
        except InvalidTargetError as error:
            for fault in error.faults:
                self._fault(fault)
            return None

    def _fault(self, fault: Fault) -> None:
        if self.faulty & set(fault.fields):
            return
        path = BY_FIELD[fault.fields[0]].path
        place = self.source.value(*path)
        self._report(fault.fields[0], fault.code, fault.message, place, fault.found, fault.expected, fault.hint)

    def _report(
        self,
        field: str,
        code: str,
        message: str,
        place: Location,
        found: str,
        expected: str,
        hint: str | None = None,
    ) -> None:
        self.faulty.add(field)
        self.collector.add(Diagnostic(code, message, place, found, expected, hint))


def _line(diagnostic: Diagnostic) -> int:
    """Where a diagnostic is sorted; what has no line comes first."""
    return (diagnostic.location.line or 0) if diagnostic.location is not None else 0


def _close(word: str, candidate: str) -> bool:
    return did_you_mean(word, [candidate]) is not None


def square_grid(pes: int) -> tuple[int, int]:
    """(rows, columns) of the most nearly square grid of so many PEs, the shape where a file gives none."""
    rows = next(rows for rows in range(math.isqrt(pes), 0, -1) if pes % rows == 0)
    return rows, pes // rows


def print_target(target: Target) -> str:
    """The target as TOML. `parse_target` gives back an equal target."""
    values = _written_values(target)
    lines: list[str] = []
    table = None
    for key in KEYS:
        if key.field not in values:
            continue
        if len(key.path) > 1 and key.path[0] != table:
            table = key.path[0]
            lines += ["", f"[{table}]"]
        lines.append(f"{key.path[-1]} = {_toml(values[key.field])}")
    return "\n".join(lines) + "\n"


def target_settings(target: Target) -> dict[str, str]:
    """What the TOML of a target says, by dotted key: {"array.pes": "2048", "statistics.every": "16", ...}."""
    values = _written_values(target)
    return {".".join(key.path): _spelt(values[key.field]) for key in KEYS if key.field in values}


def _written_values(target: Target) -> dict[str, Any]:
    """What each field of the file says; parameters that the strategy does not have are left out."""
    allocation = target.allocation
    values: dict[str, Any] = {key.field: getattr(target, key.field) for key in KEYS if hasattr(target, key.field)}
    if target.statistics_spacing is not None:
        values["every"] = target.statistics_spacing
        del values["statistics_pes"]
    values["accumulator_overflow"] = OnOverflow.WRAP if target.accumulator_wraps else OnOverflow.SATURATE
    for field in ("strategy", "x", "y", "shift", "rotation"):
        if field not in unused_parameters(allocation.strategy):
            values[field] = getattr(allocation, field)
    values |= _written_blocks(target.blocks)
    if not target.description:
        del values["description"]
    return values


def _written_blocks(blocks: TargetBlocks | None) -> dict[str, Any]:
    """What each field of the [blocks] section says; nothing where there is none."""
    if blocks is None:
        return {}
    sharing = Sharing.CHANNEL if blocks.per_channel else Sharing.IMAGE
    values = {"size": blocks.size, "sharing": sharing, "filter": blocks.filter, **blocks.words.said}
    return {PREFIX + name: value for name, value in values.items()}


def _toml(value: Any) -> str:
    """A value as TOML; a long list goes over several lines."""
    text = _spelt(value)
    if not isinstance(value, tuple) or len(text) < 102:
        return text
    return "[\n" + textwrap.fill(text[1:-1], 110, initial_indent="  ", subsequent_indent="  ") + ",\n]"


def _spelt(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_spelt, value))}]"
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Fraction):
        return repr(int(value) if value.denominator == 1 else float(value))
    return repr(value)


def _show(value: Any) -> str:
    """A value as the file writes it, shortened."""
    if isinstance(value, dict):
        return "a table"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."

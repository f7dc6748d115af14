"""The detection section -> Detector."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from pathlib import Path

from binpoint.compiler.frontends.dsl import syntax
from binpoint.compiler.frontends.dsl.expansion import Expansion
from binpoint.compiler.frontends.dsl.source import Source
from binpoint.compiler.frontends.dsl.values import Evaluator, text_value
from binpoint.support.detector import LARGEST_ANCHOR, Detector, Head, are_anchors
from binpoint.support.diagnostics import Collector, Location, UserError, did_you_mean, user_error
from binpoint.support.files import read_text

THRESHOLDS = ("score", "iou")
"""The settings of the section itself."""

_HEAD_SETTINGS = ("anchors", "softmax")
_EXPECTED_ANCHORS = f"a list of numbers above 0, up to {LARGEST_ANCHOR}: width, height, width, height, ..."


def read_detection(
    section: syntax.DetectionSection,
    source: Source,
    expansion: Expansion,
    directory: Path | None,
    collector: Collector,
) -> Detector | None:
    """The detector that a section describes; None where it has faults, which go to the collector.

    `directory` is what a file of class names is relative to; None takes it as it is written.
    """
    before = len(collector.diagnostics)
    reader = _Reader(source, expansion, directory, collector)
    for item in section.items:
        with collector.catch():
            reader.read(item)
    if not reader.heads and len(collector.diagnostics) == before:
        expected = "head OUTPUT { anchors = [...] }"
        collector.add(source.fault("no-head", "the detection section names no head", section.span, expected=expected))
    if len(collector.diagnostics) > before:
        return None
    return Detector(tuple(reader.heads.values()), reader.classes or (), **reader.thresholds)


def read_class_names(path: Path) -> tuple[str, ...]:
    """The names in a file that has one on each line; empty lines at the end do not count. Raises UserError."""
    names = [line.strip() for line in read_text(path, "file of class names").rstrip().split("\n")]
    for line, name in enumerate(names, start=1):
        if not name:
            place = Location(str(path), line)
            raise user_error("wrong-value", "the line names no class", location=place, expected="one name a line")
    return tuple(names)


class _Reader:
    """Gathers what the items of one section say. `read` raises UserError with one fault."""

    def __init__(self, source: Source, expansion: Expansion, directory: Path | None, collector: Collector) -> None:
        self.heads: dict[str, Head] = {}
        self.classes: tuple[str, ...] | None = None
        self.thresholds: dict[str, Fraction] = {}
        self._source, self._expansion, self._directory = source, expansion, directory
        self._evaluator = Evaluator(source, {})
        self._collector = collector

    def read(self, item: syntax.Setting | syntax.ClassNames | syntax.ClassFile | syntax.HeadSection) -> None:
        match item:
            case syntax.Setting():
                self._threshold(item)
            case syntax.HeadSection():
                self._head(item)
            case _:
                if self.classes is not None:
                    message, expected = "the classes are named twice", "one classes statement"
                    raise UserError(self._source.fault("duplicate-setting", message, item.span, expected=expected))
                self.classes = self._classes(item)

    def _classes(self, item: syntax.ClassNames | syntax.ClassFile) -> tuple[str, ...]:
        if isinstance(item, syntax.ClassNames):
            return tuple(text_value(self._source, name) for name in item.names)
        file = text_value(self._source, item.file)
        if not file or "\0" in file:
            message, expected = "this is no file name", "the path of a file with the name of a class on each line"
            raise UserError(self._source.fault("wrong-value", message, item.file.span, expected=expected))
        return read_class_names(Path(file) if self._directory is None else self._directory / file)

    def _threshold(self, setting: syntax.Setting) -> None:
        name = setting.name.text
        self._check_setting(setting, THRESHOLDS, self.thresholds)
        value = self._evaluator.number(setting.value)
        if not 0 <= value < 1:
            expected = "a number from 0 up to, not including, 1"
            raise self._evaluator.error("out-of-range", f'"{name}" is out of range', setting.value, expected, value)
        self.thresholds[name] = value

    def _head(self, section: syntax.HeadSection) -> None:
        self._expansion.check_known(section.name)
        name = self._expansion.resolve(section.name.text)
        if name in self.heads:
            message = f'"{section.name.text}" is a head already'
            raise UserError(self._source.fault("duplicate-name", message, section.name.span, expected="each head once"))
        values: dict[str, tuple[Fraction, ...] | bool] = {}
        for setting in section.settings.items:
            self._check_setting(setting, _HEAD_SETTINGS, values)
            anchors_next = setting.name.text == "anchors"
            values[setting.name.text] = self._anchors(setting) if anchors_next else self._flag(setting)
        anchors = values.get("anchors")
        if not isinstance(anchors, tuple):
            message = f'the head "{section.name.text}" has no anchors'
            expected = f"anchors = {_EXPECTED_ANCHORS}"
            raise UserError(self._source.fault("missing-setting", message, section.name.span, expected=expected))
        pairs = tuple(zip(anchors[::2], anchors[1::2], strict=True))
        location = self._source.location(section.name.span)
        self.heads[name] = Head(name, pairs, values.get("softmax") is True, location)

    def _anchors(self, setting: syntax.Setting) -> tuple[Fraction, ...]:
        value = self._evaluator.value(setting.value)
        if not isinstance(value, tuple) or not value or len(value) % 2 or not are_anchors(value):
            raise self._evaluator.error("wrong-type", 'wrong value of "anchors"', setting.value, _EXPECTED_ANCHORS)
        return value

    def _flag(self, setting: syntax.Setting) -> bool:
        value = self._evaluator.value(setting.value)
        if not isinstance(value, bool):
            message = f'wrong value of "{setting.name.text}"'
            raise self._evaluator.error("wrong-type", message, setting.value, "true or false", value)
        return value

    def _check_setting(self, setting: syntax.Setting, known: tuple[str, ...], seen: Collection[str]) -> None:
        """Refuse a setting that is unknown, set already, or goes on after its value. Raises UserError."""
        name, error = setting.name.text, self._evaluator.error
        if name not in known:
            message, expected = f'there is no setting "{name}" here', f"one of {', '.join(known)}"
            raise error("unknown-setting", message, setting.name, expected, hint=did_you_mean(name, known))
        if name in seen:
            raise error("duplicate-setting", f'"{name}" is set twice', setting.name, "each name once")
        if setting.details:
            raise error("wrong-type", f'this does not belong to "{name}"', setting.details[0], "the next setting")

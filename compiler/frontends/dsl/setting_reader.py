"""Reading single settings: what may follow a value, whole numbers, words; each fault in its place."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar

from binpoint.compiler.frontends.dsl import syntax
from binpoint.compiler.frontends.dsl.faults import suggest
from binpoint.compiler.frontends.dsl.source import Source
from binpoint.compiler.frontends.dsl.values import Evaluator
from binpoint.support.diagnostics import Collector, UserError
from binpoint.support.number_text import format_number

_Word = TypeVar("_Word", bound=StrEnum)
_Node = syntax.Word | syntax.Expression | syntax.Detail


@dataclass(frozen=True)
class SettingReader:
    """Reads the settings of one file; faults go to the collector."""

    source: Source
    collector: Collector

    def word(self, setting: syntax.Setting, words: type[_Word], *details: type) -> _Word:
        """One of the words of an enumeration, such as half-even or msb+lsb."""
        self.only(setting, *details)
        return self.choice(setting.name, setting.value, words)

    def choice(self, name: syntax.Word, value: syntax.Expression, words: type[_Word]) -> _Word:
        """The same of a value alone; `name` is what the value is given to."""
        text = "".join(self.source.text[value.span.start : value.span.end].split())
        if text not in list(words):
            message = f'"{name.text}" has no such value'
            raise self.error("wrong-value", message, value, f"one of {', '.join(words)}", list(words))
        return words(text)

    def once(self, name: syntax.Word, seen: set[str]) -> None:
        """Refuse a name that has been set."""
        if name.text in seen:
            raise self.error("duplicate-setting", f'"{name.text}" is set twice', name, "each name once")
        seen.add(name.text)

    def only(self, setting: syntax.Setting, *allowed: type) -> None:
        """Refuse what may not follow a value, and what follows it twice."""
        left = list(allowed)
        for detail in setting.details:
            if type(detail) not in left:
                message = f'this does not belong to a value of "{setting.name.text}"'
                raise self.error("wrong-type", message, detail, "the next setting")
            left.remove(type(detail))

    def whole(self, expression: syntax.Expression, least: int, most: int, what: str, unit: str = "") -> int:
        """A whole number within limits; `what` and `unit` are for the message."""
        value = Evaluator(self.source, {}).value(expression)
        expected = f"a whole number from {least} to {most}{unit}"
        if isinstance(value, bool) or not isinstance(value, Fraction) or value.denominator != 1:
            raise self.error("wrong-type", f"{what} must be a whole number", expression, expected)
        if not least <= value <= most:
            message = f"{what} is out of range"
            shown = f"{format_number(value)}{unit}"
            raise UserError(self.source.fault("out-of-range", message, expression.span, found=shown, expected=expected))
        return int(value)

    def error(self, code: str, message: str, node: _Node, expected: str, known: Collection[str] = ()) -> UserError:
        """An error at a node; `known` are the words that it could have been."""
        found = self.source.excerpt(node.span)
        hint = suggest(found, known, self.collector)
        return UserError(self.source.fault(code, message, node.span, found=found, expected=expected, hint=hint))

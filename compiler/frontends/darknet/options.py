"""The options of one section as typed values; what nobody asked for is an error, unless only training reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TypeVar

from binpoint.compiler.frontends.darknet.cfg import Section
from binpoint.compiler.frontends.dsl.values import LARGEST_SIZE
from binpoint.support.diagnostics import Collector, Diagnostic, Location, UserError, did_you_mean
from binpoint.support.number_text import parse_number

Value = TypeVar("Value")

_AUGMENTATION = ("angle", "aspect", "exposure", "flip", "hue", "jitter", "saturation")

TRAINING_ONLY: Mapping[str, frozenset[str]] = {
    "net": frozenset(
        (
            *("B1", "B2", "adam", "batch", "burn_in", "center", "clip", "decay", "eps", "gamma", "learning_rate"),
            *("max_batches", "max_crop", "max_ratio", "min_crop", "min_ratio", "momentum", "policy", "power", "random"),
            *("scale", "scales", "step", "steps", "subdivisions", "notruth", "cutmix", "mosaic", "seq_scales"),
            *("blur", "gaussian_noise", "letter_box", "max_chart_loss", "optimized_memory", "workspace_size_limit_MB"),
            *_AUGMENTATION,
        )
    ),
    "convolutional": frozenset(("learning_rate", "stopbackward")),
    "connected": frozenset(("learning_rate", "stopbackward")),
    "crop": frozenset(_AUGMENTATION),
    "dropout": frozenset(("probability",)),
    "maxpool": frozenset(("stopbackward",)),
    "route": frozenset(("stopbackward",)),
    "shortcut": frozenset(("stopbackward",)),
    "softmax": frozenset(("noloss",)),
    "cost": frozenset(("noobj", "ratio", "scale", "thresh", "type")),
    "yolo": frozenset(
        (
            *("ignore_thresh", "truth_thresh", "random", "max", "map", "focal_loss", "label_smooth_eps", "iou_loss"),
            *("cls_normalizer", "iou_normalizer", "obj_normalizer", "iou_thresh", "iou_thresh_kind", "max_delta"),
            *("beta_nms", "nms_kind", "resize", "counters_per_class", "objectness_smooth"),
            *_AUGMENTATION,
        )
    ),
    "region": frozenset(
        (
            *("absolute", "bias_match", "class_scale", "coord_scale", "log", "map", "mask_scale", "max"),
            *("noobject_scale", "object_scale", "random", "rescore", "sqrt", "thresh"),
            *_AUGMENTATION,
        )
    ),
}
"""Options that change training alone, by section: they are skipped."""


class Options:
    """Reads the options of a section. Faults are gathered, and raised by `finish`."""

    def __init__(self, section: Section, kind: str) -> None:
        self._section, self._kind = section, kind
        self._asked: set[str] = set()
        self._faults = Collector()

    @property
    def location(self) -> Location:
        """The line of the section's name."""
        return self._section.location

    def place(self, name: str) -> Location:
        """Where an option stands; the section, where it is left to its default."""
        option = self._section.options.get(name)
        return self._section.location if option is None else option.location

    def integer(self, name: str, default: int | None, least: int = 0) -> int:
        """A whole number, at least `least`. An option without a default must be written."""
        expected = f"a whole number from {least} to {LARGEST_SIZE}"
        return self._value(name, default, lambda text: _integer(text, least), least, expected)

    def flag(self, name: str) -> bool:
        """0 or 1; 0 where it is not written."""
        return bool(self._value(name, 0, lambda text: {"0": 0, "1": 1}[text], 0, "0 or 1"))

    def word(self, name: str, default: str, known: Iterable[str]) -> str:
        """One of several words."""
        words = tuple(known)

        def convert(text: str) -> str:
            if text not in words:
                raise ValueError
            return text

        return self._value(name, default, convert, default, f"one of {', '.join(words)}", words)

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Whole numbers with commas between, of any sign."""
        expected = "whole numbers with commas between"
        return self._value(
            name, default, lambda text: tuple(_integer(part, -LARGEST_SIZE) for part in _parts(text)), (0,), expected
        )

    def numbers(self, name: str) -> tuple[Fraction, ...]:
        """Numbers with commas between, exactly; none where that is a fault."""
        expected = "numbers with commas between"
        return self._value(name, None, lambda text: tuple(map(parse_number, _parts(text))), (), expected)

    def only(self, name: str, value: str, why: str) -> None:
        """An option that can be expressed with one value alone, its default."""
        self._asked.add(name)
        option = self._section.options.get(name)
        if option is not None and not _same(option.text, value):
            message = f"{name} of [{self._section.name}] cannot be expressed: {why}"
            self.fault("unsupported-option", message, name, value or None)

    def fault(self, code: str, message: str, name: str | None = None, expected: str | None = None) -> None:
        """Gather a fault at an option, or at the section."""
        option = self._section.options.get(name or "")
        found = None if option is None else option.text
        self._faults.add(Diagnostic(code, message, self.place(name or ""), found, expected))

    def finish(self) -> None:
        """Raise UserError with all faults, options that nobody knows among them."""
        skipped = TRAINING_ONLY.get(self._kind, frozenset())
        for name, option in self._section.options.items():
            if name not in self._asked and name not in skipped:
                known = sorted(self._asked | skipped)
                self._faults.add(
                    Diagnostic(
                        "unknown-option",
                        f'[{self._section.name}] has no option "{name}" that binpoint knows',
                        option.location,
                        f"{name}={option.text}",
                        f"one of {', '.join(sorted(self._asked))}" if self._asked else "no options",
                        did_you_mean(name, known),
                    )
                )
        self._faults.raise_any()

    def error(self, code: str, message: str, name: str | None = None, expected: str | None = None) -> UserError:
        """A fault at an option or at the section, to be raised at once."""
        option = self._section.options.get(name or "")
        found = None if option is None else option.text
        return UserError(Diagnostic(code, message, self.place(name or ""), found, expected))

    def _value(
        self,
        name: str,
        default: Value | None,
        convert: Callable[[str], Value],
        stand_in: Value,
        expected: str,
        known: Iterable[str] = (),
    ) -> Value:
        self._asked.add(name)
        option = self._section.options.get(name)
        if option is None:
            if default is None:
                self.fault("missing-option", f'[{self._section.name}] needs the option "{name}"', None, expected)
                return stand_in
            return default
        try:
            return convert(option.text)
        except (ValueError, KeyError):
            message = f'wrong value of "{name}" in [{self._section.name}]'
            hint = did_you_mean(option.text, known)
            self._faults.add(Diagnostic("wrong-type", message, option.location, option.text, expected, hint))
            return stand_in


def _parts(text: str) -> list[str]:
    """The parts of a list; a comma at its end is common and means nothing."""
    return text.removesuffix(",").split(",")


def _integer(text: str, least: int) -> int:
    number = parse_number(text)
    if number.denominator != 1 or not least <= number <= LARGEST_SIZE:
        raise ValueError(f"{text} is no whole number in range")
    return int(number)


def _same(text: str, value: str) -> bool:
    """Whether two values are equal as numbers, or as words."""
    try:
        return parse_number(text) == parse_number(value)
    except ValueError:
        return text == value

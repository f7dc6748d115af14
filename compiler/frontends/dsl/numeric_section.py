"""The numeric section -> NumericPolicy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction

from binpoint.compiler.frontends.dsl import syntax
from binpoint.compiler.frontends.dsl.block_setting import read_blocks
from binpoint.compiler.frontends.dsl.setting_reader import SettingReader
from binpoint.compiler.frontends.dsl.source import Source
from binpoint.compiler.frontends.dsl.values import Evaluator
from binpoint.support.diagnostics import Collector, UserError
from binpoint.support.number_text import format_number
from binpoint.support.numeric import (
    BITS_RANGE,
    CONSTANT_BITS_RANGE,
    EXPONENT_LIMITS,
    OPTIONS_OF_RULE,
    ExponentRule,
    Granularity,
    NumericPolicy,
    Rounding,
    TensorClass,
    UpdatePolicy,
)

CLASS_UPDATES = {f"update.{each}": each for each in TensorClass if each is not TensorClass.ACCUMULATORS}
"""The settings of update policies for single classes. Accumulators have no exponent of their own."""

SETTINGS = (
    *map(str, TensorClass),
    *("blocks", "constants", "exponent", "exponent_range", "rounding", "update"),
    *CLASS_UPDATES,
)
"""The names of the settings."""

LARGEST_BLOCK = 4096
"""The largest height and width of a block that shares an exponent."""

LONGEST_PERIOD, LONGEST_WINDOW, LONGEST_PATIENCE = 1_000_000, 4096, 1_000_000
"""The most mini-batches between two decisions, whose records are merged, decisions before an exponent shrinks."""

MOST_HEADROOM = 8
"""The most spare bits of a small sample."""

LEAST_CONFIDENCE = Fraction(1, 2)
"""Below, a bound would tolerate more than the sample shows."""


class _Sharing(StrEnum):
    """What shares an exponent, as it is written."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    BLOCK = "block"
    CHANNEL_BLOCK = "channel-block"


def read_numeric(
    section: syntax.NumericSection,
    source: Source,
    layers: Sequence[str] | None,
    instances: Collection[str],
    collector: Collector,
) -> NumericPolicy:
    """The policy of a numeric section.

    Args:
        section: the section's syntax.
        source: where it stands.
        layers: the names of all layers; None where they are not known, then `layer` names are not checked.
        instances: the names of block instances, for hints.
        collector: takes the faults; the result counts only where there are none.
    """
    reader = _Reader(source, collector)
    policy = reader.settings([item for item in section.items if isinstance(item, syntax.Setting)], NumericPolicy())
    exponents: dict[str, int] = {}
    for item in section.items:
        if isinstance(item, syntax.ExponentsSection):
            reader.exponents(item, policy.exponent_range, exponents)
    policy = replace(policy, exponents=exponents)
    overrides: dict[str, NumericPolicy] = {}
    for item in section.items:
        if isinstance(item, syntax.LayerSection):
            start = replace(policy, granularity=None)
            reader.settings(item.settings.items, start)
            with collector.catch():
                for name in reader.layer_names(item, layers, instances):
                    # Later sections refine earlier ones; faults have been reported above.
                    refined = _Reader(source, Collector())
                    overrides[name] = refined.settings(item.settings.items, overrides.get(name, start))
    return replace(policy, overrides=overrides)


class _Reader(SettingReader):
    """Reads the settings of a numeric section."""

    def settings(self, settings: Iterable[syntax.Setting], policy: NumericPolicy) -> NumericPolicy:
        """The policy changed by settings, each at most once; what is about all classes comes before single ones."""
        seen: set[str] = set()
        for setting in sorted(settings, key=lambda setting: setting.name.text != "update"):
            with self.collector.catch():
                self.once(setting.name, seen)
                policy = self._apply(setting, policy)
        return policy

    def exponents(self, section: syntax.ExponentsSection, bounds: tuple[int, int], exponents: dict[str, int]) -> None:
        """Add initial exponents by the names that the user wrote."""
        seen = set(exponents)
        for setting in section.settings.items:
            with self.collector.catch():
                self.once(setting.name, seen)
                self.only(setting)
                exponents[setting.name.text] = self.whole(setting.value, *bounds, "the exponent")

    def layer_names(
        self, section: syntax.LayerSection, layers: Sequence[str] | None, instances: Collection[str]
    ) -> list[str]:
        """The layers that a section is about: one, or `body.*` for a layer and all whose names begin so."""
        name = section.name
        if layers is None:
            return []
        if section.all_inside:
            chosen = [layer for layer in layers if layer == name.text or layer.startswith(f"{name.text}.")]
        else:
            chosen = [name.text] if name.text in layers else []
        if chosen:
            return chosen
        if name.text in instances:
            hint = f"layer {name.text}.* is about all layers of the instance"
            message = f'"{name.text}" is a block instance'
            raise UserError(self.source.fault("unknown-layer", message, name.span, expected="a layer", hint=hint))
        raise self.error("unknown-layer", f'there is no layer "{name.text}"', name, "a layer", layers)

    def _apply(self, setting: syntax.Setting, policy: NumericPolicy) -> NumericPolicy:
        match setting.name.text:
            case "blocks":
                words = read_blocks(setting, self)
                return replace(policy, blocks=words if policy.blocks is None else words.over(policy.blocks))
            case "constants":
                return replace(policy, constant_bits=self._bits(setting, *CONSTANT_BITS_RANGE))
            case "exponent":
                return replace(policy, granularity=self._granularity(setting))
            case "exponent_range":
                return replace(policy, exponent_range=self._exponent_range(setting))
            case "rounding":
                return replace(policy, rounding=self.word(setting, Rounding))
            case "update":
                return replace(policy, update=self._update(setting), updates={})
            case name if name in CLASS_UPDATES:
                return replace(policy, updates={**policy.updates, CLASS_UPDATES[name]: self._update(setting)})
            case "weights":
                widened = policy.with_bits(TensorClass.WEIGHTS, self._bits(setting, *BITS_RANGE[TensorClass.WEIGHTS]))
                return replace(widened, weights_per_channel=self._per_channel(setting))
            case name if name in SETTINGS:
                tensor_class = TensorClass(name)
                return policy.with_bits(tensor_class, self._bits(setting, *BITS_RANGE[tensor_class]))
        expected = f"one of {', '.join(SETTINGS)}"
        raise self.error(
            "unknown-setting", f'there is no setting "{setting.name.text}"', setting.name, expected, SETTINGS
        )

    def _bits(self, setting: syntax.Setting, least: int, most: int) -> int:
        """8 bits."""
        self.only(setting, syntax.Bits, *((syntax.Per,) if setting.name.text == TensorClass.WEIGHTS else ()))
        if not any(isinstance(detail, syntax.Bits) for detail in setting.details):
            raise self.error("missing-unit", "a width needs its unit", setting.value, "a width such as 8 bits")
        return self.whole(setting.value, least, most, f'the width of "{setting.name.text}"', " bits")

    def _per_channel(self, setting: syntax.Setting) -> bool:
        """Whether `per channel` follows a width."""
        for detail in setting.details:
            if isinstance(detail, syntax.Per):
                if detail.what.text != "channel":
                    message = "weights have one exponent, or one an output channel"
                    raise self.error("wrong-value", message, detail.what, "channel", ["channel"])
                return True
        return False

    def _granularity(self, setting: syntax.Setting) -> Granularity:
        """tensor, channel, block<4x4> or channel-block<4x4>."""
        sharing = self.word(setting, _Sharing, syntax.Granule)
        per_channel = sharing in (_Sharing.CHANNEL, _Sharing.CHANNEL_BLOCK)
        if sharing in (_Sharing.TENSOR, _Sharing.CHANNEL):
            self.only(setting)
            return Granularity(per_channel=per_channel)
        match setting.details:
            case (syntax.Granule(size=syntax.Size(numbers=(height, width))),):
                sizes = [self.whole(size, 1, LARGEST_BLOCK, "the size") for size in (height, width)]
                return Granularity((sizes[0], sizes[1]), per_channel)
        raise self.error("wrong-type", "a block has a height and a width", setting.value, f"{sharing}<4x4>")

    def _update(self, setting: syntax.Setting) -> UpdatePolicy:
        """msb-histogram(r_max = 2e-5, window = 16) every 4."""
        update = UpdatePolicy(self.word(setting, ExponentRule, syntax.Options, syntax.Period))
        for detail in setting.details:
            if isinstance(detail, syntax.Period):
                update = replace(update, period=self.whole(detail.number, 1, LONGEST_PERIOD, "the period"))
            elif isinstance(detail, syntax.Options):
                seen: set[str] = set()
                for option in detail.attributes:
                    self.once(option.name, seen)
                    update = self._option(option, update)
        return update

    def _option(self, option: syntax.Attribute, update: UpdatePolicy) -> UpdatePolicy:
        known, name = OPTIONS_OF_RULE[update.rule], option.name.text
        if name not in known:
            expected = f"one of {', '.join(known)}" if known else "no option"
            message = f'{update.rule} has no option "{name}"'
            raise self.error("unknown-attribute", message, option.name, expected, known)
        match name:
            case "r_max":
                return replace(update, r_max=self._share(option, Fraction(0)))
            case "r_min":
                return replace(update, r_min=self._share(option, Fraction(0)))
            case "confidence":
                return replace(update, confidence=self._share(option, LEAST_CONFIDENCE))
            case "window":
                return replace(update, window=self.whole(option.value, 1, LONGEST_WINDOW, "the window"))
            case "patience":
                return replace(update, patience=self.whole(option.value, 1, LONGEST_PATIENCE, "the patience"))
            case _:
                return replace(update, headroom=self.whole(option.value, 0, MOST_HEADROOM, "the headroom"))

    def _share(self, option: syntax.Attribute, least: Fraction) -> Fraction:
        share = Evaluator(self.source, {}).number(option.value)
        if not least <= share < 1:
            expected = f"at least {format_number(least)} and less than 1"
            raise self.error("out-of-range", f'"{option.name.text}" is out of range', option.value, expected)
        return share

    def _exponent_range(self, setting: syntax.Setting) -> tuple[int, int]:
        """[-128, 127]."""
        self.only(setting)
        match setting.value:
            case syntax.List(items=(first, last)):
                least, most = (self.whole(item, *EXPONENT_LIMITS, "the exponent") for item in (first, last))
                if least <= most:
                    return least, most
        raise self.error("wrong-type", "this is no range of exponents", setting.value, "[smallest, largest]")

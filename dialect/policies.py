"""Attributes for the numeric policy: what shares an exponent, how it is found, the widths of a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.attributes import (
    ValueAttr,
    WordAttr,
    parse_bits,
    parse_fields,
    parse_fraction,
    parse_integers,
    parse_size,
    parse_text,
    parse_word,
)
from binpoint.dialect.block_attributes import parse_words, verify_words, words_text
from binpoint.support.numeric import (
    CONSTANT_BITS_RANGE,
    EXPONENT_LIMITS,
    ExponentRule,
    Granularity,
    NumericPolicy,
    Rounding,
    TensorClass,
    TensorPolicy,
    UpdatePolicy,
)

Field = tuple[str, str]
"""A field's name and its value as text."""

SHARES = ("r_max", "r_min", "confidence")
COUNTS = ("period", "window", "patience", "headroom")
"""The fields of an update policy beside its rule: exact fractions and whole numbers."""


@irdl_attr_definition
class RoundingAttr(WordAttr[Rounding]):
    """How a right shift rounds: `half-even`."""

    name = "fx.rounding"
    WORDS = Rounding


@irdl_attr_definition
class GranularityAttr(ValueAttr[Granularity]):
    """What shares one exponent: `tensor`, `channel`, `block<4x4>` or `channel-block<4x4>`."""

    name = "fx.granularity"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> Granularity:
        """Read one of the four forms."""
        word = parse_word(parser, ("tensor", "channel", "block", "channel-block"))
        per_channel = word.startswith("channel")
        if not word.endswith("block"):
            return Granularity(None, per_channel)
        with parser.in_angle_brackets():
            height, width = parse_size(parser, 2)
        return Granularity((height, width), per_channel)

    def print_value(self, printer: Printer) -> None:
        """Write the form of the network file."""
        printer.print_string(str(self.data))


@irdl_attr_definition
class PolicyAttr(ValueAttr[TensorPolicy]):
    """How one tensor's exponent is found: `<msb-histogram, r_max = 1/50000, window = 16, range = [-128, 127]>`.

    `r_max` and `r_min` are left out at 0, the other fields of the update policy at their defaults, `initial` where the
    user gave none.
    """

    name = "fx.policy"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> TensorPolicy:
        """Read the rule and its fields in angle brackets."""
        rule, fields = _parse_rule(parser, _update_readers(parser) | _exponent_readers(parser))
        initial, exponent_range = fields.pop("initial", None), fields.pop("range", TensorPolicy().exponent_range)
        return TensorPolicy(_update(rule, fields), initial, exponent_range)

    def print_value(self, printer: Printer) -> None:
        """Write the rule and its fields in angle brackets."""
        policy = self.data
        fields = [*_update_fields(policy.update), ("range", str(list(policy.exponent_range)))]
        if policy.initial is not None:
            fields.append(("initial", str(policy.initial)))
        printer.print_string(f"<{policy.update.rule}, {_join(fields)}>")

    def verify(self) -> None:
        """Shares lie between 0 and 1, the period is positive, the range is not empty and holds the start."""
        _verify_update(self.data.update)
        _verify_range(self.data.exponent_range)
        low, high = self.data.exponent_range
        if self.data.initial is not None and not low <= self.data.initial <= high:
            raise VerifyException(f"the initial exponent {self.data.initial} is outside of {low} to {high}")


@irdl_attr_definition
class NumericAttr(ValueAttr[NumericPolicy]):
    """A network's numeric policy; `bits` holds only the widths that the network names.

    `<activations = 8b, exponent = tensor, rounding = half-even, update = <msb-histogram, r_max = 1/50000>, ...>`;
    `updates = {gradients = <msb-max>}` holds the policies of single classes.
    """

    name = "nn.numeric"

    @classmethod
    def parse_value(cls, parser: AttrParser) -> NumericPolicy:
        """Read the policy in angle brackets."""
        with parser.in_angle_brackets():
            return _parse_numeric(parser)

    def print_value(self, printer: Printer) -> None:
        """Write the policy in angle brackets."""
        with printer.in_angle_brackets():
            _print_numeric(self.data, printer)

    def verify(self) -> None:
        """As for one tensor's policy; widths are checked where tensors get them."""
        for update in (self.data.update, *self.data.updates.values()):
            _verify_update(update)
        _verify_range(self.data.exponent_range)
        if self.data.blocks is not None:
            verify_words(self.data.blocks)
        check_constant_bits(self.data.constant_bits)

    def __hash__(self) -> int:
        # The policy holds dictionaries, which have no hash of their own.
        return hash((self.data.rounding, self.data.granularity, self.data.update, len(self.data.overrides)))


def _parse_numeric(parser: AttrParser) -> NumericPolicy:
    readers: dict[str, Callable[[], Any]] = {str(each): lambda: parse_bits(parser) for each in TensorClass}
    readers |= {
        "weight_exponent": lambda: GranularityAttr.parse_value(parser),
        "exponent": lambda: GranularityAttr.parse_value(parser),
        "blocks": lambda: parse_words(parser),
        "rounding": lambda: RoundingAttr.parse_value(parser),
        "update": lambda: _parse_update(parser),
        "updates": lambda: _parse_updates(parser),
        "constants": lambda: parse_bits(parser),
        "range": lambda: parse_integers(parser, 2),
        "exponents": lambda: _parse_named(parser, lambda: parser.parse_integer(allow_boolean=False)),
        "layers": lambda: _parse_named(parser, lambda: NumericAttr.parse_value(parser)),
    }
    fields = parse_fields(parser, readers)
    bits = {each: fields[each] for each in TensorClass if each in fields}
    default = NumericPolicy()
    return replace(
        default,
        bits=bits,
        granularity=fields.get("exponent", default.granularity),
        rounding=fields.get("rounding", default.rounding),
        update=fields.get("update", default.update),
        updates=fields.get("updates", {}),
        constant_bits=fields.get("constants", default.constant_bits),
        exponent_range=fields.get("range", default.exponent_range),
        exponents=fields.get("exponents", {}),
        blocks=fields.get("blocks"),
        weights_per_channel=fields.get("weight_exponent", Granularity()).per_channel,
        overrides=fields.get("layers", {}),
    )


def _print_numeric(policy: NumericPolicy, printer: Printer) -> None:
    fields = [
        *((str(each), f"{policy.bits[each]}b") for each in TensorClass if each in policy.bits),
        *((("exponent", str(policy.granularity)),) if policy.granularity is not None else ()),
        *((("weight_exponent", "channel"),) if policy.weights_per_channel else ()),
        *((("blocks", words_text(policy.blocks)),) if policy.blocks is not None else ()),
        ("rounding", str(policy.rounding)),
        ("update", _update_text(policy.update)),
        ("constants", f"{policy.constant_bits}b"),
        ("range", str(list(policy.exponent_range))),
    ]
    printer.print_string(_join(fields))
    if policy.updates:
        updates = _join((each, _update_text(update)) for each, update in policy.updates.items())
        printer.print_string(f", updates = {{{updates}}}")
    if policy.exponents:
        printer.print_string(", exponents = ")
        _print_named(policy.exponents.items(), printer, printer.print_int)
    if policy.overrides:
        printer.print_string(", layers = ")
        overrides = ((layer, NumericAttr(override)) for layer, override in policy.overrides.items())
        _print_named(overrides, printer, lambda override: override.print_value(printer))


def check_constant_bits(bits: int) -> None:
    """Raise VerifyException for a width that the multiplier of a constant cannot have."""
    least, most = CONSTANT_BITS_RANGE
    if not least <= bits <= most:
        raise VerifyException(f"constants of {bits} bits, expected {least} to {most}")


def _verify_update(update: UpdatePolicy) -> None:
    for name, share in (("r_max", update.r_max), ("r_min", update.r_min)):
        if not 0 <= share <= 1:
            raise VerifyException(f"{name} = {share} is no share between 0 and 1")
    for name, count, least in (
        ("period", update.period, 1),
        ("window", update.merged_records, 1),
        ("patience", update.patience, 1),
        ("headroom", update.headroom, 0),
    ):
        if count < least:
            raise VerifyException(f"the {name} {count} is less than {least}")
    if update.confidence is not None and not 0 < update.confidence < 1:
        raise VerifyException(f"the confidence {update.confidence} is not between 0 and 1")


def _verify_range(exponent_range: tuple[int, int]) -> None:
    low, high = exponent_range
    if low > high:
        raise VerifyException(f"the exponent range [{low}, {high}] is empty")
    least, most = EXPONENT_LIMITS
    if low < least or high > most:
        raise VerifyException(f"the exponent range [{low}, {high}] is not within [{least}, {most}]")


def _parse_update(parser: AttrParser) -> UpdatePolicy:
    return _update(*_parse_rule(parser, _update_readers(parser)))


def _parse_updates(parser: AttrParser) -> dict[TensorClass, UpdatePolicy]:
    """Read `{gradients = <msb-max>, weights = <fixed>}`."""
    with parser.in_braces():
        fields = parse_fields(parser, {str(each): lambda: _parse_update(parser) for each in TensorClass})
    return {TensorClass(name): update for name, update in fields.items()}


def _parse_rule(parser: AttrParser, readers: dict[str, Callable[[], Any]]) -> tuple[ExponentRule, dict[str, Any]]:
    """Read `<rule, field = value, ...>`."""
    with parser.in_angle_brackets():
        rule = ExponentRule(parse_word(parser, list(ExponentRule)))
        fields = {} if parser.parse_optional_punctuation(",") is None else parse_fields(parser, readers)
    return rule, fields


def _update(rule: ExponentRule, fields: dict[str, Any]) -> UpdatePolicy:
    return UpdatePolicy(rule, **({"r_max": Fraction(0)} | fields))


def _update_readers(parser: AttrParser) -> dict[str, Callable[[], Any]]:
    def count() -> int:
        return parser.parse_integer(allow_boolean=False, allow_negative=False)

    shares: dict[str, Callable[[], Any]] = dict.fromkeys(SHARES, lambda: parse_fraction(parser))
    return shares | dict.fromkeys(COUNTS, count)


def _exponent_readers(parser: AttrParser) -> dict[str, Callable[[], Any]]:
    return {
        "range": lambda: parse_integers(parser, 2),
        "initial": lambda: parser.parse_integer(allow_boolean=False),
    }


def _update_text(update: UpdatePolicy) -> str:
    rest = _update_fields(update)
    return f"<{update.rule}{', ' if rest else ''}{_join(rest)}>"


def _update_fields(update: UpdatePolicy) -> list[Field]:
    silent = replace(UpdatePolicy(), r_max=Fraction(0))
    values = ((name, getattr(update, name)) for name in (*SHARES, *COUNTS))
    return [(name, str(value)) for name, value in values if value != getattr(silent, name)]


def _join(fields: Iterable[Field]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in fields)


def _parse_named(parser: AttrParser, parse: Callable[[], Any]) -> dict[str, Any]:
    """Read `{"conv1" = value, "fc2" = value}`."""

    def entry() -> tuple[str, Any]:
        name = parse_text(parser)
        parser.parse_punctuation("=")
        return name, parse()

    return dict(parser.parse_comma_separated_list(parser.Delimiter.BRACES, entry))


def _print_named(entries: Iterable[tuple[str, Any]], printer: Printer, write: Callable[[Any], Any]) -> None:
    def entry(item: tuple[str, Any]) -> None:
        printer.print_string_literal(item[0])
        printer.print_string(" = ")
        write(item[1])

    with printer.in_braces():
        printer.print_list(entries, entry)

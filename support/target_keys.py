"""The keys of a target file: where each stands, which field of the target it sets, and its type."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from binpoint.support.numeric import BlockMethod, Measure, Neighbour, OnOverflow, Selection
from binpoint.support.target import Allocator, RotationCount, Strategy


class Sharing(StrEnum):
    """What shares the exponent of a block."""

    IMAGE = "image"
    """All channels of an image."""
    CHANNEL = "channel"
    """Nothing beyond the block: each channel has exponents of its own."""


@dataclass(frozen=True)
class ValueType:
    """A type of value: how messages name it, and the conversion from TOML, which raises ValueError.

    `choices` are all values there are, or where `listed` all items of a list.
    """

    expected: str
    convert: Callable[[Any], Any]
    choices: tuple[str, ...] = ()
    listed: bool = False

    def unknown(self, value: Any) -> str | None:
        """What of a value that cannot be converted is none of the choices; None where its type is wrong already."""
        if not self.choices:
            return None
        if self.listed:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                return None
            return next((item for item in value if item not in self.choices), None)
        return value if isinstance(value, str) else None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError
    return float(value) if abs(value) < 1e300 else math.inf


def _list_of(convert: Callable[[Any], Any], length: int | None = None) -> Callable[[Any], tuple[Any, ...]]:
    def convert_list(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            raise ValueError
        return tuple(convert(item) for item in value)

    return convert_list


def _choice(names: type[StrEnum]) -> ValueType:
    choices = tuple(names)
    return ValueType(", ".join(f'"{name}"' for name in choices), names, choices)


def _choices(names: type[StrEnum]) -> ValueType:
    listed = ", ".join(f'"{name}"' for name in names)
    return ValueType(f"a list of {listed}", _list_of(names), tuple(names), listed=True)


def _fraction(value: Any) -> Fraction:
    """Exactly the decimal that is written: TOML has no fractions."""
    number = _number(value)
    if not math.isfinite(number):
        raise ValueError
    return Fraction(repr(value))


TEXT = ValueType("text in quotes", _text)
INTEGER = ValueType("a whole number", _integer)
NUMBER = ValueType("a number", _number)
FRACTION = ValueType("a number", _fraction)
PAIR = ValueType("two whole numbers, such as [32, 64]", _list_of(_integer, 2))
INTEGERS = ValueType("a list of whole numbers", _list_of(_integer))
NAMES = ValueType("a list of texts in quotes", _list_of(_text))


@dataclass(frozen=True)
class Key:
    """One key of the file: its path, the field of the target it sets, its type."""

    path: tuple[str, ...]
    field: str
    type: ValueType
    required: bool = False


KEYS = (
    Key(("name",), "name", TEXT, required=True),
    Key(("description",), "description", TEXT),
    Key(("array", "pes"), "pes", INTEGER, required=True),
    Key(("array", "grid"), "grid", PAIR),
    Key(("array", "tile"), "tile", PAIR),
    Key(("statistics", "every"), "every", INTEGER),
    Key(("statistics", "pes"), "statistics_pes", INTEGERS),
    Key(("statistics", "acquires"), "acquires", NAMES),
    Key(("arithmetic", "register_bits"), "register_bits", INTEGER),
    Key(("arithmetic", "accumulator_bits"), "accumulator_bits", INTEGER),
    Key(("arithmetic", "accumulator_overflow"), "accumulator_overflow", _choice(OnOverflow)),
    Key(("blocks", "size"), "blocks_size", PAIR),
    Key(("blocks", "sharing"), "blocks_sharing", _choice(Sharing)),
    Key(("blocks", "filter"), "blocks_filter", PAIR),
    Key(("blocks", "method"), "blocks_method", _choice(BlockMethod)),
    Key(("blocks", "measure"), "blocks_measure", _choice(Measure)),
    Key(("blocks", "candidates"), "blocks_candidates", INTEGER),
    Key(("blocks", "positions"), "blocks_positions", INTEGERS),
    Key(("blocks", "neighbours"), "blocks_neighbours", _choices(Neighbour)),
    Key(("blocks", "threshold"), "blocks_threshold", FRACTION),
    Key(("blocks", "alignment"), "blocks_selection", _choice(Selection)),
    Key(("allocation", "strategy"), "strategy", _choice(Strategy), required=True),
    Key(("allocation", "x"), "x", INTEGER),
    Key(("allocation", "y"), "y", INTEGER),
    Key(("allocation", "shift"), "shift", INTEGER),
    Key(("allocation", "rotation"), "rotation", _choice(RotationCount)),
    Key(("allocation", "allocator"), "allocator", _choice(Allocator)),
    Key(("physical", "clock_hz"), "clock_hz", NUMBER),
    Key(("physical", "dram_bytes_per_second"), "dram_bytes_per_second", NUMBER),
    Key(("physical", "host_link_bytes_per_second"), "host_link_bytes_per_second", NUMBER),
    Key(("physical", "local_memory_bytes"), "local_memory_bytes", INTEGER),
)
"""Every key of a target file, in the order in which files are written."""

TABLES = tuple(dict.fromkeys(key.path[0] for key in KEYS if len(key.path) > 1))
BY_PATH = {key.path: key for key in KEYS}
BY_FIELD = {key.field: key for key in KEYS}

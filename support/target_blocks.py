"""What the PEs of a target have for exponents that differ from block to block (JP7819764B2 figs. 6 to 8 and 11)."""

from __future__ import annotations

from dataclasses import dataclass

from binpoint.support.numeric import (
    EXPONENT_LIMITS,
    MOST_CANDIDATES,
    BlockMethod,
    BlockPolicy,
    BlockWords,
    Granularity,
)
from binpoint.support.target_faults import Fault, InvalidTargetError, out_of_range

MOST_PIXELS = 4096
"""The largest height and width of a block."""

LARGEST_FILTER = 16
"""The largest height and width of a filter unit."""

PREFIX = "blocks_"
"""Begins the names of these fields in faults."""


@dataclass(frozen=True)
class TargetBlocks:
    """The block hardware of a PE. It has one filter unit for each pixel of a block (fig. 7).

    Attributes:
        size: (height, width) of a block of results that a PE computes at a time.
        per_channel: whether the blocks of an image's channels have exponents of their own.
        filter: (height, width) of the taps that a filter unit multiplies in one cycle.
        words: how blocks get their exponents, where a network says nothing.

    Raises:
        InvalidTargetError: with every value that is out of range or does not fit the others.
    """

    size: tuple[int, int]
    per_channel: bool = False
    filter: tuple[int, int] = (3, 3)
    words: BlockWords = BlockWords()

    def __post_init__(self) -> None:
        faults = []
        for field, sizes, most in (("size", self.size, MOST_PIXELS), ("filter", self.filter, LARGEST_FILTER)):
            for size in sizes:
                faults += _out_of_range(field, size, 1, most)
        faults += _word_faults(self.words)
        if faults:
            raise InvalidTargetError(faults)

    @property
    def granularity(self) -> Granularity:
        """What shares an exponent."""
        return Granularity(self.size, self.per_channel)

    @property
    def policy(self) -> BlockPolicy:
        """How blocks get their exponents, whole."""
        return self.words.policy()


def _word_faults(words: BlockWords) -> list[Fault]:
    faults = [] if words.candidates is None else _out_of_range("candidates", words.candidates, 1, MOST_CANDIDATES)
    for field, items in (("positions", f"1 to {MOST_CANDIDATES} whole numbers"), ("neighbours", "names of neighbours")):
        listed = getattr(words, field)
        if listed is not None and (not listed or len(set(listed)) < len(listed) or len(listed) > MOST_CANDIDATES):
            found, expected = ", ".join(map(str, listed)) or "an empty list", f"{items}, each once"
            faults.append(Fault("out-of-range", (PREFIX + field,), f"this is no list of {field}", found, expected))
    for position in words.positions or ():
        faults += _out_of_range("positions", position, -EXPONENT_LIMITS[1], -EXPONENT_LIMITS[0])
    if words.threshold is not None and words.threshold < 0:
        message, found = "blocks.threshold is out of range", str(words.threshold)
        faults.append(Fault("out-of-range", ("blocks_threshold",), message, found, "at least 0"))
    if words.candidates is not None and words.positions is not None:
        message, fields = "candidates are counted or listed, not both", ("blocks_positions", "blocks_candidates")
        faults.append(Fault("contradiction", fields, message, "both", "one of them"))
    if words.method is not BlockMethod.PREDICT:
        for field in ("neighbours", "threshold"):
            if getattr(words, field) is not None:
                message, fields = f"only a prediction has {field}", (PREFIX + field, "blocks_method")
                found = str(words.method or BlockMethod.ANALYSE)
                faults.append(Fault("contradiction", fields, message, found, BlockMethod.PREDICT))
    return faults


def _out_of_range(field: str, value: int, least: int, most: int) -> list[Fault]:
    """The fault of a value of the section outside of its limits, if it is."""
    return out_of_range(PREFIX + field, value, least, most, f"blocks.{field}")

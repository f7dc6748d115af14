"""Many faults in one go, without flooding the user or taking forever."""

from __future__ import annotations

from collections.abc import Iterable

from binpoint.support.diagnostics import Collector, Diagnostic, Location, did_you_mean

MAXIMUM_FAULTS = 50
"""How many faults of a file are shown."""


def suggest(word: str, candidates: Iterable[str], collector: Collector) -> str | None:
    """A hint that names the closest candidate; none once there are more faults than are shown.

    Looking for a close name among thousands takes milliseconds, too long for each of thousands of faults.
    """
    return did_you_mean(word, candidates) if len(collector.diagnostics) < MAXIMUM_FAULTS else None


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """By place, once a place (a block that is used twice would repeat its faults), the first MAXIMUM_FAULTS."""
    by_place: dict[tuple[int, int, str], Diagnostic] = {}
    for diagnostic in diagnostics:
        place = diagnostic.location or Location("")
        by_place.setdefault((place.line or 0, place.column or 0, diagnostic.code), diagnostic)
    ordered = [by_place[key] for key in sorted(by_place)]
    more = len(ordered) - MAXIMUM_FAULTS
    rest = [Diagnostic("more-faults", f"{more} more faults are not shown")] if more > 0 else []
    return ordered[:MAXIMUM_FAULTS] + rest


def prefixes(name: str) -> Iterable[str]:
    """a, a.b and a.b.c of the name a.b.c: what may be an instance that holds it, and the name itself."""
    return (name[:end] for end, character in enumerate(f"{name}.") if character == ".")

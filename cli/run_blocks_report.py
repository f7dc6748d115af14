"""What `binpoint run` prints of feature maps whose blocks have exponents of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from binpoint.cli.output import print_table
from binpoint.runtime.blocks.report import MapReport

SHOWN_SHARES = 4
"""So many of the most common exponents of a map are shown."""


def map_facts(report: MapReport, clamps: int) -> dict[str, Any]:
    """A feature map as JSON. Shares are of all results, or of all blocks, 0 to 1."""
    events, candidates = report.events, report.candidates
    return {
        "name": report.name,
        "granularity": str(report.tensor.granularity),
        "exponent": report.exponents[0] if len(set(report.exponents)) == 1 else None,
        "exponents": list(report.exponents),
        "candidates": None if candidates is None else list(candidates.exponents),
        "default": None if candidates is None else candidates.default,
        "shares": {str(exponent): share for exponent, share in report.shares.items()},
        "blocks_per_frame": report.blocks_per_frame,
        "position_bits_per_frame": report.position_bits_per_frame,
        "exponent_clamps": clamps,
        "saturated": events.saturated / events.results,
        "underflowed": events.underflowed / events.results,
        "accumulator_overflows": events.accumulator_overflows / events.results,
        "snr_db": report.snr_db if report.snr_db is None or math.isfinite(report.snr_db) else None,
    }


def print_maps(title: str, reports: Sequence[MapReport]) -> None:
    """A line a feature map."""
    compared = any(report.snr_db is not None for report in reports)
    columns = ("tensor", "exponents of", "range", "share of blocks", "saturated", "underflowed")
    rows = [
        (
            report.name,
            str(report.tensor.granularity),
            _range(report),
            _shares(report),
            _percent(report.events.saturated, report.events.results),
            _percent(report.events.underflowed, report.events.results),
            *((_decibels(report.snr_db),) if compared else ()),
        )
        for report in reports
    ]
    print_table(title, (*columns, *(("SNR in dB",) if compared else ())), rows)


def _range(report: MapReport) -> str:
    finest, coarsest = report.exponents
    return str(finest) if finest == coarsest else f"{finest} to {coarsest}"


def _shares(report: MapReport) -> str:
    """The most common exponents: -5: 61 %, -6: 30 %."""
    common = sorted(report.shares.items(), key=lambda entry: (-entry[1], -entry[0]))
    shown = ", ".join(f"{exponent}: {_rounded(share)}" for exponent, share in common[:SHOWN_SHARES])
    return shown + (", ..." if len(common) > SHOWN_SHARES else "")


def _rounded(share: float) -> str:
    """A share in whole percents; what is there is never 0."""
    return f"{share:.0%}" if round(share, 2) else "<1%"


def _decibels(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1f}" if math.isfinite(ratio) else "exact"


def _percent(count: int, total: int) -> str:
    return "0 %" if not count else f"{100 * count / total:.2g} %"

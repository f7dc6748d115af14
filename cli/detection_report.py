"""What `binpoint run` prints about detections: as JSON and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from binpoint.cli.output import print_table
from binpoint.runtime.detection.agreement import MATCHING_IOU, Agreement, agreement
from binpoint.runtime.detection.decode import Detection
from binpoint.runtime.detection.stream import PictureResult
from binpoint.support.diagnostics import printable

SHOWN_PICTURES = 16
"""Up to so many pictures are shown detection by detection, more only by their classes."""


def detection_facts(results: Sequence[PictureResult]) -> dict[str, Any]:
    """Detections as JSON: a list of pictures, and how far they agree with those of the float network."""
    facts: dict[str, Any] = {"pictures": [_picture_facts(result) for result in results]}
    total = _agreement(results)
    if total is not None:
        facts["agreement"] = {
            "iou": MATCHING_IOU,
            "float_detections": total.reference,
            "detections": total.found,
            "matched": total.matched,
            "precision": total.precision,
            "recall": total.recall,
            "f1": total.f1,
        }
    return facts


def print_detections(results: Sequence[PictureResult], drawn: Path | None) -> None:
    """Detections as tables; where they were drawn; and how far they agree with those of the float network."""
    if len(results) <= SHOWN_PICTURES:
        _print_table("detections", [(result.name, each) for result in results for each in result.detections])
        in_float = [(result.name, each) for result in results for each in result.in_float or ()]
        if any(result.in_float is not None for result in results):
            _print_table("detections in float", in_float)
    else:
        counts = Counter(each.class_name for result in results for each in result.detections)
        rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
        print_table(f"detections in {len(results)} pictures", ("class", "detections"), rows)
    empty = sum(not result.detections for result in results)
    if empty:
        print(f"nothing was found in {empty} of {len(results)} pictures")
    if drawn is not None:
        print(printable(f"drawn: {drawn}"))
    total = _agreement(results)
    if total is not None:
        print(
            f"agreement with float (same class, IoU of at least {MATCHING_IOU}): precision {total.precision:.3f}, "
            f"recall {total.recall:.3f}, F1 {total.f1:.3f}; {total.matched} of {total.reference} float detections"
        )


def _print_table(title: str, rows: Sequence[tuple[str, Detection]]) -> None:
    cells = [
        (name, each.class_name, f"{each.score:.2f}", ", ".join(f"{side:.0f}" for side in each.box))
        for name, each in rows
    ]
    print_table(title, ("picture", "class", "score", "box: x0, y0, x1, y1"), cells)


def _picture_facts(result: PictureResult) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "picture": result.name,
        "width": result.size[0],
        "height": result.size[1],
        "detections": [_facts(each) for each in result.detections],
    }
    if result.in_float is not None:
        facts["float_detections"] = [_facts(each) for each in result.in_float]
    return facts


def _facts(detection: Detection) -> dict[str, Any]:
    return {"class": detection.class_name, "score": detection.score, "box": list(detection.box)}


def _agreement(results: Sequence[PictureResult]) -> Agreement | None:
    """Over all pictures; None where the float network did not run."""
    compared = [agreement(each.detections, each.in_float) for each in results if each.in_float is not None]
    return sum(compared, Agreement()) if compared else None

"""A detector as JSON, as artifacts keep it."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from binpoint.support.detector import Detector, Head, are_anchors
from binpoint.support.diagnostics import Location, UserError, user_error
from binpoint.support.json_text import JsonText
from binpoint.support.number_text import format_number, parse_number


def print_detector(detector: Detector) -> str:
    """The detector as JSON, always the same for the same contents."""
    return json.dumps(detector_facts(detector), indent=2, ensure_ascii=False) + "\n"


def detector_facts(detector: Detector) -> dict[str, Any]:
    """The detector as JSON values. Numbers are exact: texts such as "1/3"."""
    return {
        "score": format_number(detector.score),
        "iou": format_number(detector.iou),
        "heads": [
            {
                "output": head.output,
                "anchors": [[format_number(width), format_number(height)] for width, height in head.anchors],
                "softmax": head.softmax,
            }
            for head in detector.heads
        ],
        "classes": list(detector.classes),
    }


def parse_detector(text: str, file: str) -> Detector:
    """Read a detector; `file` names it in diagnostics.

    Raises:
        UserError: where the text is not what `print_detector` writes.
    """
    document = JsonText(text, file, "detector").data
    match document:
        case {"score": str(score), "iou": str(iou), "heads": [_, *_] as heads, "classes": [*classes]}:
            if all(isinstance(name, str) for name in classes):
                thresholds = _number(score, file), _number(iou, file)
                read = tuple(_head(head, file) for head in heads)
                distinct = len({head.output for head in read}) == len(read)
                if distinct and all(0 <= threshold < 1 for threshold in thresholds):
                    return Detector(read, tuple(classes), *thresholds)
    raise _fault(file, document)


def _head(document: Any, file: str) -> Head:
    match document:
        case {"output": str(output), "anchors": [_, *_] as anchors, "softmax": bool(softmax)}:
            return Head(output, tuple(_anchor(anchor, file) for anchor in anchors), softmax)
    raise _fault(file, document)


def _anchor(document: Any, file: str) -> tuple[Fraction, Fraction]:
    match document:
        case [str(width), str(height)]:
            anchor = _number(width, file), _number(height, file)
            if are_anchors(anchor):
                return anchor
    raise _fault(file, document)


def _number(text: str, file: str) -> Fraction:
    try:
        return parse_number(text)
    except ValueError:
        raise _fault(file, text) from None


def _fault(file: str, document: Any) -> UserError:
    message = "the detector is not as binpoint writes it"
    return user_error("damaged-artifact", message, location=Location(file), found=str(document)[:40])

"""Detectors as JSON."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from binpoint.runtime.detection.document import parse_detector, print_detector
from binpoint.support.detector import Detector, Head
from binpoint.support.diagnostics import UserError

ANCHOR = (Fraction(10), Fraction(1, 3))
DETECTOR = Detector(
    (Head("a", (ANCHOR,)), Head("b", (ANCHOR, ANCHOR), True)), ("dog", "café"), Fraction(1, 3), Fraction(0)
)


def test_it_comes_back() -> None:
    assert parse_detector(print_detector(DETECTOR), "x") == DETECTOR
    assert parse_detector(print_detector(Detector(DETECTOR.heads)), "x") == Detector(DETECTOR.heads)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("score", "1"),
        ("score", 0.5),
        ("iou", "-0.1"),
        ("iou", "much"),
        ("heads", []),
        ("heads", [{"output": "a"}]),
        ("heads", [{"output": "a", "anchors": [["1", "0"]], "softmax": False}]),
        ("heads", [{"output": "a", "anchors": [["1"]], "softmax": False}]),
        ("heads", [{"output": "a", "anchors": [["1", "2"]], "softmax": 0}]),
        ("heads", [{"output": "a", "anchors": [["1", "1e400"]], "softmax": False}]),
        ("heads", [{"output": "a", "anchors": [["1", "2"]], "softmax": False}] * 2),
        ("classes", ["dog", 1]),
        ("classes", "dog"),
    ],
)
def test_damage_is_an_error(key: str, value: object) -> None:
    document = json.loads(print_detector(DETECTOR)) | {key: value}
    with pytest.raises(UserError) as caught:
        parse_detector(json.dumps(document), "x")
    assert caught.value.diagnostics[0].code == "damaged-artifact"

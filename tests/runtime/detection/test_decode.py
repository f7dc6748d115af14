"""Boxes out of head outputs: positions, sizes, scores, thresholds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from binpoint.runtime.detection.decode import decode_head, read_detections
from binpoint.runtime.detection.letterbox import place
from binpoint.support.detector import Detector, Head

ANCHORS = ((Fraction(10), Fraction(20)), (Fraction(40), Fraction(16)))
INSIDE = (96, 64)
"""The input's (width, height); grids below have 3 columns and 2 rows of 32 x 32 pixels."""


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def test_a_box_is_decoded_as_the_formula_says() -> None:
    values = np.random.default_rng(0).normal(size=(2 * 8, 2, 3))
    for softmax in (False, True):
        boxes, scores = decode_head(Head("h", ANCHORS, softmax), values, INSIDE)
        assert (boxes.shape, scores.shape) == ((2, 2, 3, 4), (2, 2, 3, 3))
        for anchor, (width, height) in enumerate(ANCHORS):
            for row in range(2):
                for column in range(3):
                    x, y, w, h, objectness, *classes = values[8 * anchor : 8 * anchor + 8, row, column]
                    middle = (column + sigmoid(x)) * 32, (row + sigmoid(y)) * 32
                    half = float(width) * math.exp(w) / 2, float(height) * math.exp(h) / 2
                    corners = [middle[0] - half[0], middle[1] - half[1], middle[0] + half[0], middle[1] + half[1]]
                    assert np.allclose(boxes[anchor, row, column], corners)
                    total = sum(math.exp(each) for each in classes)
                    shares = [math.exp(each) / total if softmax else sigmoid(each) for each in classes]
                    assert np.allclose(scores[anchor, row, column], [sigmoid(objectness) * share for share in shares])


def test_extreme_numbers_stay_finite() -> None:
    values = np.full((16, 2, 3), 1e30)
    boxes, scores = decode_head(Head("h", ANCHORS, True), values, INSIDE)
    assert np.isfinite(boxes).all()
    assert np.allclose(scores, 1 / 3)
    assert (decode_head(Head("h", ANCHORS), -values, INSIDE)[1] == 0).all()


def outputs(entries: dict[tuple[int, int, int], tuple[float, ...]]) -> dict[str, np.ndarray]:
    """One picture: (anchor, row, column) -> the 7 numbers of a box; nothing elsewhere."""
    values = np.zeros((1, 14, 2, 3))
    values[:, [4, 11]] = -50
    for (anchor, row, column), numbers in entries.items():
        values[0, 7 * anchor : 7 * anchor + 7, row, column] = numbers
    return {"h": values}


DETECTOR = Detector((Head("h", ANCHORS),), ("cat", "traffic light"))


def test_detections_come_best_first_in_pixels_of_the_picture() -> None:
    found = outputs({(0, 0, 0): (0, 0, 0, 0, 9, -9, 1), (1, 1, 2): (0, 0, 0, 0, 9, 3, -9)})
    (detections,) = read_detections(DETECTOR, found, INSIDE, [place((192, 128), INSIDE)])
    assert [(each.class_name, each.class_index) for each in detections] == [("cat", 0), ("traffic light", 1)]
    assert detections[0].score == pytest.approx(sigmoid(9) * sigmoid(3))
    assert detections[0].box == pytest.approx((120, 80, 192, 112))  # cut at the right edge
    assert detections[1].box == pytest.approx((22, 12, 42, 52))


def test_the_threshold_and_overlapping_boxes() -> None:
    found = outputs(
        {
            (0, 0, 0): (0, 0, 0, 0, 9, 2, 2),
            (0, 0, 1): (-9, 0, 1.0, 0, 9, 1, -9),
            (1, 0, 0): (0, 0, math.log(1 / 4), math.log(20 / 16), 9, 1, -9),
            (1, 1, 2): (0, 0, 0, 0, 9, -1, -1),
        }
    )
    (detections,) = read_detections(DETECTOR, found, INSIDE, [place(INSIDE, INSIDE)])
    # The box of anchor 1 equals that of anchor 0, which scores higher; classes do not suppress each other.
    assert [(each.class_name, round(each.box[0])) for each in detections] == [
        ("cat", 11),
        ("traffic light", 11),
        ("cat", 18),
    ]
    low = Detector(DETECTOR.heads, (), Fraction(1, 5), Fraction(99, 100))
    (more,) = read_detections(low, found, INSIDE, [place(INSIDE, INSIDE)])
    assert len(more) == 5
    assert {each.class_name for each in more} == {"0", "1"}


def test_no_detections_and_several_pictures() -> None:
    values = {"h": np.concatenate([outputs({})["h"], outputs({(0, 0, 0): (0, 0, 0, 0, 9, 9, -9)})["h"]])}
    first, second = read_detections(DETECTOR, values, INSIDE, [place(INSIDE, INSIDE)] * 2)
    assert (len(first), len(second)) == (0, 1)


def test_heads_are_read_together() -> None:
    detector = Detector((Head("h", ANCHORS), Head("g", ANCHORS)))
    values = outputs({(0, 0, 0): (0, 0, 0, 0, 9, 2, -9)})
    values["g"] = outputs({(0, 0, 0): (0, 0, 0, 0, 9, 3, -9)})["h"]
    (detections,) = read_detections(detector, values, INSIDE, [place(INSIDE, INSIDE)])
    assert [each.score for each in detections] == [pytest.approx(sigmoid(9) * sigmoid(3))]

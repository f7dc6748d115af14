"""Agreement of two sets of detections."""

from __future__ import annotations

import pytest

from binpoint.runtime.detection.agreement import Agreement, agreement
from binpoint.runtime.detection.decode import Detection


def found(class_index: int, score: float, *box: float) -> Detection:
    return Detection(class_index, str(class_index), score, (box[0], box[1], box[2], box[3]))


def test_classes_and_overlaps_decide() -> None:
    reference = [found(0, 0.9, 0, 0, 10, 10), found(0, 0.8, 20, 0, 30, 10), found(1, 0.7, 0, 0, 10, 10)]
    good = [found(0, 0.5, 1, 0, 11, 10), found(1, 0.6, 0, 0, 10, 10), found(2, 0.9, 20, 0, 30, 10)]
    assert agreement(good, reference) == Agreement(3, 3, 2)
    assert agreement(good, reference, 0.9) == Agreement(3, 3, 1)


def test_a_reference_counts_once_and_the_better_detection_takes_it() -> None:
    reference = [found(0, 0.9, 0, 0, 10, 10), found(0, 0.9, 4, 0, 14, 10)]
    assert agreement([found(0, 0.8, 0, 0, 10, 10)] * 3, reference[:1]) == Agreement(1, 3, 1)
    assert agreement([found(0, 0.5, 2, 0, 12, 10), found(0, 0.9, 1, 0, 11, 10)], reference) == Agreement(2, 2, 2)


def test_rates() -> None:
    total = Agreement(4, 5, 3) + Agreement(1, 0, 0)
    assert (total.precision, total.recall, total.f1) == (0.6, 0.6, 0.6)
    assert (Agreement().precision, Agreement().recall, Agreement().f1) == (1, 1, 1)
    assert (Agreement(2, 0, 0).precision, Agreement(2, 0, 0).f1) == (1, 0)
    assert Agreement(0, 2, 0).recall == pytest.approx(1)

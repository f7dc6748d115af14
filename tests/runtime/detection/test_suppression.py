"""Overlap of boxes and suppression, against a scalar definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.runtime.detection.suppression import keep_best, overlaps

BOXES = st.lists(
    st.tuples(*[st.integers(0, 12)] * 4, st.integers(1, 6), st.integers(0, 2)), min_size=0, max_size=12
).map(lambda rows: [(x, y, x + w, y + h, score / 8, each) for x, y, w, h, score, each in rows])


def share(first, second) -> float:
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    both = max(0, width) * max(0, height)
    area = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)) - both
    return both / area if area else 0.0


@pytest.mark.parametrize(
    ("other", "expected"),
    [((0, 0, 4, 4), 1), ((2, 0, 6, 4), 1 / 3), ((4, 0, 8, 4), 0), ((1, 1, 3, 3), 1 / 4), ((2, 2, 2, 2), 0)],
)
def test_overlap(other: tuple[int, ...], expected: float) -> None:
    assert overlaps(np.array([[0.0, 0, 4, 4]]), np.array([other], np.float64))[0, 0] == pytest.approx(expected)


@given(BOXES, st.sampled_from([0.0, 0.3, 0.45, 0.99]))
def test_suppression_is_the_greedy_one(rows, threshold: float) -> None:
    boxes = np.array([row[:4] for row in rows], np.float64).reshape(-1, 4)
    scores = np.array([row[4] for row in rows])
    classes = np.array([row[5] for row in rows], np.int64)
    expected: list[int] = []
    for index in sorted(range(len(rows)), key=lambda index: (-scores[index], index)):
        rivals = [kept for kept in expected if classes[kept] == classes[index]]
        if all(share(boxes[kept], boxes[index]) <= threshold for kept in rivals):
            expected.append(index)
    assert keep_best(boxes, scores, classes, threshold).tolist() == expected

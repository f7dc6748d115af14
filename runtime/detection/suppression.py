"""Overlap of boxes, and suppression of those that a better one of their class overlaps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def overlaps(boxes: FloatArray, others: FloatArray) -> FloatArray:
    """Intersection over union of each of n boxes (n, 4) with each of m others (m, 4): (n, m), 0 to 1.

    Boxes are x0, y0, x1, y1. Two boxes without area do not overlap.
    """
    least = np.maximum(boxes[:, None, :2], others[None, :, :2])
    most = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    sides = np.maximum(0, most - least)
    shared = sides[..., 0] * sides[..., 1]
    union = _areas(boxes)[:, None] + _areas(others)[None, :] - shared
    return np.asarray(np.divide(shared, union, out=np.zeros(shared.shape), where=union > 0))


def keep_best(boxes: FloatArray, scores: FloatArray, classes: NDArray[np.int64], threshold: float) -> NDArray[np.int64]:
    """Non-maximum suppression in each class.

    From the best box of a class down, every box goes that overlaps it by more than the threshold.

    Args:
        boxes: (n, 4) of x0, y0, x1, y1.
        scores: (n,).
        classes: (n,).
        threshold: the largest intersection over union of two boxes of a class that both stay.

    Returns:
        The numbers of the boxes that stay, best first; of equal scores, the earlier box.
    """
    kept: list[int] = []
    for each in np.unique(classes):
        left = np.flatnonzero(classes == each)
        left = left[np.argsort(-scores[left], kind="stable")]
        while len(left):
            kept.append(int(left[0]))
            left = left[1:][overlaps(boxes[left[:1]], boxes[left[1:]])[0] <= threshold]
    numbers = np.array(sorted(kept), np.int64)
    return numbers[np.argsort(-scores[numbers], kind="stable")]


def _areas(boxes: FloatArray) -> FloatArray:
    return np.asarray((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))

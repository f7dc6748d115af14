"""How far the detections of one network agree with those of another: precision, recall, F1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from binpoint.runtime.detection.decode import Detection
from binpoint.runtime.detection.suppression import overlaps

MATCHING_IOU = 0.5
"""The least overlap of two detections of one object."""


@dataclass(frozen=True)
class Agreement:
    """Counts of detections: those of the reference, those found, and the pairs that match."""

    reference: int = 0
    found: int = 0
    matched: int = 0

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.reference + other.reference, self.found + other.found, self.matched + other.matched)

    @property
    def precision(self) -> float:
        """The share of what was found that the reference has, 1 where nothing was found."""
        return self.matched / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """The share of the reference that was found, 1 where there is none."""
        return self.matched / self.reference if self.reference else 1.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        total = self.found + self.reference
        return 2 * self.matched / total if total else 1.0


def agreement(found: Sequence[Detection], reference: Sequence[Detection], iou: float = MATCHING_IOU) -> Agreement:
    """Compare the detections of one picture.

    From the best detection down, each takes the one of the reference, of its class and not taken yet, that it overlaps
    most, if that is at least `iou`.
    """
    left = list(reference)
    matched = 0
    for detection in sorted(found, key=lambda each: -each.score):
        same = [other for other in left if other.class_index == detection.class_index]
        if not same:
            continue
        shares = overlaps(np.array([detection.box]), np.array([other.box for other in same]))[0]
        best = int(shares.argmax())
        if shares[best] >= iou:
            left.remove(same[best])
            matched += 1
    return Agreement(len(reference), len(found), matched)

"""The outputs of a detector -> boxes with scores (Redmon and Farhadi 2016, fig. 3; 2018, sec. 2.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.runtime.detection.letterbox import Placement
from binpoint.runtime.detection.suppression import keep_best
from binpoint.support.detector import BOX_NUMBERS, Detector, Head

LARGEST_GROWTH = 30.0
"""The exponent of the largest growth of an anchor: e^30 is beyond any picture, and far from infinity."""

Outputs = Mapping[str, NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class Detection:
    """One object in one picture.

    Attributes:
        class_index: the number of its class.
        class_name: what the class is called.
        score: objectness times class probability, 0 to 1.
        box: x0, y0, x1, y1 in pixels of the picture, from its left upper corner.
    """

    class_index: int
    class_name: str
    score: float
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Candidates:
    """Boxes (n, 4) of x0, y0, x1, y1 in pixels of the input, their scores (n,) and classes (n,)."""

    boxes: NDArray[np.float64]
    scores: NDArray[np.float64]
    classes: NDArray[np.int64]


def read_detections(
    detector: Detector, outputs: Outputs, inside: tuple[int, int], placements: Sequence[Placement]
) -> list[tuple[Detection, ...]]:
    """The detections of each picture of a batch, best first.

    Args:
        detector: how boxes are read, and the thresholds.
        outputs: the numbers (N, C, H, W) of each head's output by its name.
        inside: (width, height) of the network's input.
        placements: where each of the N pictures lies in the input.
    """
    found = []
    for image, placement in enumerate(placements):
        parts = [_candidates(detector, head, outputs[head.output][image], inside) for head in detector.heads]
        joined = Candidates(
            np.concatenate([part.boxes for part in parts]),
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.classes for part in parts]),
        )
        found.append(_detections(detector, joined, placement))
    return found


def decode_head(
    head: Head, values: NDArray[np.floating[Any]], inside: tuple[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All boxes of one head in one picture.

    Args:
        head: its anchors, and how classes are read.
        values: (A * (5 + classes), H, W): x, y, width, height, objectness and classes of each anchor.
        inside: (width, height) of the network's input in pixels.

    Returns:
        Boxes (A, H, W, 4) of x0, y0, x1, y1 in pixels of the input, and scores (A, H, W, classes).
    """
    _, rows, columns = values.shape
    numbers = values.astype(np.float64).reshape(len(head.anchors), -1, rows, columns)
    width, height = inside
    x = (np.arange(columns) + _sigmoid(numbers[:, 0])) * (width / columns)
    y = (np.arange(rows)[:, None] + _sigmoid(numbers[:, 1])) * (height / rows)
    anchors = np.array([[float(side) for side in anchor] for anchor in head.anchors])
    growth = np.exp(np.minimum(numbers[:, 2:4], LARGEST_GROWTH))
    half = growth * anchors[:, :, None, None] / 2
    boxes = np.stack([x - half[:, 0], y - half[:, 1], x + half[:, 0], y + half[:, 1]], axis=-1)
    logits = numbers[:, BOX_NUMBERS:]
    classes = _softmax(logits) if head.softmax else _sigmoid(logits)
    scores = _sigmoid(numbers[:, 4:5]) * classes
    return boxes, scores.transpose(0, 2, 3, 1)


def _candidates(
    detector: Detector, head: Head, values: NDArray[np.floating[Any]], inside: tuple[int, int]
) -> Candidates:
    """The boxes of one head that score above the threshold, once for each class."""
    boxes, scores = decode_head(head, values, inside)
    where = np.nonzero(scores > float(detector.score))
    return Candidates(boxes[where[:3]], scores[where], where[3])


def _detections(detector: Detector, found: Candidates, placement: Placement) -> tuple[Detection, ...]:
    kept = keep_best(found.boxes, found.scores, found.classes, float(detector.iou))
    boxes = placement.to_picture(found.boxes[kept])
    return tuple(
        Detection(int(index), detector.class_name(int(index)), float(score), (box[0], box[1], box[2], box[3]))
        for index, score, box in zip(found.classes[kept], found.scores[kept], boxes.tolist(), strict=True)
    )


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    decay = np.exp(-np.abs(values))
    return np.asarray(np.where(values >= 0, 1, decay) / (1 + decay))


def _softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the classes: axis 1 of (A, classes, H, W)."""
    exponentials = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))

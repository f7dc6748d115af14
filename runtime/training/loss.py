"""The loss on the host, in float64: softmax and cross-entropy, the mean over a mini-batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from binpoint.runtime.data import Labels
from binpoint.support.diagnostics import user_error

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Loss:
    """The mean cross-entropy in nats, how many images have their highest score at their label, and dL/dlogits."""

    value: float
    correct: int
    gradient: Array


def cross_entropy(logits: Array, labels: Labels) -> Loss:
    """Softmax and cross-entropy of logits (N, K, H, W) with H = W = 1 against labels (N,).

    The gradient is (softmax - one hot) / N.
    """
    scores = logits.reshape(len(logits), -1)
    shifted = scores - scores.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(len(scores))
    value = float(np.mean(np.log(sums[:, 0]) - shifted[rows, labels]))
    gradient = exponentials / sums
    gradient[rows, labels] -= 1
    return Loss(value, count_correct(scores, labels), (gradient / len(scores)).reshape(logits.shape))


def count_correct(scores: NDArray[np.generic], labels: Labels) -> int:
    """How many images have their highest score at their label; of equal scores the first counts."""
    return int(np.count_nonzero(scores.reshape(len(scores), -1).argmax(axis=1) == labels))


def check_labels(labels: Labels | None, classes: int, what: str) -> Labels:
    """The labels, where they are labels of so many classes.

    Raises:
        UserError: there are none, or one is no class of the network; `what` names the data.
    """
    if labels is None:
        raise user_error(
            "no-labels",
            f"the {what} has no labels, and training needs them",
            expected="mnist:DIR, a .npz file with labels, or a folder with a sub-folder for each label",
        )
    highest = int(labels.max(initial=0))
    if highest >= classes:
        raise user_error(
            "unknown-class",
            f"the {what} has labels that the network has no class for",
            found=f"label {highest}",
            expected=f"0 to {classes - 1}",
        )
    return labels

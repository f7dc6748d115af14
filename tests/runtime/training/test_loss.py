from __future__ import annotations

import numpy as np
import pytest

from binpoint.runtime.training.loss import check_labels, count_correct, cross_entropy
from binpoint.support.diagnostics import UserError

LOGITS = np.array([[1.0, 2.0, 0.5], [3.0, 3.0, -1.0]])[:, :, None, None]
LABELS = np.array([1, 0])


def test_the_value_is_the_mean_of_minus_the_log_of_the_softmax() -> None:
    scores = LOGITS[:, :, 0, 0]
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert cross_entropy(LOGITS, LABELS).value == pytest.approx(-np.log(shares[[0, 1], LABELS]).mean())


def test_the_gradient_is_the_derivative() -> None:
    loss = cross_entropy(LOGITS, LABELS)
    for index in np.ndindex(LOGITS.shape):
        up, down = LOGITS.copy(), LOGITS.copy()
        up[index] += 1e-6
        down[index] -= 1e-6
        slope = (cross_entropy(up, LABELS).value - cross_entropy(down, LABELS).value) / 2e-6
        assert loss.gradient[index] == pytest.approx(slope, abs=1e-8)


def test_of_equal_scores_the_first_counts() -> None:
    assert cross_entropy(LOGITS, LABELS).correct == 2
    assert count_correct(LOGITS, np.array([1, 1])) == 1


def test_large_logits_do_not_overflow() -> None:
    loss = cross_entropy(np.array([[1e5, -1e5]])[:, :, None, None], np.array([1]))
    assert loss.value == pytest.approx(2e5)
    assert loss.gradient[0, :, 0, 0] == pytest.approx([1, -1])


def test_data_without_labels_cannot_train() -> None:
    with pytest.raises(UserError, match="no-labels"):
        check_labels(None, 3, "training data")


def test_a_label_past_the_classes_is_refused() -> None:
    assert check_labels(np.array([0, 2]), 3, "test data").tolist() == [0, 2]
    with pytest.raises(UserError, match="label 3"):
        check_labels(np.array([0, 3]), 3, "test data")

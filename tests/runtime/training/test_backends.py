"""Whole mini-batches on compiled kernels are those of the oracle, bit for bit, on any number of threads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from tests.training_programs import NORMALISED, PLAIN, STOCHASTIC, engine, machine, mini_batch, same_snapshots, train

STEPS = 5


@pytest.mark.parametrize("text", [PLAIN, NORMALISED, STOCHASTIC], ids=["plain", "normalised", "stochastic"])
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_kernels_train_as_the_oracle_does(text: str, threads: int) -> None:
    oracle, compiled = engine(text), engine(text, replace(machine(), backend=TensorExpressionBackend(threads)))
    for left, right in zip(train(oracle, STEPS), train(compiled, STEPS), strict=True):
        assert (left.loss, left.correct) == (right.loss, right.correct)
        assert dict(left.events) == dict(right.events)
        assert dict(left.decisions) == dict(right.decisions)
    assert same_snapshots(oracle, compiled)
    images = mini_batch().inputs
    assert oracle.scores(images).tolist() == compiled.scores(images).tolist()

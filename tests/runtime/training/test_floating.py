from __future__ import annotations

import numpy as np

from binpoint.runtime.training.floating import FloatEngine
from tests.training_programs import NORMALISED, engine, first_parameters, mini_batch, running, train, trainable


def floating(text: str = NORMALISED) -> FloatEngine:
    return FloatEngine(trainable(text), first_parameters(text), running(text))


def test_it_is_the_yardstick_of_fixed_point() -> None:
    one, other = train(floating(), 12), train(engine(NORMALISED), 12)
    assert np.abs(one[0].loss - other[0].loss) < 0.05
    assert np.mean([each.loss for each in one[-4:]]) < 0.1
    assert [each.images for each in one] == [each.images for each in other]


def test_it_has_no_exponents() -> None:
    result = train(floating(), 1)[0]
    assert (dict(result.events), dict(result.decisions), floating().exponents) == ({}, {}, {})


def test_a_snapshot_does_not_move_with_the_training() -> None:
    trained = floating()
    snapshot = trained.snapshot()
    before = {name: values.copy() for name, values in snapshot.arrays.items()}
    train(trained, 2)
    assert all(np.array_equal(snapshot.arrays[name], before[name]) for name in before)
    assert not np.array_equal(trained.snapshot().arrays["bn.mean"], before["bn.mean"])


def test_masters_are_the_parameters() -> None:
    trained = floating()
    train(trained, 2)
    network = trained.trained()
    assert network.parameters.keys() == network.masters.keys() == {p.name for p in trainable(NORMALISED).parameters}
    assert set(network.running) == {"bn.mean", "bn.variance"}
    assert not network.exponents


def test_evaluation_uses_running_statistics() -> None:
    trained = floating()
    train(trained, 2)
    images = mini_batch().inputs["image"]
    whole = trained.scores({"image": images})
    assert np.allclose(whole[:1], trained.scores({"image": images[:1]}), rtol=1e-5)

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from binpoint.runtime.training.accelerator import Acquisition
from binpoint.runtime.training.fixed_point import FixedPointEngine
from binpoint.runtime.training.floating import FloatEngine
from binpoint.runtime.training.trial import first_exponents
from binpoint.support.target import Allocator
from tests.training_programs import (
    NORMALISED,
    PLAIN,
    RATE,
    STOCHASTIC,
    TARGET,
    engine,
    first_parameters,
    machine,
    mini_batch,
    running,
    same_snapshots,
    samples,
    train,
    trainable,
)

TEXTS = pytest.mark.parametrize("text", [PLAIN, NORMALISED, STOCHASTIC], ids=["plain", "normalised", "stochastic"])


def outcomes(results: list) -> list:
    """What mini-batches left, as it must repeat exactly."""
    return [(each.loss, each.correct, dict(each.events), dict(each.decisions)) for each in results]


@TEXTS
def test_it_learns(text: str) -> None:
    trained = engine(text)
    losses = [each.loss for each in train(trained, 32)]
    assert losses[0] > 0.8
    assert np.mean(losses[-8:]) < 0.1


@TEXTS
def test_host_and_controller_allocate_to_the_same_results(text: str) -> None:
    basic, derived = engine(text), engine(text, machine(replace(TARGET, allocator=Allocator.CONTROLLER)))
    assert outcomes(train(basic, 4)) == outcomes(train(derived, 4))
    assert same_snapshots(basic, derived)


def test_circuits_and_instructions_acquire_the_same() -> None:
    circuits, instructions = engine(), engine(on=machine(acquisition=Acquisition.INSTRUCTIONS))
    assert outcomes(train(circuits, 4)) == outcomes(train(instructions, 4))


@TEXTS
@pytest.mark.parametrize("steps", [1, 3])
def test_a_restored_engine_goes_on_as_if_it_had_never_stopped(text: str, steps: int) -> None:
    whole = engine(text)
    train(whole, steps)
    resumed = FixedPointEngine.restore(trainable(text), machine(), whole.snapshot())
    assert same_snapshots(whole, resumed)
    assert resumed.step == steps
    assert outcomes(train(whole, 3)) == outcomes(train(resumed, 3))
    assert same_snapshots(whole, resumed)


@TEXTS
def test_evaluation_changes_nothing(text: str) -> None:
    evaluated, other = engine(text), engine(text)
    train(evaluated, 1), train(other, 1)
    parts = [evaluated.scores(part.inputs, part.first) for part in samples(20).batches(BATCH)]
    assert np.concatenate(parts).shape == (20, 3)
    assert same_snapshots(evaluated, other)
    assert outcomes(train(evaluated, 2)) == outcomes(train(other, 2))


BATCH = 8


def test_evaluation_does_not_depend_on_the_mini_batch() -> None:
    trained = engine(NORMALISED)
    train(trained, 2)
    whole = trained.scores(mini_batch().inputs)
    alone = [trained.scores({"image": mini_batch().inputs["image"][index : index + 1]})[0] for index in range(BATCH)]
    assert np.array_equal(whole, alone)


@pytest.mark.parametrize("text", [PLAIN, NORMALISED], ids=["plain", "normalised"])
def test_scaling_the_loss_moves_exponents_alone(text: str) -> None:
    plain, scaled = engine(text), engine(text, scale_exponent=5)
    one, other = train(plain, 6), train(scaled, 6)
    assert [each.loss for each in one] == [each.loss for each in other]
    left, right = plain.snapshot(), scaled.snapshot()
    assert all(np.array_equal(left.arrays[name], right.arrays[name]) for name in left.arrays)
    gradients = [name for name in plain.exponents if name.endswith(".grad")]
    assert gradients
    for name in plain.exponents:
        assert scaled.exponents[name] == plain.exponents[name] + (5 if name in gradients else 0), name


def test_the_records_of_a_mini_batch_decide_the_exponents_of_the_next() -> None:
    trained = engine()
    before = dict(trained.exponents)
    result = train(trained, 1)[0]
    moved = {name: (each.old, each.new) for name, each in result.decisions.items() if each.old != each.new}
    assert moved
    for name, (old, new) in moved.items():
        assert before[name] == old
        assert trained.exponents[name] == new


def test_thinned_statistics_see_a_part_of_the_parameters_and_whole_updates_see_all() -> None:
    thinned = train(engine(), 1)[0].decisions
    whole = train(engine(on=machine(whole_updates=True)), 1)[0].decisions
    for name in ("conv.weight", "conv.weight.master", "conv.weight.velocity"):
        assert whole[name].samples == 4 * 9
        assert 0 < thinned[name].samples < 4 * 9
    assert whole["conv"].samples == thinned["conv"].samples == 8 * 4 * 36 // 4


def test_without_momentum_there_is_no_velocity() -> None:
    trained = engine(momentum=0)
    assert [each.loss for each in train(trained, 2)]
    assert not any(name.endswith(".velocity") for name in trained.snapshot().arrays)


def test_a_small_last_mini_batch_trains_too() -> None:
    trained = engine(NORMALISED)
    results = train(trained, 8)
    assert [each.images for each in results] == [8] * 7 + [4]


def test_what_is_trained_are_the_numbers_of_the_mantissas() -> None:
    trained = engine(NORMALISED)
    train(trained, 3)
    network, snapshot = trained.trained(), trained.snapshot()
    stored = snapshot.document["stored"]
    for name, values in network.parameters.items():
        assert np.array_equal(values, snapshot.arrays[name] * 2.0 ** stored[name])
        assert network.exponents[name] == stored[name]
        assert np.array_equal(
            network.masters[name], snapshot.arrays[f"{name}.master"] * 2.0 ** stored[f"{name}.master"]
        )
    assert network.exponents["conv"] == trained.exponents["conv"]
    assert set(network.running) == {"bn.mean", "bn.variance"}


def test_running_statistics_follow_the_mini_batches() -> None:
    trained = engine(NORMALISED)
    first = trained.trained().running
    train(trained, 1)
    moved = trained.trained().running
    assert not np.array_equal(first["bn.mean"], moved["bn.mean"])
    assert np.all(np.abs(moved["bn.variance"] - 1) > 0)


def test_wide_formats_update_as_floating_point_does() -> None:
    """Where x is many times as large as its gradient, too: no term of batch normalisation's backward part gets lost."""
    widths = "activations = 16 bits  weights = 16 bits  master_weights = 32 bits"
    wide = NORMALISED.replace("numeric {", f"numeric {{ {widths} ")
    program, batch, before = trainable(wide), mini_batch(), first_parameters(wide)
    before["conv.weight"] = before["conv.weight"] * np.float32(256)
    exponents = first_exponents(program, before, running(wide), batch.inputs, batch.labels, RATE)
    integer = FixedPointEngine.start(program, machine(), before, running(wide), exponents)
    floating = FloatEngine(program, before, running(wide))
    for each in (integer, floating):
        each.train(batch.inputs, batch.labels, RATE)
    masters = integer.trained().masters
    for name, values in floating.snapshot().arrays.items():
        if name in masters:
            assert np.linalg.norm(masters[name] - values) < 0.1 * np.linalg.norm(values - before[name]), name

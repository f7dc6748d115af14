from __future__ import annotations

import io
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from binpoint.runtime.training.engine import MiniBatch, Snapshot, TrainedNetwork
from binpoint.runtime.training.fixed_point import FixedPointEngine
from binpoint.runtime.training.floating import FloatEngine
from binpoint.runtime.training.journal import Journal
from binpoint.runtime.training.learning_rate import parse_schedule
from binpoint.runtime.training.loop import Hooks, TrainingLoop, TrainingOptions, evaluate, last_step
from binpoint.runtime.training.progress import Ending, EpochResult, EpochSums, Progress
from tests.training_programs import (
    NORMALISED,
    PLAIN,
    engine,
    first_parameters,
    machine,
    running,
    same_snapshots,
    samples,
    trainable,
)

OPTIONS = TrainingOptions(8, Fraction(1, 10), epochs=2)
STEPS_PER_EPOCH = 8
TESTING = samples(20, 4)


class Counting:
    """An engine that only counts; the test accuracy rises by a tenth a mini-batch."""

    def __init__(self) -> None:
        self.step = 0
        self.rates: list[float] = []
        self.seen: list[int] = []

    def train(self, inputs: dict, labels: np.ndarray, rate: object) -> MiniBatch:
        self.step += 1
        self.rates.append(rate.multiplier / 2**rate.fraction_bits)
        self.seen.append(len(labels))
        return MiniBatch(1.0, len(labels), len(labels))

    def scores(self, inputs: dict, first: int = 0) -> np.ndarray:
        scores = np.zeros((len(inputs["image"]), 3))
        right = np.arange(first, first + len(scores)) < self.step * 2  # of 20 samples
        labels = TESTING.labels[first : first + len(scores)]
        scores[np.arange(len(scores)), np.where(right, labels, (labels + 1) % 3)] = 1
        return scores

    def snapshot(self) -> Snapshot:
        return Snapshot({}, {"step": self.step})

    def trained(self) -> TrainedNetwork:
        return TrainedNetwork({}, {}, {}, {})


def run(options: TrainingOptions, hooks: Hooks | None = None, testing: object = TESTING) -> tuple[Counting, Progress]:
    counting = Counting()
    loop = TrainingLoop(counting, samples(), testing, options, Journal(None, {}, ()), (), hooks)
    return counting, loop.run(Progress())


def test_training_ends_with_its_epochs() -> None:
    counting, progress = run(OPTIONS)
    assert (counting.step, progress.step, progress.ending) == (16, 16, Ending.EPOCHS)
    assert counting.seen == ([8] * 7 + [4]) * 2
    assert [(each.epoch, each.step) for each in progress.epochs] == [(1, 8), (2, 16)]


def test_training_ends_with_its_steps_and_evaluates_there() -> None:
    _, progress = run(replace(OPTIONS, steps=10))
    assert (progress.step, progress.ending) == (10, Ending.STEPS)
    assert [(each.epoch, each.step, each.test_accuracy) for each in progress.epochs] == [(1, 8, 0.8), (2, 10, 1.0)]


def test_training_ends_where_the_test_set_reaches_its_target_exactly() -> None:
    _, progress = run(replace(OPTIONS, target_accuracy=Fraction("0.8")))
    assert (progress.step, progress.ending) == (8, Ending.TARGET_ACCURACY)
    _, progress = run(replace(OPTIONS, target_accuracy=Fraction("0.801")))
    assert progress.step == 16


def test_without_test_data_there_is_no_accuracy() -> None:
    _, progress = run(OPTIONS, testing=None)
    assert [each.test_accuracy for each in progress.epochs] == [None, None]


def test_rates_follow_the_schedule_to_the_last_step() -> None:
    counting, _ = run(replace(OPTIONS, schedule=parse_schedule("linear"), steps=10))
    assert counting.rates == pytest.approx([0.1 * (10 - step) / 10 for step in range(10)], rel=1e-4)


def test_epochs_are_means_over_their_images() -> None:
    sums = EpochSums()
    sums.add(MiniBatch(3.0, 4, 8), ())
    sums.add(MiniBatch(1.0, 1, 2), ())
    assert sums.result(1, 2, None) == EpochResult(1, 2, 2.6, 0.5, 0.0, 0, None)


def test_checkpoints_come_regularly_and_at_every_end() -> None:
    kept: list[int] = []
    run(replace(OPTIONS, steps=13), Hooks(keep=lambda progress: kept.append(progress.step), keep_every=3))
    assert kept == [3, 6, 8, 9, 12, 13]


def test_steps_and_epochs_are_shown() -> None:
    steps, epochs = [], []
    run(OPTIONS, Hooks(lambda report: steps.append((report.step, report.steps, report.epoch)), epochs.append))
    assert steps[7:9] == [(8, 16, 1), (9, 16, 2)]
    assert [each.epoch for each in epochs] == [1, 2]


def test_last_step_is_the_earlier_of_epochs_and_steps() -> None:
    assert last_step(OPTIONS, 60) == 16
    assert last_step(replace(OPTIONS, steps=5), 60) == 5
    assert last_step(replace(OPTIONS, steps=50), 60) == 16


def test_accuracy_is_an_exact_share() -> None:
    counting = Counting()
    counting.step = 7
    assert evaluate(counting, TESTING, 6) == Fraction(14, 20)


def test_progress_goes_through_json() -> None:
    _, progress = run(replace(OPTIONS, steps=10))
    progress.sums.add(MiniBatch(1 / 3, 1, 3), ())
    found = Progress.of_document(json.loads(json.dumps(progress.document())))
    assert found == progress


def fixed(text: str, snapshot: Snapshot | None) -> FixedPointEngine:
    return engine(text) if snapshot is None else FixedPointEngine.restore(trainable(text), machine(), snapshot)


def floating(text: str, snapshot: Snapshot | None) -> FloatEngine:
    if snapshot is None:
        return FloatEngine(trainable(text), first_parameters(text), running(text))
    return FloatEngine.restore(trainable(text), snapshot)


@pytest.mark.parametrize("make", [fixed, floating])
@pytest.mark.parametrize("text", [PLAIN, NORMALISED], ids=["plain", "normalised"])
def test_stopped_after_any_mini_batch_training_goes_on_to_the_same_end(make: object, text: str) -> None:
    kept: list[tuple[Snapshot, dict, str]] = []

    def trained(snapshot: Snapshot | None, progress: Progress, log: io.StringIO, keep: bool) -> object:
        subject = make(text, snapshot)
        hooks = Hooks(
            keep=lambda progress: kept.append((subject.snapshot(), progress.document(), log.getvalue())), keep_every=1
        )
        journal = Journal(log, trainable(text).formats, trainable(text).formats)
        options = replace(OPTIONS, steps=10)
        loop = TrainingLoop(
            subject, samples(), TESTING, options, journal, trainable(text).formats, hooks if keep else None
        )
        loop.run(progress)
        return subject

    whole_log = io.StringIO()
    whole = trained(None, Progress(), whole_log, keep=True)
    assert len(kept) == 10
    for snapshot, document, log in kept[::3]:
        resumed_log = io.StringIO(log)
        resumed_log.seek(0, io.SEEK_END)
        resumed = trained(snapshot, Progress.of_document(document), resumed_log, keep=False)
        assert same_snapshots(whole, resumed)
        assert timeless(resumed_log) == timeless(whole_log)


def timeless(log: io.StringIO) -> list[dict]:
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    return [{name: value for name, value in line.items() if name != "images_per_second"} for line in lines]


def test_a_training_that_ended_goes_on_where_it_gets_more_steps() -> None:
    counting = Counting()

    def loop(steps: int) -> TrainingLoop:
        options = replace(OPTIONS, steps=steps)
        return TrainingLoop(counting, samples(), TESTING, options, Journal(None, {}, ()), ())

    progress = loop(5).run(Progress())
    assert progress.ending is Ending.STEPS
    assert loop(5).run(progress).step == 5
    assert loop(7).run(progress).step == 7
    assert counting.step == 7

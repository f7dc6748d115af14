"""The loop of training: mini-batches, epochs, evaluation, checkpoints and the conditions under which it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import isfinite

from binpoint.runtime.data import Samples
from binpoint.runtime.training.data_order import DataOrder
from binpoint.runtime.training.engine import Engine, MiniBatch
from binpoint.runtime.training.journal import Journal
from binpoint.runtime.training.learning_rate import RateSchedule
from binpoint.runtime.training.loss import check_labels, count_correct
from binpoint.runtime.training.progress import Ending, EpochResult, Progress
from binpoint.support.diagnostics import user_error


@dataclass(frozen=True)
class TrainingOptions:
    """How training goes.

    Attributes:
        batch: images of a mini-batch; the last one of an epoch may be smaller.
        rate: the learning rate of the first mini-batch.
        schedule: how the rate moves.
        seed: of the data order.
        epochs: ends training.
        steps: ends training earlier; None for no such end.
        target_accuracy: ends training once the test set reaches it; None for no such end.
    """

    batch: int
    rate: Fraction
    schedule: RateSchedule = RateSchedule()
    seed: int = 0
    epochs: int = 1
    steps: int | None = None
    target_accuracy: Fraction | None = None


@dataclass(frozen=True)
class StepReport:
    """One mini-batch as it is shown: its number of all, its epoch (both from 1), and the images of a second."""

    step: int
    steps: int
    epoch: int
    batch: MiniBatch
    images_per_second: float


@dataclass(frozen=True)
class Hooks:
    """What else happens.

    Attributes:
        on_step, on_epoch: called after each.
        keep: writes a checkpoint.
        keep_every: after so many mini-batches, at the end of every epoch, and at the very end.
    """

    on_step: Callable[[StepReport], None] | None = None
    on_epoch: Callable[[EpochResult], None] | None = None
    keep: Callable[[Progress], None] | None = None
    keep_every: int = 200


class TrainingLoop:
    """Trains an engine to the end.

    Args:
        engine: what is trained.
        training: the samples, with labels.
        testing: for the accuracy at the end of every epoch; None for no evaluation.
        options: how.
        journal: the log.
        counted: the tensors whose saturation counts.
        hooks: what else happens.
    """

    def __init__(
        self,
        engine: Engine,
        training: Samples,
        testing: Samples | None,
        options: TrainingOptions,
        journal: Journal,
        counted: Collection[str],
        hooks: Hooks | None = None,
    ) -> None:
        self._engine, self._training, self._testing = engine, training, testing
        self._options, self._journal, self._counted = options, journal, counted
        self._hooks = hooks or Hooks()
        self._order = DataOrder(len(training), options.batch, options.seed)

    @property
    def steps(self) -> int:
        """Mini-batches of the whole training, unless it reaches its target earlier."""
        return last_step(self._options, len(self._training))

    def run(self, progress: Progress) -> Progress:
        """Train from where `progress` is, which is moved, to the end. A training that was to end earlier goes on.

        Raises:
            UserError: a sample cannot be read, or the loss is no number any more, which floating point may come to.
        """
        if progress.ending in (Ending.EPOCHS, Ending.STEPS) and progress.step < self.steps:
            progress.ending = None
        while progress.ending is None and progress.step < self.steps:
            self._step(progress)
            at_end = progress.step == self.steps
            epoch_ends = at_end or progress.step % self._order.steps_per_epoch == 0
            if epoch_ends:
                self._end_epoch(progress)
            if progress.ending is None and at_end:
                progress.ending = Ending.EPOCHS if self._options.steps != self.steps else Ending.STEPS
            if progress.ending is not None:
                accuracy = progress.epochs[-1].test_accuracy
                facts = {"reason": str(progress.ending), "step": progress.step, "test_accuracy": accuracy}
                self._journal.end(facts)
            if self._hooks.keep is not None and (epoch_ends or progress.step % self._hooks.keep_every == 0):
                self._hooks.keep(progress)
        return progress

    def _step(self, progress: Progress) -> None:
        options, number = self._options, progress.step
        rate = options.schedule.rate(options.rate, number, self._order.steps_per_epoch, self.steps)
        samples = self._training.take(self._order.step(number))
        if samples.labels is None:
            raise ValueError("training data without labels")
        started = time.perf_counter()
        batch = self._engine.train(samples.inputs, samples.labels, rate)
        speed = batch.images / (time.perf_counter() - started)
        if not isfinite(batch.loss):
            raise user_error(
                "diverged",
                "training has diverged: the loss is no number any more",
                found=f"mini-batch {number + 1}",
                hint="a smaller learning rate may help",
            )
        progress.add(batch, self._counted)
        epoch = number // self._order.steps_per_epoch + 1
        self._journal.step(progress.step, epoch, batch, rate, speed)
        if self._hooks.on_step is not None:
            self._hooks.on_step(StepReport(progress.step, self.steps, epoch, batch, speed))

    def _end_epoch(self, progress: Progress) -> None:
        """Evaluate, and end where the target is reached."""
        accuracy = None
        if self._testing is not None:
            accuracy = evaluate(self._engine, self._testing, self._options.batch)
            target = self._options.target_accuracy
            if target is not None and accuracy >= target:
                progress.ending = Ending.TARGET_ACCURACY
        number = (progress.step - 1) // self._order.steps_per_epoch + 1
        result = progress.end_epoch(number, None if accuracy is None else float(accuracy))
        self._journal.epoch(asdict(result))
        if self._hooks.on_epoch is not None:
            self._hooks.on_epoch(result)


def last_step(options: TrainingOptions, samples: int) -> int:
    """Mini-batches of a training on so many samples, unless it reaches its target earlier."""
    steps = options.epochs * DataOrder(samples, options.batch, options.seed).steps_per_epoch
    return steps if options.steps is None else min(steps, options.steps)


def evaluate(engine: Engine, samples: Samples, batch: int) -> Fraction:
    """The share of samples that the network gives their class. Changes nothing of the engine."""
    correct = 0
    for part in samples.batches(batch):
        scores = engine.scores(part.inputs, part.first)
        correct += count_correct(scores, check_labels(part.labels, scores.shape[1], "test data"))
    return Fraction(correct, len(samples))

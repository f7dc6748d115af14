"""How far a training is: what its epochs gave, and the sums of the one that runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from binpoint.runtime.training.engine import MiniBatch


class Ending(StrEnum):
    """Why training ended."""

    EPOCHS = "epochs"
    STEPS = "steps"
    TARGET_ACCURACY = "target-accuracy"


@dataclass(frozen=True)
class EpochResult:
    """One epoch, the last one perhaps cut short.

    Attributes:
        epoch, step: from 1; `step` is its last mini-batch.
        loss, accuracy: means over its images, each seen by the network of its mini-batch.
        saturation: the share of all counted results that saturated.
        exponent_changes: decisions that moved an exponent.
        test_accuracy: on the test set at its end, None without one.
    """

    epoch: int
    step: int
    loss: float
    accuracy: float
    saturation: float
    exponent_changes: int
    test_accuracy: float | None


@dataclass
class EpochSums:
    """Sums over the mini-batches of an epoch; `loss` is weighted by images."""

    loss: float = 0.0
    correct: int = 0
    images: int = 0
    saturated: int = 0
    results: int = 0
    exponent_changes: int = 0

    def add(self, batch: MiniBatch, counted: Collection[str]) -> None:
        """One more mini-batch; `counted` are the tensors whose saturation counts."""
        self.loss += batch.loss * batch.images
        self.correct += batch.correct
        self.images += batch.images
        for name, events in batch.events.items():
            if name in counted:
                self.saturated += events.saturated
                self.results += events.results
        self.exponent_changes += batch.exponent_changes

    def result(self, epoch: int, step: int, test_accuracy: float | None) -> EpochResult:
        """The epoch as it ended."""
        return EpochResult(
            epoch=epoch,
            step=step,
            loss=self.loss / self.images,
            accuracy=self.correct / self.images,
            saturation=self.saturated / self.results if self.results else 0.0,
            exponent_changes=self.exponent_changes,
            test_accuracy=test_accuracy,
        )


@dataclass
class Progress:
    """How far training is: mini-batches so far, this epoch's sums, the epochs that are over, why it ended if it did."""

    step: int = 0
    sums: EpochSums = field(default_factory=EpochSums)
    epochs: list[EpochResult] = field(default_factory=list)
    ending: Ending | None = None

    def document(self) -> dict[str, Any]:
        """As plain data that JSON holds exactly."""
        return asdict(self)

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Progress:
        """What `document` gave."""
        return cls(
            document["step"],
            EpochSums(**document["sums"]),
            [EpochResult(**each) for each in document["epochs"]],
            None if document["ending"] is None else Ending(document["ending"]),
        )

    def add(self, batch: MiniBatch, counted: Collection[str]) -> None:
        """One more mini-batch."""
        self.step += 1
        self.sums.add(batch, counted)

    def end_epoch(self, number: int, test_accuracy: float | None) -> EpochResult:
        """Close the epoch and begin the next one."""
        result = self.sums.result(number, self.step, test_accuracy)
        self.epochs.append(result)
        self.sums = EpochSums()
        return result

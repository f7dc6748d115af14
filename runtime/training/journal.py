"""The log of a training: one JSON object a line (`--json LOG`).

Every line has an `event`. Lines depend on the training alone: a resumed run writes the lines of an uninterrupted one,
with one exception, `images_per_second`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

from binpoint.backends.kernel import Events
from binpoint.backends.training_program import TensorFormat
from binpoint.runtime.policies import Decision
from binpoint.runtime.training.engine import MiniBatch
from binpoint.runtime.training.trace import Writable
from binpoint.support.numeric import FixedConstant


class LoggedDecisions(StrEnum):
    """Which decisions about exponents have a line of their own."""

    ALL = "all"
    CHANGES = "changes"


class Journal:
    """Writes what happens.

    Args:
        stream: where lines go; None writes nothing.
        formats: the classes of tensors.
        counted: the tensors whose saturation counts in the rate of all.
        decisions: which of them are written.
    """

    def __init__(
        self,
        stream: Writable | None,
        formats: Mapping[str, TensorFormat],
        counted: Collection[str],
        decisions: LoggedDecisions = LoggedDecisions.ALL,
    ) -> None:
        self._stream, self._formats, self._counted, self._decisions = stream, formats, counted, decisions

    def start(self, facts: Mapping[str, Any], exponents: Mapping[str, int]) -> None:
        """What is trained and how, and the first exponents."""
        self._write("start", facts)
        self._write("first-exponents", {"exponents": dict(exponents)})

    def step(self, step: int, epoch: int, batch: MiniBatch, rate: FixedConstant, images_per_second: float) -> None:
        """One mini-batch: its decisions, then its line. `step` and `epoch` count from 1."""
        if self._stream is None:
            return
        for tensor, decision in batch.decisions.items():
            if self._decisions is LoggedDecisions.ALL or decision.new != decision.old:
                self._write("decision", {"step": step, **self._decision(tensor, decision)})
        self._write(
            "step",
            {
                "step": step,
                "epoch": epoch,
                "learning_rate": str(rate),
                "loss": batch.loss,
                "accuracy": batch.correct / batch.images,
                "images": batch.images,
                "saturation": _saturation(batch.events[name] for name in self._counted if name in batch.events),
                "saturated": {name: each.saturated for name, each in batch.events.items() if each.saturated},
                "accumulator_overflows": sum(each.accumulator_overflows for each in batch.events.values()),
                "exponent_changes": batch.exponent_changes,
                "clamped": sum(each.clamped for each in batch.decisions.values()),
                "images_per_second": round(images_per_second, 1),
            },
        )

    def epoch(self, facts: Mapping[str, Any]) -> None:
        """The end of an epoch, with its evaluation."""
        self._write("epoch", facts)

    def end(self, facts: Mapping[str, Any]) -> None:
        """Why training ended."""
        self._write("end", facts)

    def _decision(self, tensor: str, decision: Decision) -> dict[str, Any]:
        return {"tensor": tensor, "class": str(self._formats[tensor].tensor_class), **decision.facts()}

    def _write(self, event: str, facts: Mapping[str, Any]) -> None:
        if self._stream is not None:
            self._stream.write(json.dumps({"event": event, **facts}, ensure_ascii=False) + "\n")


def _saturation(events: Iterable[Events]) -> float:
    """The share of all results that saturated."""
    saturated = results = 0
    for each in events:
        saturated += each.saturated
        results += each.results
    return saturated / results if results else 0.0

"""What the loop trains: the fixed-point machine, or the same network in floating point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import Events
from binpoint.runtime.data import Labels
from binpoint.runtime.policies import Decision
from binpoint.runtime.training.host_tensors import FloatArray
from binpoint.support.numeric import FixedConstant


@dataclass(frozen=True)
class MiniBatch:
    """What one mini-batch of training left.

    Attributes:
        loss: the mean over the mini-batch, in nats.
        correct: images whose highest score was at their label.
        images: how many there were.
        events: by tensor, over all results, sampled or not.
        decisions: by tensor, of the mini-batch's end.
    """

    loss: float
    correct: int
    images: int
    events: Mapping[str, Events] = field(default_factory=dict)
    decisions: Mapping[str, Decision] = field(default_factory=dict)

    @property
    def exponent_changes(self) -> int:
        """How many decisions move an exponent."""
        return sum(decision.new != decision.old for decision in self.decisions.values())


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything that an engine goes on from: arrays by name, and plain data that JSON holds exactly."""

    arrays: Mapping[str, NDArray[Any]]
    document: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """What training leaves for inference.

    Attributes:
        parameters: values of the working copies by name, in the shapes of the training program.
        masters: values of the masters, alike; where training is in floating point, the same numbers.
        running: running mean and variance of batch normalisations, (C,) each.
        exponents: of every tensor, as the next mini-batch would store it, and of the working copies as they are
            stored; empty where training is in floating point.
    """

    parameters: Mapping[str, NDArray[np.float64]]
    masters: Mapping[str, NDArray[np.float64]]
    running: Mapping[str, NDArray[np.float64]]
    exponents: Mapping[str, int]


class Engine(Protocol):
    """Trains one network, mini-batch by mini-batch."""

    @property
    def step(self) -> int:
        """Mini-batches so far."""

    @property
    def exponents(self) -> Mapping[str, int]:
        """The exponents at which the next mini-batch stores its results, by tensor; empty in floating point."""

    def train(self, inputs: Mapping[str, FloatArray], labels: Labels, rate: FixedConstant) -> MiniBatch:
        """One mini-batch and its update: inputs (N, C, H, W) by name, labels (N,)."""

    def scores(self, inputs: Mapping[str, FloatArray], first: int = 0) -> NDArray[np.float64]:
        """The logits (N, K) of images in evaluation, the first of which has that number. Changes nothing."""

    def snapshot(self) -> Snapshot:
        """Everything that an engine needs to go on from here."""

    def trained(self) -> TrainedNetwork:
        """The network as it now is."""

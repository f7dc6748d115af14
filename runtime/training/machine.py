"""What fixed-point training runs on, and how: everything that is chosen before the first mini-batch."""

from __future__ import annotations

from dataclasses import dataclass, field

from binpoint.backends.training_backend import TrainingBackend
from binpoint.runtime.training.accelerator import Acquisition
from binpoint.runtime.training.trace import Trace
from binpoint.support.target import Target


@dataclass(frozen=True)
class Machine:
    """Host and accelerator as they are set up.

    Attributes:
        backend: generates the programs of the PEs.
        target: the array, its allocation, and who allocates.
        batch: the most images of a mini-batch.
        seed: keys stochastic rounding.
        acquisition: where statistics PEs keep what they acquire; the numbers are the same.
        whole_updates: whether all PEs acquire what they update, by instructions in their programs, instead of the
            statistics PEs alone.
        trace: records the messages.
    """

    backend: TrainingBackend
    target: Target
    batch: int
    seed: int = 0
    acquisition: Acquisition = Acquisition.CIRCUITS
    whole_updates: bool = False
    trace: Trace = field(default_factory=Trace)

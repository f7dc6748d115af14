"""The order in which training sees its samples: shuffled anew each epoch, a function of seed and epoch alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.generator import draw_key, draws
from binpoint.backends.kernel import Draw

SHUFFLE_TENSOR = -1
"""The tensor number of the draws that shuffle; tensors of a program count from 0."""


class DataOrder:
    """Which samples each mini-batch holds. The last one of an epoch may be smaller.

    Args:
        samples: how many there are.
        batch: samples of a mini-batch.
        seed: keys the shuffles.
    """

    def __init__(self, samples: int, batch: int, seed: int) -> None:
        self.samples, self.batch, self.seed = samples, batch, seed
        self._epoch, self._order = -1, np.arange(0)

    @property
    def steps_per_epoch(self) -> int:
        """Mini-batches of one epoch."""
        return -(-self.samples // self.batch)

    def epoch(self, number: int) -> NDArray[np.int64]:
        """The samples of an epoch, from 0, in their order.

        Each sample has a 64-bit number of the counter-based generator, and they are sorted by it.
        """
        if number != self._epoch:
            numbers = draws(draw_key(Draw(self.seed, SHUFFLE_TENSOR, number)), np.arange(self.samples))
            self._epoch, self._order = number, np.argsort(numbers, kind="stable")
        return self._order

    def step(self, number: int) -> NDArray[np.int64]:
        """The samples of a mini-batch, counted from 0 through all epochs."""
        epoch, position = divmod(number, self.steps_per_epoch)
        return self.epoch(epoch)[position * self.batch : (position + 1) * self.batch]

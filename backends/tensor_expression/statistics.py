"""Statistics of the values that a call left: histograms of bit positions over sampled (image, channel) pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from binpoint.backends.kernel import BoolArray, IntArray, StatisticsRecord
from binpoint.backends.memory import aligned_copy, aligned_zeros
from binpoint.backends.tensor_expression.buffers import argument
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.plan import Container, Form

BINS = {Container.INT32: 33, Container.INT64: 65, Container.WIDE: 97}
"""Bins by the container of the values: 0 counts values without a position, p + 1 counts position p."""


LAYER_TASKS = 16
"""Histograms of a layer: the most threads that share the work."""


class StatisticsCircuit:
    """Counts the bit positions of values in one container, for layers or for the tiles of a PE."""

    def __init__(self, container: Container, form: Form, compiler: Compiler) -> None:
        self._function = compiler.statistics(container, form)
        tasks = LAYER_TASKS if form is Form.LAYER else 1
        self._histograms = aligned_zeros((tasks, 2, BINS[container]), "int64")
        self._argument = argument(self._histograms)

    def acquire(self, values: Sequence[Any], pairs: Any, exponent: int) -> StatisticsRecord:
        """The record of the values [N, C blocks, H, W, block] of some pairs, at 2^exponent.

        `values` and `pairs` are arguments of kernels.
        """
        self._function(*values, pairs, self._argument)
        counts = self._histograms[0] if len(self._histograms) == 1 else self._histograms.sum(axis=0)
        msb, lsb = counts.tolist()
        positions = range(exponent, exponent + len(msb) - 1)
        return StatisticsRecord(
            {position: count for position, count in zip(positions, msb[1:], strict=True) if count},
            {position: count for position, count in zip(positions, lsb[1:], strict=True) if count},
            msb[0],
            sum(msb),
        )


def pair_list(sample: BoolArray) -> IntArray:
    """(P, 2) the pairs (image, channel) where `sample` is True, ready to be an argument."""
    return aligned_copy(np.argwhere(sample).astype(np.int32))

"""Statistics of the values that a call left: histograms of bit positions over sampled (image, channel) pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from binpoint.backends.kernel import EMPTY_RECORD, BoolArray, IntArray, StatisticsRecord
from binpoint.backends.memory import aligned_copy, aligned_empty, aligned_zeros
from binpoint.backends.tensor_expression.buffers import argument
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.layout import GROUP, Layout
from binpoint.backends.tensor_expression.plan import Container, Form

BINS = {Container.INT32: 33, Container.INT64: 65, Container.WIDE: 97}
"""Bins by the container of the values: 0 counts values without a position, p + 1 counts position p."""


BANKS = 4
"""Histograms of a task, one for each column modulo BANKS: neighbours are often alike, and a counter that was just
written is slow to read."""

LAYER_TASKS = 16
"""Histograms of a layer: the most threads that share the work."""


class StatisticsCircuit:
    """Counts the bit positions of values in one container, for layers or for the tiles of a PE."""

    def __init__(self, container: Container, form: Form, compiler: Compiler) -> None:
        self._function = compiler.statistics(container, form)
        tasks = LAYER_TASKS if form is Form.LAYER else 1
        self._histograms = aligned_zeros((tasks, BANKS, 2, BINS[container]), "int64")
        self._argument = argument(self._histograms)

    def acquire(self, values: Sequence[Any], pairs: Any, exponent: int) -> StatisticsRecord:
        """The record of the values [N, C blocks, H, W, block] of some pairs, at 2^exponent.

        `values` and `pairs` are arguments of kernels.
        """
        self._function(*values, pairs, self._argument)
        msb, lsb = self._histograms.sum(axis=(0, 1)).tolist()
        return StatisticsRecord(_positions(msb, exponent), _positions(lsb, exponent), msb[0], sum(msb))


class StatisticsCircuits:
    """The circuits of all containers, made when they are first needed."""

    def __init__(self, form: Form, compiler: Compiler) -> None:
        self._form = form
        self._compiler = compiler
        self._circuits: dict[Container, StatisticsCircuit] = {}

    def acquire(self, container: Container, values: Sequence[Any], pairs: IntArray, exponent: int) -> StatisticsRecord:
        """See `StatisticsCircuit.acquire`; `pairs` is an array, perhaps empty."""
        if not len(pairs):
            return EMPTY_RECORD
        return self.circuit(container).acquire(values, argument(pairs), exponent)

    def circuit(self, container: Container) -> StatisticsCircuit:
        """The circuit for values in a container."""
        circuit = self._circuits.get(container)
        if circuit is None:
            circuit = self._circuits[container] = StatisticsCircuit(container, self._form, self._compiler)
        return circuit


@dataclass(frozen=True)
class Selection:
    """The sampled pairs (image, channel) of a call, (P, 2).

    Where no group of 8 channels has two sampled ones in any image, `picks` [N, C blocks, groups of a block] says which
    it is, and a kernel may leave the values of these channels alone (`KernelPlan.picked`).
    """

    pairs: IntArray
    picks: IntArray | None

    @property
    def groups(self) -> IntArray:
        """The sampled pairs (image, group of channels)."""
        return _pairs(self.pairs[:, 0], self.pairs[:, 1] // GROUP)

    def of(self, images: slice) -> Selection:
        """The selection of some images, which are then counted from 0."""
        first, last = np.searchsorted(self.pairs[:, 0], (images.start, images.stop))
        pairs = aligned_copy(self.pairs[first:last])
        pairs[:, 0] -= images.start
        return Selection(pairs, None if self.picks is None else aligned_copy(self.picks[images]))


def select(sample: BoolArray, layout: Layout) -> Selection:
    """The selection of a mask (N, C) for a feature map in a layout."""
    images, channels = _sampled(sample)
    pairs = _pairs(images, channels)
    if layout.block % GROUP:
        return Selection(pairs, None)
    blocks, groups = layout.blocks(sample.shape[1]), layout.block // GROUP
    # Pairs come in order, so that two of one group are neighbours.
    numbers = images * (blocks * groups) + channels // GROUP
    if (numbers[1:] == numbers[:-1]).any():
        return Selection(pairs, None)
    picks = aligned_zeros((len(sample), blocks, groups), "int32")
    picks.reshape(-1)[numbers] = channels % GROUP
    return Selection(pairs, picks)


def pair_list(sample: BoolArray) -> IntArray:
    """(P, 2) the pairs (image, channel) where `sample` is True, ready to be an argument."""
    return _pairs(*_sampled(sample))


def _sampled(sample: BoolArray) -> tuple[IntArray, IntArray]:
    """np.nonzero of a matrix, several times faster: rows and columns, in order."""
    positions = np.flatnonzero(sample)
    rows = positions // sample.shape[1]
    return rows, positions - rows * sample.shape[1]


def _pairs(images: IntArray, channels: IntArray) -> IntArray:
    pairs = aligned_empty((len(images), 2), "int32")
    pairs[:, 0], pairs[:, 1] = images, channels
    return pairs


def _positions(counts: Sequence[int], exponent: int) -> dict[int, int]:
    return {exponent + position: count for position, count in enumerate(counts[1:]) if count}

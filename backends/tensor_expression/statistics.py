"""Statistics of the values that a call left: histograms of bit positions over sampled (image, channel) pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from binpoint.backends.kernel import EMPTY_RECORD, BoolArray, IntArray, StatisticsRecord
from binpoint.backends.memory import aligned_copy, aligned_empty, aligned_zeros
from binpoint.backends.tensor_expression.buffers import argument
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.layout import GROUP, Layout
from binpoint.backends.tensor_expression.plan import Container, Form

Found = TypeVar("Found")

BINS = {Container.INT32: 33, Container.INT64: 65, Container.WIDE: 97}
"""Bins by the container of the values: 0 counts values without a position, p + 1 counts position p."""


BANKS = 4
"""Histograms of a task, one for each column modulo BANKS: neighbours are often alike, and a counter that was just
written is slow to read."""

LAYER_TASKS = 16
"""Histograms of a layer: the most threads that share the work."""

TASK_VALUES = 1 << 13
"""Values that are worth a task, and a histogram to clear and to add up, of their own."""

REMEMBERED_MASKS = 16
"""How many masks a kernel knows the selections of: those of a cycle of mini-batches, one circuit in 16 PEs."""


class StatisticsCircuit:
    """Counts the bit positions of values in one container, for layers or for the tiles of a PE."""

    def __init__(self, container: Container, form: Form, compiler: Compiler) -> None:
        self._function = compiler.statistics(container, form)
        self._most_tasks = LAYER_TASKS if form is Form.LAYER else 1
        self._histograms = [
            aligned_zeros((tasks, BANKS, 2, BINS[container]), "int64") for tasks in range(1, self._most_tasks + 1)
        ]
        self._arguments = [argument(histograms) for histograms in self._histograms]

    def acquire(self, values: Sequence[Any], pairs: Any, exponent: int) -> StatisticsRecord:
        """The record of the values [N, C blocks, H, W, block] of some pairs, at 2^exponent.

        `values` and `pairs` are arguments of kernels.
        """
        _, _, height, width, _ = values[0].shape
        tasks = min(self._most_tasks, 1 + pairs.shape[0] * height * width // TASK_VALUES)
        self._function(*values, pairs, self._arguments[tasks - 1])
        histograms = self._histograms[tasks - 1]
        msb, lsb = np.add.reduce(histograms.reshape(tasks * BANKS, *histograms.shape[2:])).tolist()
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

    @cached_property
    def groups(self) -> IntArray:
        """The sampled pairs (image, group of channels)."""
        return _pairs(self.pairs[:, 0], self.pairs[:, 1] // GROUP)

    def of(self, images: slice) -> Selection:
        """The selection of some images, which are then counted from 0."""
        first, last = np.searchsorted(self.pairs[:, 0], (images.start, images.stop))
        pairs = aligned_copy(self.pairs[first:last])
        pairs[:, 0] -= images.start
        return Selection(pairs, None if self.picks is None else aligned_copy(self.picks[images]))


class Remembered(Generic[Found]):
    """What was found out about masks that come again: those that nobody can write to."""

    def __init__(self, find: Callable[[BoolArray], Found]) -> None:
        self._find = find
        self._known: dict[int, tuple[BoolArray, Found]] = {}

    def __call__(self, sample: BoolArray) -> Found:
        """What `find` finds."""
        if sample.flags.writeable:
            return self._find(sample)
        # A mask that is kept is the only one of its identity.
        known = self._known.get(id(sample))
        if known is None:
            if len(self._known) >= REMEMBERED_MASKS:
                del self._known[next(iter(self._known))]
            known = self._known[id(sample)] = sample, self._find(sample)
        return known[1]


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

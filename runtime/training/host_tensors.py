"""Tensors that the host computes: written to the accelerator as mantissas, observed on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import Events, StatisticsRecord
from binpoint.runtime.conversion import quantize
from binpoint.runtime.exponents import check_finite, exponent_of_top, record_of_floats, records_of_floats
from binpoint.runtime.training.areas import Area
from binpoint.runtime.training.exponent_table import ExponentTable
from binpoint.runtime.training.link import Link
from binpoint.runtime.training.messages import Stage, Write

FloatArray = NDArray[np.floating[Any]]


class HostTensors:
    """Quantises half-even, writes, and takes the statistics of all values: the host has no statistics PEs.

    Args:
        link: to the accelerator.
        areas: where tensors lie.
        exponents: of all tensors; statistics of those that follow none are not taken.
    """

    def __init__(self, link: Link, areas: Mapping[str, Area], exponents: ExponentTable) -> None:
        self._link, self._areas, self._exponents = link, areas, exponents
        self._observed: dict[str, FloatArray] = {}
        self._events: dict[str, Events] = {}

    def write(
        self,
        name: str,
        values: FloatArray,
        exponent: int,
        bits: int,
        stage: Stage,
        *,
        observe: bool = False,
    ) -> Events:
        """Write numbers at an exponent. With `observe`, once a mini-batch, statistics and events wait for `take_...`.

        Raises:
            UserError: a value to observe is infinite or not a number.
        """
        mantissas, events = quantize(values, exponent, bits)
        self._link.tell(Write(self._areas[name].address, mantissas, exponent), stage, name)
        if observe:
            check_finite(values, f'"{name}"')
            if self._exponents.follows(name):
                self._observed[name] = values
            self._events[name] = self._events.get(name, Events(0)).merge(events)
        return events

    def take_records(self) -> dict[str, StatisticsRecord]:
        """What was observed since the last time."""
        observed, self._observed = self._observed, {}
        return records_of_floats(observed)

    def take_events(self) -> dict[str, Events]:
        """What was counted since the last time."""
        events, self._events = self._events, {}
        return events


def fitting_exponent(values: FloatArray, bits: int) -> int:
    """The smallest exponent at which every value fits; that of values below 2 where all are 0."""
    return exponent_of_top(max(record_of_floats(values).msb, default=0), bits)

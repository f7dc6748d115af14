"""Tensors that the host computes: written to the accelerator as mantissas, observed on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import EMPTY_RECORD, Events, StatisticsRecord
from binpoint.runtime.conversion import quantize
from binpoint.runtime.exponents import exponent_of_top, record_of_floats
from binpoint.runtime.training.areas import Area
from binpoint.runtime.training.link import Link
from binpoint.runtime.training.messages import Stage, Write

FloatArray = NDArray[np.floating[Any]]


class HostTensors:
    """Quantises half-even, writes, and takes the statistics of all values: the host has no statistics PEs.

    Args:
        link: to the accelerator.
        areas: where tensors lie.
    """

    def __init__(self, link: Link, areas: Mapping[str, Area]) -> None:
        self._link, self._areas = link, areas
        self._records: dict[str, StatisticsRecord] = {}
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
        """Write numbers at an exponent. With `observe` their statistics and events wait for `take`."""
        mantissas, events = quantize(values, exponent, bits)
        self._link.tell(Write(self._areas[name].address, mantissas, exponent), stage, name)
        if observe:
            record = record_of_floats(values, f'"{name}"')
            self._records[name] = self._records.get(name, EMPTY_RECORD).merge(record)
            self._events[name] = self._events.get(name, Events(0)).merge(events)
        return events

    def take_records(self) -> dict[str, StatisticsRecord]:
        """What was observed since the last time."""
        records, self._records = self._records, {}
        return records

    def take_events(self) -> dict[str, Events]:
        """What was counted since the last time."""
        events, self._events = self._events, {}
        return events


def fitting_exponent(values: FloatArray, bits: int) -> int:
    """The smallest exponent at which every value fits; that of values below 2 where all are 0."""
    return exponent_of_top(max(record_of_floats(values).msb, default=0), bits)

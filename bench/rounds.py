"""Calls measured side by side: one after the other in each round, so that a slow moment of the machine hits all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

Call = Callable[[], object]

REST_SECONDS = 0.02
"""On several threads a call waits so long first: thread pools of others spin on for a while after their last call."""


def clock_of(threads: int) -> Callable[[], float]:
    """What measures calls on so many threads: processor time on one, which other work disturbs least."""
    return time.process_time if threads == 1 else time.perf_counter


def measure(calls: Mapping[str, Call], rounds: int, threads: int) -> dict[str, list[float]]:
    """The seconds of each call in each round."""
    clock = clock_of(threads)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            if threads > 1:
                time.sleep(REST_SECONDS)
            begin = clock()
            call()
            seconds[name].append(clock() - begin)
    return seconds


def ratio(seconds: Mapping[str, list[float]], name: str, base: str) -> float:
    """The median over the rounds of how much longer a call takes than another of the same round."""
    return median(one / other for one, other in zip(seconds[name], seconds[base], strict=True))


def one_after_the_other(calls: Mapping[str, Call]) -> Call:
    """All calls as one."""

    def run() -> None:
        for call in calls.values():
            call()

    return run

"""Controllers decide the exponents of a session's inputs and results, batch by batch.

A session asks its controller for exponents before each batch and tells it afterwards what the batch left, so a
decision always applies from the next batch on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from binpoint.backends.kernel import Events, StatisticsRecord
from binpoint.backends.program import Program
from binpoint.runtime.calibration import FloatArray, MovableTensor, movable_tensors, trial_exponent, trial_records
from binpoint.runtime.exponents import clamp
from binpoint.runtime.policies import ExponentHistory
from binpoint.support.diagnostics import Collector, Diagnostic
from binpoint.support.numeric import STATISTICS_OF_RULE
from binpoint.support.target import Target


@dataclass(frozen=True)
class Observation:
    """What one batch left of one tensor: counts over all results, and the sampled record where there is one."""

    events: Events
    record: StatisticsRecord | None = None


class Controller(Protocol):
    """Decides exponents."""

    name: str
    """As the command line calls it."""

    observes: bool
    """Whether `observe` wants records, also of the inputs."""

    clamps: Counter[str]
    """How often the exponent of a tensor had to be moved into its declared range."""

    def exponents(self, inputs: Mapping[str, FloatArray]) -> Mapping[str, int]:
        """The exponent of every input and every quantised result for the batch that is about to run.

        `inputs` are its numbers, (N, C, H, W) by input name.
        """

    def observe(self, observations: Mapping[str, Observation]) -> None:
        """Learn what the batch left. Not called in evaluation, which never changes exponents."""


class FixedController:
    """Exponents that never move.

    Each is the artifact's, else the one that the network names, else that of a float trial of the first batch. The
    compiler writes what the network names into the artifact; training writes what it ended with.

    Args:
        program: the network.
        floats: its float parameters, for the trial.
        known: exponents of the artifact by tensor name.
    """

    name = "fixed"
    observes = False

    def __init__(self, program: Program, floats: Mapping[str, FloatArray], known: Mapping[str, int]) -> None:
        self.clamps: Counter[str] = Counter()
        self._program, self._floats = program, floats
        self._tensors = {tensor.name: tensor for tensor in movable_tensors(program)}
        self._exponents: dict[str, int] = {}
        for name, tensor in self._tensors.items():
            start = known.get(name, tensor.policy.initial)
            if start is not None:
                self._set(tensor, start)

    def exponents(self, inputs: Mapping[str, FloatArray]) -> Mapping[str, int]:
        """The exponents of every batch; the first one calibrates those that nobody gave."""
        missing = [tensor for name, tensor in self._tensors.items() if name not in self._exponents]
        if missing:
            records = trial_records(self._program, self._floats, inputs)
            for tensor in missing:
                self._set(tensor, trial_exponent(tensor, records[tensor.name]))
        return dict(self._exponents)

    def observe(self, observations: Mapping[str, Observation]) -> None:
        """Nothing that a batch leaves moves an exponent."""

    def _set(self, tensor: MovableTensor, exponent: int) -> None:
        self._exponents[tensor.name], moved = clamp(exponent, tensor.policy.exponent_range)
        self.clamps[tensor.name] += moved


class StatisticsController(FixedController):
    """Exponents that follow statistics, one batch late (JP7367595B2 fig. 2).

    The first batch runs with the exponents of a FixedController. From then on an `ExponentHistory` for each tensor
    takes what every batch leaves.

    Args:
        program, floats, known: as for FixedController.
        target: its statistics PEs must acquire what the rules need.

    Raises:
        UserError: the target has no statistics PEs, or they do not acquire what a rule needs.
    """

    name = "statistics"
    observes = True

    def __init__(
        self, program: Program, floats: Mapping[str, FloatArray], known: Mapping[str, int], target: Target
    ) -> None:
        super().__init__(program, floats, known)
        _check_acquisition(self._tensors, target)
        self._histories: dict[str, ExponentHistory] = {}

    def observe(self, observations: Mapping[str, Observation]) -> None:
        """Hand every tensor's record to its history, and take over what that decides."""
        for name, tensor in self._tensors.items():
            if name not in self._histories:
                self._histories[name] = ExponentHistory(tensor.policy, tensor.bits, self._exponents[name])
            decision = self._histories[name].observe(observations[name].record)
            if decision is not None:
                self._exponents[name] = decision.new
                self.clamps[name] += decision.clamped


def _check_acquisition(tensors: Mapping[str, MovableTensor], target: Target) -> None:
    collector = Collector()
    if not target.statistics_pes:
        message = f'the target "{target.name}" has no statistics PEs, so exponents cannot follow statistics'
        collector.add(Diagnostic("no-statistics", message, hint="use --exponents fixed, or another target"))
    collector.raise_any()
    for rule in sorted({tensor.policy.update.rule for tensor in tensors.values()}):
        missing = [what for what in STATISTICS_OF_RULE[rule] if what not in target.acquires]
        if missing:
            message = f'the rule "{rule}" needs statistics that the target "{target.name}" does not acquire'
            acquired = ", ".join(target.acquires)
            collector.add(Diagnostic("no-statistics", message, None, acquired, ", ".join(STATISTICS_OF_RULE[rule])))
    collector.raise_any()

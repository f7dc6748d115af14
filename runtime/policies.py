"""The exponent of one tensor from mini-batch to mini-batch: records come in, decisions come out (docs/policies.md)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from binpoint.backends.kernel import EMPTY_RECORD, StatisticsRecord
from binpoint.runtime.exponents import clamp, decide, samples_above, tolerance
from binpoint.support.numeric import STATISTICS_OF_RULE, ExponentRule, TensorPolicy


class Verdict(StrEnum):
    """What a decision did."""

    KEPT = "kept"
    GREW = "grew"
    SHRANK = "shrank"
    WAITS = "waits"
    """The rule asks for a smaller exponent, but has not asked for long enough."""
    UNKNOWN = "unknown"
    """No sample has a top bit, so nothing is known."""


@dataclass(frozen=True)
class Decision:
    """One decision and what it rests on.

    Attributes:
        rule: the policy, as a network file writes it.
        old, new: the exponent before, and that of the next mini-batch.
        wanted: what the rule asks for, before patience and the declared range.
        verdict: what was done.
        samples: how many samples were merged.
        overflowing: those of them that lie above the range of the old exponent.
        tolerated: how many of them might.
        small_sample: whether the sample is too small to tolerate anything.
        quiet: how many decisions in a row have asked for a smaller exponent, this one included.
        clamped: whether the new exponent had to be moved into its declared range.
    """

    rule: str
    old: int
    new: int
    wanted: int
    verdict: Verdict
    samples: int
    overflowing: int
    tolerated: int
    small_sample: bool
    quiet: int
    clamped: bool

    @property
    def rate(self) -> float | None:
        """The share of the samples above the range of the old exponent, None without samples."""
        return self.overflowing / self.samples if self.samples else None

    def facts(self) -> dict[str, Any]:
        """Everything as plain data, for logs."""
        return {**vars(self), "verdict": str(self.verdict), "rate": self.rate}


class RecordWindow:
    """The records of the last mini-batches and their sum. Records have absolute positions, so exponents may move."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._records: deque[StatisticsRecord] = deque()
        self._msb, self._lsb = Counter[int](), Counter[int]()
        self._none = self._samples = 0

    @property
    def records(self) -> tuple[StatisticsRecord, ...]:
        """The records, oldest first."""
        return tuple(self._records)

    def add(self, record: StatisticsRecord) -> None:
        """Take the record of one mini-batch; the oldest leaves a full window."""
        self._records.append(record)
        self._count(record, 1)
        if len(self._records) > self._size:
            self._count(self._records.popleft(), -1)

    def merged(self) -> StatisticsRecord:
        """All records as one."""
        return StatisticsRecord(+self._msb, +self._lsb, self._none, self._samples)

    def _count(self, record: StatisticsRecord, sign: int) -> None:
        for counter, counts in ((self._msb, record.msb), (self._lsb, record.lsb)):
            for position, count in counts.items():
                counter[position] += sign * count
        self._none += sign * record.none
        self._samples += sign * record.samples


class ExponentHistory:
    """Follows one tensor: its current exponent and all that the next decision depends on.

    Args:
        policy: the rule, its options and the declared range of exponents.
        bits: the tensor's width.
        exponent: that of the first mini-batch.
    """

    def __init__(self, policy: TensorPolicy, bits: int, exponent: int) -> None:
        self.policy, self.bits, self.exponent = policy, bits, exponent
        self._rule = str(policy.update)
        self._reads_lsb = "lsb" in STATISTICS_OF_RULE[policy.update.rule]
        self._window = RecordWindow(policy.update.merged_records)
        self._age = 0
        """Mini-batches since the last decision."""
        self._quiet, self._largest_wanted = 0, exponent
        """How many decisions in a row have asked for less than the exponent, and the most that one asked for."""

    def observe(self, record: StatisticsRecord | None) -> Decision | None:
        """Take what one mini-batch left, None where nothing was sampled.

        Returns:
            The decision, once a period; `exponent` is that of the next mini-batch. The rule `fixed` decides nothing.
        """
        update = self.policy.update
        if update.rule is ExponentRule.FIXED:
            return None
        self._window.add(self._read(record))
        self._age += 1
        if self._age < update.period:
            return None
        self._age = 0
        return self._decide(self._window.merged())

    def state(self) -> dict[str, Any]:
        """Everything that later decisions depend on, as plain data that JSON holds exactly."""
        return {
            "exponent": self.exponent,
            "age": self._age,
            "quiet": self._quiet,
            "largest_wanted": self._largest_wanted,
            "records": [_record_state(record) for record in self._window.records],
        }

    @classmethod
    def restore(cls, policy: TensorPolicy, bits: int, state: Mapping[str, Any]) -> ExponentHistory:
        """The history that left a state under the same policy; it goes on as if it had never stopped."""
        history = cls(policy, bits, state["exponent"])
        history._age, history._quiet = state["age"], state["quiet"]
        history._largest_wanted = state["largest_wanted"]
        for record in state["records"]:
            history._window.add(_record_of(record))
        return history

    def _read(self, record: StatisticsRecord | None) -> StatisticsRecord:
        """What the rule reads of a record; the rest need not be kept."""
        if record is None:
            return EMPTY_RECORD
        return record if self._reads_lsb else replace(record, lsb={})

    def _decide(self, record: StatisticsRecord) -> Decision:
        update, old = self.policy.update, self.exponent
        wanted = decide(update, record, self.bits, old)
        verdict = self._weigh(wanted) if record.msb else Verdict.UNKNOWN
        chosen = {Verdict.GREW: wanted, Verdict.SHRANK: self._largest_wanted}.get(verdict, old)
        self.exponent, clamped = clamp(chosen, self.policy.exponent_range)
        tolerated, quiet = tolerance(update, record.samples), self._quiet
        if verdict is Verdict.SHRANK:
            self._quiet = 0
        if clamped and self.exponent == old:
            verdict = Verdict.KEPT
        return Decision(
            rule=self._rule,
            old=old,
            new=self.exponent,
            wanted=wanted,
            verdict=verdict,
            samples=record.samples,
            overflowing=samples_above(record, old + self.bits - 2),
            tolerated=tolerated.overflows,
            small_sample=tolerated.small_sample,
            quiet=quiet,
            clamped=clamped,
        )

    def _weigh(self, wanted: int) -> Verdict:
        """Growth holds at once; less has to be asked for `patience` times in a row, and the most asked for is taken."""
        if wanted >= self.exponent:
            self._quiet = 0
            return Verdict.GREW if wanted > self.exponent else Verdict.KEPT
        self._largest_wanted = max(wanted, self._largest_wanted) if self._quiet else wanted
        self._quiet += 1
        return Verdict.SHRANK if self._quiet >= self.policy.update.patience else Verdict.WAITS


def _record_state(record: StatisticsRecord) -> list[Any]:
    return [sorted(record.msb.items()), sorted(record.lsb.items()), record.none, record.samples]


def _record_of(state: list[Any]) -> StatisticsRecord:
    msb, lsb, none, samples = state
    return StatisticsRecord(dict(msb), dict(lsb), none, samples)

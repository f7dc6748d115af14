"""The exponents of all tensors of a training program, each followed by its own policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from binpoint.backends.kernel import StatisticsRecord
from binpoint.backends.training_program import TensorFormat
from binpoint.runtime.policies import Decision, ExponentHistory
from binpoint.support.numeric import ExponentRule


class ExponentTable:
    """Decides, one mini-batch late, the exponents at which results are stored.

    Args:
        formats: the class, width and policy of every tensor with an exponent of its own.
        histories: one a tensor.
    """

    def __init__(self, formats: Mapping[str, TensorFormat], histories: Mapping[str, ExponentHistory]) -> None:
        self.formats, self._histories = formats, dict(histories)

    @classmethod
    def start(cls, formats: Mapping[str, TensorFormat], exponents: Mapping[str, int]) -> ExponentTable:
        """The table before the first mini-batch."""
        return cls(
            formats, {name: ExponentHistory(each.policy, each.bits, exponents[name]) for name, each in formats.items()}
        )

    @classmethod
    def restore(cls, formats: Mapping[str, TensorFormat], state: Mapping[str, Any]) -> ExponentTable:
        """The table that left a state under the same formats."""
        histories = {
            name: ExponentHistory.restore(each.policy, each.bits, state[name]) for name, each in formats.items()
        }
        return cls(formats, histories)

    def state(self) -> dict[str, Any]:
        """All that later decisions depend on, as plain data."""
        return {name: history.state() for name, history in self._histories.items()}

    def __getitem__(self, name: str) -> int:
        """The exponent at which the next result of a tensor is stored."""
        return self._histories[name].exponent

    def __iter__(self) -> Iterator[str]:
        return iter(self._histories)

    def follows(self, name: str) -> bool:
        """Whether the exponent of a tensor depends on statistics."""
        return name in self.formats and self.formats[name].policy.update.rule is not ExponentRule.FIXED

    def follow(self, records: Mapping[str, StatisticsRecord]) -> dict[str, Decision]:
        """End a mini-batch: take its records, decide where a period is over. Gives the decisions by tensor."""
        decisions = {name: history.observe(records.get(name)) for name, history in self._histories.items()}
        return {name: decision for name, decision in decisions.items() if decision is not None}

"""Decisions of a training beside those that statistics in every PE would have led to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

from binpoint.backends.kernel import StatisticsRecord
from binpoint.backends.training_program import TrainingProgram
from binpoint.runtime.exponents import decide
from binpoint.runtime.policies import Decision, ExponentHistory
from binpoint.runtime.training.engine import MiniBatch
from binpoint.support.numeric import TensorClass
from examples.experiments.allocations import FULL
from examples.experiments.shadow import Records

ALL, PROPAGATION = "all", "propagation"
"""All groups together, and those whose pairs are (image, channel), which the patent speaks of."""

GROUPS = {
    TensorClass.ACTIVATIONS: "activations",
    TensorClass.GRADIENTS: "gradients",
    TensorClass.WEIGHT_GRADIENTS: "weight_gradients",
    TensorClass.WEIGHTS: "parameters",
    TensorClass.BIASES: "parameters",
    TensorClass.MASTER_WEIGHTS: "parameters",
}
"""What classes of tensors are counted together."""


@dataclass(frozen=True)
class Counts:
    """Sums over mini-batches and tensors.

    Attributes:
        decisions: about exponents.
        agreeing: those that statistics in every PE would have made alike under the same policy.
        changes: those that moved the exponent.
        spare: bits by which the exponents of results were larger than the tensors needed, see `spare_bits`.
        results, saturated: of the same tensors in the same mini-batches.
    """

    decisions: int = 0
    agreeing: int = 0
    changes: int = 0
    spare: int = 0
    results: int = 0
    saturated: int = 0

    @property
    def agreement(self) -> float:
        """The share of decisions that agree."""
        return self.agreeing / max(1, self.decisions)

    @property
    def saturation(self) -> float:
        """The share of results that saturate."""
        return self.saturated / max(1, self.results)

    @property
    def spare_bits(self) -> float:
        """The mean number of bits at the top that no value used."""
        return self.spare / max(1, self.decisions)

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


class Comparison:
    """Follows a training whose shadow is the full target.

    Compared are the tensors that statistics PEs sample. Inputs and the gradient of the loss are converted by the host,
    which sees all of them.

    Attributes:
        by_tensor: what was counted.
    """

    def __init__(self, program: TrainingProgram, exponents: Mapping[str, int]) -> None:
        self._groups = {name: GROUPS[tensor.tensor_class] for name, tensor in program.formats.items()}
        self.by_tensor: dict[str, Counts] = {}
        self._histories = {
            name: ExponentHistory(tensor.policy, tensor.bits, exponents[name])
            for name, tensor in program.formats.items()
        }

    @property
    def counts(self) -> dict[str, Counts]:
        """By group, and of groups together."""
        groups = dict.fromkeys(GROUPS.values(), Counts())
        for name, counts in self.by_tensor.items():
            groups[self._groups[name]] += counts
        propagation = groups["activations"] + groups["gradients"]
        return {ALL: sum(groups.values(), Counts()), PROPAGATION: propagation, **groups}

    def observe(self, batch: MiniBatch, records: Records) -> None:
        """One mini-batch, and what statistics in every PE would have been."""
        for name, record in records[FULL].items():
            events = batch.events[name]
            counts = Counts(results=events.results, saturated=events.saturated)
            decision, full = batch.decisions.get(name), self._histories[name].observe(record)
            if decision is not None and full is not None:
                agreeing, changes = decision.new == full.new, decision.new != decision.old
                spare = self._spare_bits(name, decision, record)
                counts += Counts(decisions=1, agreeing=int(agreeing), changes=int(changes), spare=spare)
            self.by_tensor[name] = self.by_tensor.get(name, Counts()) + counts

    def _spare_bits(self, name: str, decision: Decision, record: StatisticsRecord) -> int:
        """How much larger a mini-batch's exponent was than the tensor's bare rule would make it, seeing all of it."""
        history = self._histories[name]
        bare = replace(history.policy.update, confidence=None, headroom=0)
        return max(0, decision.old - decide(bare, record, history.bits, decision.old))

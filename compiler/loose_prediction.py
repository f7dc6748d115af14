"""Predictions of exponents that tolerate more than results survive: nobody may have meant such a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod

from binpoint.backends.blocks import block_size, grid_shape
from binpoint.backends.kernel import KernelSpec, TensorSpec
from binpoint.backends.program import KernelCall, Program
from binpoint.support.number_text import format_number
from binpoint.support.numeric import BlockMethod, Measure, Neighbour, NumericPolicy

LOOSE_SHARE = Fraction(1, 64)
"""The tolerated share of a block's results from which on a threshold is loose (docs/language.md has what it costs)."""


@dataclass(frozen=True)
class LoosePrediction:
    """The kernel whose prediction tolerates the largest share of a block's results.

    Attributes:
        kernel: its name.
        threshold: the mean number of saturated results of a block that it tolerates.
        results: how many a block has.
        others: how many more kernels of the program have a loose threshold.
        setting: the key of `--set` that changes how the kernel's blocks get their exponents.
    """

    kernel: str
    threshold: Fraction
    results: int
    others: int
    setting: str

    def __str__(self) -> str:
        """As a warning: what is tolerated, and how to tolerate less."""
        others = f" and {self.others} more tolerate" if self.others else " tolerates"
        return (
            f'the prediction of "{self.kernel}"{others} {format_number(self.threshold)} saturated results a '
            f"block (threshold), of the {self.results} that a block has: too many for most networks; "
            f"--set '{self.setting}=predict(threshold=0)' tolerates none"
        )


def loose_prediction(program: Program, numeric: NumericPolicy) -> LoosePrediction | None:
    """The loosest prediction of a program; None where none is loose.

    Args:
        program: the kernels.
        numeric: what the network itself says, without its target.
    """
    shares = {call.spec.name: _tolerated(call.spec) for call in program.calls}
    loose = [call for call in program.calls if shares[call.spec.name] >= LOOSE_SHARE]
    if not loose:
        return None
    worst = max(loose, key=lambda call: shares[call.spec.name])
    assert worst.spec.blocks is not None
    threshold, results = worst.spec.blocks.threshold, _results(worst.spec.output)
    return LoosePrediction(worst.spec.name, threshold, results, len(loose) - 1, _setting(worst, numeric))


def _tolerated(spec: KernelSpec) -> Fraction:
    """The share of a block's results that may saturate in blocks nearby; 0 where nothing is predicted from those."""
    policy = spec.blocks
    if policy is None or policy.method is not BlockMethod.PREDICT or policy.measure is not Measure.OVERFLOWS:
        return Fraction(0)
    candidates = policy.candidates if policy.positions is None else len(policy.positions)
    if candidates == 1 or not any(_exists(neighbour, spec.output) for neighbour in policy.neighbours):
        return Fraction(0)
    return policy.threshold / _results(spec.output)


def _results(tensor: TensorSpec) -> int:
    """How many results share an exponent."""
    return prod(block_size(tensor)) * (1 if tensor.granularity.per_channel else tensor.channels)


def _exists(neighbour: Neighbour, tensor: TensorSpec) -> bool:
    """Whether any block of a map has that neighbour."""
    _, rows, columns = grid_shape(tensor)
    return (rows > 1 or neighbour is Neighbour.LEFT) and (columns > 1 or neighbour is Neighbour.UPPER)


def _setting(call: KernelCall, numeric: NumericPolicy) -> str:
    """The key that reaches a kernel: its layer's, where that one has words of its own."""
    owner = next((layer for layer in reversed(call.fused) if layer in numeric.overrides), None)
    own = owner is not None and numeric.overrides[owner].blocks != numeric.blocks
    return f"layer.{owner}.blocks" if own else "numeric.blocks"

"""The positions that each feature map of a program can take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from binpoint.backends.program import Program
from binpoint.runtime.blocks.conversion import FloatArray
from binpoint.runtime.calibration import MovableTensor, movable_tensors, trial_exponent, trial_records
from binpoint.runtime.exponents import clamp
from binpoint.support.numeric import BlockPolicy


@dataclass(frozen=True)
class Candidates:
    """The exponents that a map's blocks can take, the coarsest (largest) first, and the one that it has by default.

    Candidates are listed by the network, or they begin with the exponent that calibration gives and go on with the next
    finer ones. The default is the calibrated exponent, or the nearest candidate that is not finer.
    """

    exponents: tuple[int, ...]
    default: int

    @property
    def position_bits(self) -> int:
        """The bits that name one candidate."""
        return (len(self.exponents) - 1).bit_length()

    def only_default(self) -> Candidates:
        """Nothing to choose from."""
        return replace(self, exponents=(self.default,))


def calibrate(
    program: Program,
    floats: Mapping[str, FloatArray],
    known: Mapping[str, int],
    inputs: Mapping[str, FloatArray],
    clamps: Counter[str],
) -> dict[str, Candidates]:
    """The candidates of every input and every quantised result.

    Args:
        program: the network.
        floats: its float parameters, for a trial of the tensors whose exponent nobody knows.
        known: exponents by tensor name.
        inputs: numbers (N, C, H, W) by input name, of the mini-batch that runs in floating point.
        clamps: counts the exponents that had to be moved into their declared range.
    """
    policies = {declared.name: declared.blocks for declared in program.inputs}
    policies |= {call.spec.name: call.spec.blocks for call in program.calls}
    tensors = movable_tensors(program)
    starts = {tensor.name: known.get(tensor.name, tensor.policy.initial) for tensor in tensors}
    if any(start is None for start in starts.values()):
        records = trial_records(program, floats, inputs)
        starts |= {
            tensor.name: trial_exponent(tensor, records[tensor.name])
            for tensor in tensors
            if starts[tensor.name] is None
        }
    found = {}
    for tensor in tensors:
        start, moved = clamp(starts[tensor.name] or 0, tensor.policy.exponent_range)
        clamps[tensor.name] += moved
        found[tensor.name] = _candidates(start, policies[tensor.name] or BlockPolicy(), tensor)
    return found


def _candidates(calibrated: int, policy: BlockPolicy, tensor: MovableTensor) -> Candidates:
    if policy.positions is not None:
        exponents = tuple(sorted((-position for position in policy.positions), reverse=True))
        not_finer = [exponent for exponent in exponents if exponent >= calibrated]
        return Candidates(exponents, not_finer[-1] if not_finer else exponents[0])
    finest = max(calibrated - policy.candidates + 1, tensor.policy.exponent_range[0])
    return Candidates(tuple(range(calibrated, finest - 1, -1)), calibrated)

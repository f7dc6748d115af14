"""The positions that each feature map of a program can take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from binpoint.backends.blocks import WHOLE_MAP
from binpoint.backends.kernel import StatisticsRecord
from binpoint.backends.program import Program
from binpoint.runtime.calibration import MovableTensor, movable_tensors, trial_exponent
from binpoint.runtime.exponents import clamp, exponent_of_top
from binpoint.support.numeric import BlockPolicy


@dataclass(frozen=True)
class Candidates:
    """The exponents that a map's blocks can take, the coarsest (largest) first, and the one that it has by default.

    Candidates are listed by the network, or they begin with the exponent that calibration gives and go on with the next
    finer ones. Where a map is cut into blocks they begin with the one at which the largest value fits: a rule may leave
    the largest values out, which a whole map gains by, but a block that holds one would have no position for it.
    The default is the calibrated exponent, or the nearest candidate that is not finer.
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
    program: Program, known: Mapping[str, int], records: Mapping[str, StatisticsRecord], clamps: Counter[str]
) -> dict[str, Candidates]:
    """The candidates of every input and every quantised result.

    Args:
        program: the network.
        known: exponents by tensor name; a map begins with the one that it has.
        records: the bit positions of the others' values in floating point, by tensor name.
        clamps: counts the exponents that had to be moved into their declared range.
    """
    maps = {declared.name: (declared.tensor, declared.blocks) for declared in program.inputs}
    maps |= {call.spec.name: (call.spec.output, call.spec.blocks) for call in program.calls}
    found = {}
    for tensor in movable_tensors(program):
        spec, policy = maps[tensor.name]
        start = _start(tensor, known)
        if start is not None:
            coarsest = calibrated = start
        else:
            record = records[tensor.name]
            coarsest = calibrated = trial_exponent(tensor, record)
            if spec.granularity != WHOLE_MAP and record.msb:
                coarsest = max(calibrated, exponent_of_top(max(record.msb), tensor.bits))
        calibrated, moved = clamp(calibrated, tensor.policy.exponent_range)
        coarsest, _ = clamp(coarsest, tensor.policy.exponent_range)
        clamps[tensor.name] += moved
        found[tensor.name] = _candidates(coarsest, calibrated, policy or BlockPolicy(), tensor)
    return found


def needs_trial(program: Program, known: Mapping[str, int]) -> bool:
    """Whether nobody gave some map an exponent."""
    return any(_start(tensor, known) is None for tensor in movable_tensors(program))


def _start(tensor: MovableTensor, known: Mapping[str, int]) -> int | None:
    """The exponent that somebody gave a map."""
    return known.get(tensor.name, tensor.policy.initial)


def _candidates(coarsest: int, calibrated: int, policy: BlockPolicy, tensor: MovableTensor) -> Candidates:
    exponents: tuple[int, ...]
    if policy.positions is not None:
        exponents = tuple(sorted((-position for position in policy.positions), reverse=True))
    else:
        finest = max(coarsest - policy.candidates + 1, tensor.policy.exponent_range[0])
        exponents = tuple(range(coarsest, finest - 1, -1))
    not_finer = [exponent for exponent in exponents if exponent >= calibrated]
    return Candidates(exponents, not_finer[-1] if not_finer else exponents[0])

"""First exponents by a float trial of one mini-batch, as JP7367595B2 (fig. 2) suggests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.float_reference import run_float
from binpoint.backends.kernel import EMPTY_RECORD, StatisticsRecord
from binpoint.backends.program import Program
from binpoint.runtime.exponents import chosen_top, exponent_of_top, record_of_floats
from binpoint.support.numeric import TensorPolicy

FloatArray = NDArray[np.floating[Any]]

TRIAL_ELEMENTS = 1 << 24
"""A float trial keeps about this many numbers at a time."""


@dataclass(frozen=True)
class MovableTensor:
    """An input or a result whose exponent a controller decides: its width and its policy."""

    name: str
    bits: int
    policy: TensorPolicy


def movable_tensors(program: Program) -> tuple[MovableTensor, ...]:
    """Inputs and the results that are quantised, in data-flow order; exact results keep their input's exponent."""
    specs = [(declared.name, declared.tensor) for declared in program.inputs]
    specs += [(call.spec.name, call.spec.output) for call in program.calls if not call.spec.exact]
    return tuple(MovableTensor(name, spec.bits, program.policies.get(name, TensorPolicy())) for name, spec in specs)


def trial_records(
    program: Program, parameters: Mapping[str, FloatArray], inputs: Mapping[str, FloatArray]
) -> dict[str, StatisticsRecord]:
    """Run one mini-batch in floating point and record the bit positions of every movable tensor.

    Args:
        program: the network.
        parameters: its float parameters by name.
        inputs: (N, C, H, W) numbers by input name.
    """
    names = [tensor.name for tensor in movable_tensors(program)]
    records = dict.fromkeys(names, EMPTY_RECORD)
    for part in _parts(program, inputs):
        # In float64 the order of summation, which depends on threads, does not reach the top bits.
        for name, values in run_float(program, parameters, part, np.float64, names).items():
            records[name] = records[name].merge(record_of_floats(values, f'"{name}"'))
    return records


def trial_exponent(tensor: MovableTensor, record: StatisticsRecord) -> int:
    """The exponent that a float trial gives a tensor, before clamping: t - (b - 2) for its top position t.

    Rules with a tolerance leave out that share of the largest values; for the others the largest value fits. The
    lowest bits of floats say nothing, so `lsb-min` starts like `msb-max`. A tensor of zeros gets the range
    of numbers around 1.
    """
    top = chosen_top(tensor.policy.update, record) if record.msb else 0
    return exponent_of_top(top, tensor.bits)


def _parts(program: Program, inputs: Mapping[str, FloatArray]) -> Iterator[dict[str, FloatArray]]:
    """The mini-batch, a few images at a time."""
    an_image = sum(prod(call.spec.output.shape) for call in program.calls)
    step = max(1, TRIAL_ELEMENTS // an_image)
    for start in range(0, len(next(iter(inputs.values()))), step):
        yield {name: values[start : start + step] for name, values in inputs.items()}

"""First exponents by a float trial of one mini-batch: forward, backward and update (JP7367595B2, fig. 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.float_training import FloatTraining
from binpoint.backends.kernel import EMPTY_RECORD, StatisticsRecord
from binpoint.backends.training_program import TrainingProgram
from binpoint.runtime.calibration import MovableTensor, trial_exponent
from binpoint.runtime.data import Labels
from binpoint.runtime.exponents import clamp, record_of_floats
from binpoint.runtime.training.names import master_of
from binpoint.support.numeric import FixedConstant

Floats = NDArray[np.floating[Any]]


def first_exponents(
    program: TrainingProgram,
    parameters: Mapping[str, Floats],
    running: Mapping[str, Floats],
    inputs: Mapping[str, Floats],
    labels: Labels,
    rate: FixedConstant,
) -> dict[str, int]:
    """An exponent for every tensor of a program: the user's, else the one that its rule finds in the trial.

    Args:
        program: what a mini-batch does.
        parameters: first values by name.
        running: first running statistics of batch normalisations.
        inputs: (N, C, H, W) numbers by input name.
        labels: (N,).
        rate: the learning rate of the trial's update.

    Raises:
        UserError: a value of the trial is infinite or not a number.
    """
    # In float64 the order of summation, which depends on threads, does not reach the top bits.
    trial = FloatTraining(program, parameters, running, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # reported below, with the tensor's name
        trial.step(inputs, labels, rate)
    tensors = trial.tensors()
    updated = {name: values for each in program.parameters for name, values in _updated(each.name, tensors)}
    exponents = {}
    for name, tensor in program.formats.items():
        record = _record(name, tensors) if name not in updated else _record(name, tensors, updated[name])
        found = tensor.policy.initial
        if found is None:
            found = trial_exponent(MovableTensor(name, tensor.bits, tensor.policy), record)
        exponents[name] = clamp(found, tensor.policy.exponent_range)[0]
    return exponents


def _updated(parameter: str, tensors: Mapping[str, Floats]) -> tuple[tuple[str, Floats], tuple[str, Floats]]:
    """What master and working copy hold besides their trial's tensors: they are stored before and after the update."""
    return (parameter, tensors[master_of(parameter)]), (master_of(parameter), tensors[parameter])


def _record(name: str, tensors: Mapping[str, Floats], other: Floats | None = None) -> StatisticsRecord:
    record = record_of_floats(tensors[name], f'"{name}"')
    return record.merge(EMPTY_RECORD if other is None else record_of_floats(other, f'"{name}"'))

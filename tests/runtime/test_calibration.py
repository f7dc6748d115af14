from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from binpoint.backends.float_reference import run_float
from binpoint.backends.kernel import EMPTY_RECORD, StatisticsRecord
from binpoint.backends.program import TensorPolicy
from binpoint.runtime import calibration
from binpoint.runtime.calibration import MovableTensor, movable_tensors, trial_exponent, trial_records
from binpoint.runtime.exponents import record_of_floats
from binpoint.support.numeric import ExponentRule, UpdatePolicy
from tests.programs import artifact_of, branches, classifier, images_for, with_policies

RECORD = StatisticsRecord({3: 90, 4: 9, 7: 1}, {-20: 100}, 0, 100)


def test_inputs_and_quantised_results_have_exponents_of_their_own() -> None:
    policy = TensorPolicy(initial=-3)
    program = with_policies(classifier(bits=16), {"conv": policy})
    tensors = {tensor.name: tensor for tensor in movable_tensors(program)}
    assert list(tensors) == ["image", "conv", "fc"]
    assert tensors["conv"] == MovableTensor("conv", 16, policy)


def test_the_trial_records_every_movable_tensor_of_the_float_network() -> None:
    artifact = artifact_of(branches())
    inputs = images_for(artifact.program, 6)
    records = trial_records(artifact.program, artifact.floats, inputs)
    tensors = run_float(artifact.program, artifact.floats, inputs, np.float64)
    names = [tensor.name for tensor in movable_tensors(artifact.program)]
    assert records == {name: record_of_floats(tensors[name]) for name in names}


def test_a_large_trial_runs_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = artifact_of(classifier())
    inputs = images_for(artifact.program, 7)
    whole = trial_records(artifact.program, artifact.floats, inputs)
    monkeypatch.setattr(calibration, "TRIAL_ELEMENTS", 600)
    assert len(list(calibration._parts(artifact.program, inputs))) == 4
    parts = trial_records(artifact.program, artifact.floats, inputs)
    assert {name: record.msb for name, record in parts.items()} == {name: record.msb for name, record in whole.items()}


@pytest.mark.parametrize(
    ("rule", "r_max", "top"),
    [
        (ExponentRule.MSB_HISTOGRAM, Fraction(0), 7),
        (ExponentRule.MSB_HISTOGRAM, Fraction(1, 100), 4),
        (ExponentRule.MSB_LSB, Fraction(1, 10), 3),
        (ExponentRule.MSB_MAX, Fraction(1, 10), 7),
        (ExponentRule.LSB_MIN, Fraction(1, 10), 7),
        (ExponentRule.FIXED, Fraction(1, 10), 7),
    ],
)
def test_the_first_exponent_fits_the_top_position_of_the_rule(rule: ExponentRule, r_max: Fraction, top: int) -> None:
    tensor = MovableTensor("x", 8, TensorPolicy(UpdatePolicy(rule, r_max)))
    assert trial_exponent(tensor, RECORD) == top - 6


def test_a_tensor_of_zeros_gets_numbers_around_one() -> None:
    exponent = trial_exponent(MovableTensor("x", 8, TensorPolicy()), EMPTY_RECORD)
    assert np.ldexp(127, exponent) > 1 > np.ldexp(32, exponent)

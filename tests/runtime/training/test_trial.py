from __future__ import annotations

import numpy as np
import pytest

from binpoint.backends.float_training import FloatTraining
from binpoint.runtime.training.trial import first_exponents
from binpoint.support.diagnostics import UserError
from tests.training_programs import (
    NORMALISED,
    PLAIN,
    RATE,
    exponents,
    first_parameters,
    mini_batch,
    running,
    trainable,
)


@pytest.mark.parametrize("text", [PLAIN, NORMALISED], ids=["plain", "normalised"])
def test_the_largest_value_of_every_tensor_just_fits(text: str) -> None:
    program, batch = trainable(text), mini_batch()
    trial = FloatTraining(program, first_parameters(text), running(text), np.float64)
    trial.step(batch.inputs, batch.labels, RATE)
    tensors, found = trial.tensors(), exponents(text)
    assert found.keys() == program.formats.keys()
    for name, tensor in program.formats.items():
        if name.endswith(".master"):
            continue
        largest = max(np.abs(tensors[name]).max(), np.abs(tensors.get(f"{name}.master", np.zeros(1))).max())
        full = 2.0 ** (found[name] + tensor.bits - 1)
        assert full / 2 <= largest <= full, name


def test_masters_fit_before_and_after_the_update() -> None:
    found, parameters = exponents(), first_parameters()
    for name, values in parameters.items():
        assert np.abs(values).max() <= 2.0 ** (found[f"{name}.master"] + 15)
    # Biases start at 0; the update says how large they are.
    assert -40 < found["fc.bias.master"] < -15


def test_the_exponents_that_the_network_names_come_first() -> None:
    named = PLAIN.replace("numeric {", "numeric { exponents { conv = 3  fc.weight = -9 } ")
    found = exponents(named)
    assert (found["conv"], found["fc.weight"]) == (3, -9)
    assert found["fc"] == exponents()["fc"]


def test_exponents_stay_in_their_range() -> None:
    narrow = PLAIN.replace("numeric {", "numeric { exponent_range = [-6, 4] ")
    assert min(exponents(narrow).values()) == -6


def test_a_scale_of_the_loss_moves_the_exponents_of_gradients() -> None:
    plain, scaled = exponents(), exponents(scale_exponent=4)
    for name, exponent in plain.items():
        assert scaled[name] == exponent + (4 if name.endswith(".grad") else 0), name


def test_a_value_that_is_not_finite_is_named() -> None:
    parameters = first_parameters()
    parameters["conv.weight"] = np.full_like(parameters["conv.weight"], np.inf)
    batch = mini_batch()
    with pytest.raises(UserError, match='"conv"'):
        first_exponents(trainable(), parameters, {}, batch.inputs, batch.labels, RATE)

from __future__ import annotations

import numpy as np

from binpoint.runtime.training.start import first_tensors
from tests.training_programs import exponents, first_parameters, trainable


def test_masters_are_the_floats_to_the_nearest() -> None:
    parameters, found = first_parameters(), exponents()
    tensors = first_tensors(trainable(), parameters, found)
    for name, values in parameters.items():
        master = tensors[f"{name}.master"]
        assert master.exponent == found[f"{name}.master"]
        error = master.mantissas * 2.0**master.exponent - values.reshape(master.mantissas.shape)
        assert np.abs(error).max() <= 2.0 ** (master.exponent - 1)


def test_working_copies_are_the_masters_to_the_nearest() -> None:
    tensors = first_tensors(trainable(), first_parameters(), exponents())
    for name in first_parameters():
        working, master = tensors[name], tensors[f"{name}.master"]
        exact = master.mantissas * 2.0 ** (master.exponent - working.exponent)
        assert np.array_equal(working.mantissas, np.clip(np.rint(exact), -(2.0**15), 2.0**15 - 1))


def test_weights_have_the_shape_of_the_program() -> None:
    tensors = first_tensors(trainable(), first_parameters(), exponents())
    assert first_parameters()["fc.weight"].shape == (3, 36)
    assert tensors["fc.weight"].mantissas.shape == (3, 36, 1, 1)
    assert tensors["fc.weight"].mantissas.dtype == np.int8
    assert tensors["fc.weight.master"].mantissas.dtype == np.int16


def test_velocities_are_zeros_and_only_there_with_momentum() -> None:
    tensors = first_tensors(trainable(), first_parameters(), exponents())
    assert not tensors["conv.weight.velocity"].mantissas.any()
    without = first_tensors(trainable(momentum=0), first_parameters(), exponents(momentum=0))
    assert not [name for name in without if name.endswith(".velocity")]

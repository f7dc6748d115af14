"""A whole mini-batch in integers: near floating point in wide formats, and independent of a scale of the loss."""

from fractions import Fraction

import numpy as np
import pytest

from binpoint.backends.float_training import FloatTraining
from binpoint.backends.training_program import KernelStep, Phase
from binpoint.support.numeric import fixed_constant
from tests.backends.integer_training import IntegerTraining, exponents_of_trial
from tests.backends.training_programs import LAYERS, first_parameters, mini_batch, network

RATE = fixed_constant(Fraction(1, 20), 16)
CONSTANTS = {"momentum": fixed_constant(Fraction(9, 10), 16), "decay": fixed_constant(Fraction(1, 1000), 16)}


def trial(program):
    inputs, labels = mini_batch(program)
    parameters = first_parameters(program)
    training = FloatTraining(program, parameters, dtype=np.float64)
    training.step(inputs, labels, RATE)
    return inputs, parameters, labels, training.tensors()


@pytest.mark.parametrize("kind", LAYERS)
def test_wide_integers_come_near_floating_point(kind):
    """16-bit mantissas, 64-bit accumulators: every tensor is off by a few units of 2^-15 of its largest value."""
    program = network(LAYERS[kind], **CONSTANTS)
    inputs, parameters, labels, tensors = trial(program)
    integers = IntegerTraining(program, exponents_of_trial(program, tensors))
    integers.step(inputs, parameters, labels, RATE)
    worst = {}
    for name, found in integers.tensors.items():
        # Before a batch norm the gradient of a bias is 0, and its float a rounding error.
        if not name.endswith(".master") and np.abs(tensors[name]).max() > 1e-12:
            worst[name] = (
                np.abs(found.real - tensors[name].reshape(found.values.shape)).max() / np.abs(tensors[name]).max()
            )
    assert {"head.weight.grad", "head.bias.grad", "stem.weight.grad"} <= worst.keys()
    # A batch norm takes means away, from gradients too; what is left is smaller than what was rounded.
    assert max(worst.values()) < (64 if "norm" in kind else 16) * 2.0**-15
    for name, updated in integers.updates.items():
        master = np.ldexp(updated.master.mantissas.astype(float), integers.exponents[f"{name}.master"])
        moved = master.ravel() - parameters[name].ravel()
        exact = tensors[f"{name}.master"].ravel() - parameters[name].ravel()
        np.testing.assert_allclose(moved, exact, atol=64 * 2.0**-15 * np.abs(exact).max())


@pytest.mark.parametrize("kind", ["conv-stride-asymmetric", "sigmoid", "average-pool", "add", "batch-norm-relu"])
@pytest.mark.parametrize("scale", [5, -3])
def test_a_scale_of_the_loss_moves_exponents_alone(kind, scale):
    program = network(LAYERS[kind], **CONSTANTS, scale_exponent=scale, bits=8)
    inputs, parameters, labels, tensors = trial(network(LAYERS[kind], **CONSTANTS, bits=8))
    exponents = exponents_of_trial(program, tensors, bits=8)
    backward = {
        step.call.spec.name for step in program.steps if isinstance(step, KernelStep) and step.phase is Phase.BACKWARD
    }
    backward |= {"head.grad", "norm.gamma.grad", "norm.beta.grad"}
    shifted = {name: exponent + scale * (name in backward) for name, exponent in exponents.items()}
    plain = IntegerTraining(program, exponents, bits=8)
    scaled = IntegerTraining(program, shifted, bits=8, scale=scale)
    for training in (plain, scaled):
        training.step(inputs, parameters, labels, RATE)
    for name, found in plain.tensors.items():
        assert (found.values == scaled.tensors[name].values).all()
        assert name not in backward or scaled.tensors[name].exponent == found.exponent + scale
    assert any(np.abs(plain.tensors[name].values).max() > 1 for name in backward & plain.tensors.keys())
    for name, updated in plain.updates.items():
        other = scaled.updates[name]
        for which in ("master", "velocity", "working"):
            assert (getattr(updated, which).mantissas == getattr(other, which).mantissas).all()
            assert getattr(updated, which).events == getattr(other, which).events

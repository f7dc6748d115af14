"""Floating-point training: gradients against finite differences of the loss, updates against their formulas."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from binpoint.backends.float_training import FloatTraining
from binpoint.backends.training_program import KernelStep, Phase
from binpoint.support.numeric import FixedConstant, fixed_constant
from tests.backends.training_programs import LAYERS, first_parameters, lenet, mini_batch, network

REST = FixedConstant(0, 0)
"""A learning rate at which nothing moves."""

RATE = fixed_constant(Fraction(1, 20), 16)


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_are_those_of_finite_differences(kind):
    program = network(LAYERS[kind])
    inputs, labels = mini_batch(program)
    training = FloatTraining(program, first_parameters(program), dtype=np.float64)
    training.step(inputs, labels, REST)
    gradients = training.tensors()
    assert len(program.parameters) >= 4
    for name, values in training.parameters.items():
        gradient = gradients[f"{name}.grad"].reshape(values.shape)
        assert np.abs(gradient).max() > 0
        for index in np.random.default_rng(1).permutation(values.size)[:12]:
            losses = []
            for step in (1e-6, -1e-6):
                moved = values.copy()
                moved.flat[index] += step
                training.parameters[name] = moved
                losses.append(training.step(inputs, labels, REST).loss)
            training.parameters[name] = values
            assert (losses[0] - losses[1]) / 2e-6 == pytest.approx(gradient.flat[index], rel=1e-4, abs=1e-8)


def number(constant):
    return 0.0 if constant is None else constant.multiplier * 2.0**-constant.fraction_bits


@pytest.mark.parametrize("momentum", [None, Fraction(9, 10)])
@pytest.mark.parametrize("decay", [None, Fraction(1, 100)])
def test_updates(momentum, decay):
    constants = [None if each is None else fixed_constant(each, 16) for each in (momentum, decay)]
    program = network(LAYERS["conv"], momentum=constants[0], decay=constants[1])
    inputs, labels = mini_batch(program)
    first = first_parameters(program)
    training = FloatTraining(program, first, dtype=np.float64)
    velocity = dict.fromkeys(first, 0.0)
    expected = dict(first)
    for _ in range(3):
        training.step(inputs, labels, RATE)
        tensors = training.tensors()
        for name, values in expected.items():
            assert (tensors[name] == values).all()
            direction = tensors[f"{name}.grad"].reshape(values.shape) + number(constants[1]) * values
            velocity[name] = number(constants[0]) * velocity[name] + direction
            expected[name] = values - number(RATE) * velocity[name]
            np.testing.assert_allclose(tensors[f"{name}.master"], expected[name], rtol=1e-12)
            expected[name] = tensors[f"{name}.master"]
            assert (f"{name}.velocity" in tensors) == (momentum is not None)


def test_batch_norm_normalises_and_keeps_running_statistics():
    program = network(LAYERS["batch-norm"])
    inputs, labels = mini_batch(program, images=16)
    parameters = first_parameters(program) | {"norm.gamma": np.full(5, 3.0), "norm.beta": np.full(5, -2.0)}
    running = {"norm.mean": np.zeros(5), "norm.variance": np.ones(5)}
    training = FloatTraining(program, parameters, running, np.float64)
    training.step(inputs, labels, REST)
    tensors = training.tensors()
    x, y = tensors["conv"], tensors["norm"]
    mean, variance = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
    scale = 3 / np.sqrt(variance + 0.01)
    np.testing.assert_allclose(y, (x - mean.reshape(1, -1, 1, 1)) * scale.reshape(1, -1, 1, 1) - 2, atol=1e-12)
    np.testing.assert_allclose(training.running["norm.mean"], 0.1 * mean)
    count = 16 * 3 * 4
    np.testing.assert_allclose(training.running["norm.variance"], 0.9 + 0.1 * variance * count / (count - 1))
    # Evaluation reads the running statistics and moves nothing.
    kept = {name: values.copy() for name, values in training.running.items()}
    shift = (kept["norm.mean"] * 3 / np.sqrt(kept["norm.variance"] + 0.01)).reshape(1, -1, 1, 1)
    scores = training.logits(inputs)
    assert scores.shape == (16, 3)
    normalised = x * (3 / np.sqrt(kept["norm.variance"] + 0.01)).reshape(1, -1, 1, 1) - shift - 2
    head = normalised.reshape(16, -1) @ parameters["head.weight"].reshape(3, -1).T + parameters["head.bias"]
    np.testing.assert_allclose(scores, head, atol=1e-12)
    assert all((training.running[name] == values).all() for name, values in kept.items())


def test_a_scale_of_the_loss_shows_in_gradients_alone():
    """2^k is exact in floating point: gradients are 2^k as large, everything else is the same to the bit."""
    plain, scaled = (network(LAYERS["batch-norm-relu"], scale_exponent=k) for k in (0, 7))
    found = []
    for program in (plain, scaled):
        inputs, labels = mini_batch(program)
        training = FloatTraining(program, first_parameters(program))
        training.step(inputs, labels, RATE)
        found.append(training.tensors())
    scaled_names = {
        step.call.spec.name for step in plain.steps if isinstance(step, KernelStep) and step.phase is Phase.BACKWARD
    }
    scaled_names |= {"head.grad", "norm.grad.sums", "norm.gamma.grad", "norm.beta.grad"}
    assert found[0].keys() == found[1].keys()
    for name, values in found[0].items():
        factor = 128 if name in scaled_names else 1
        assert (found[1][name] == values * factor).all()


def test_every_tensor_has_its_shape():
    program = network(LAYERS["batch-norm-relu"], momentum=RATE)
    inputs, labels = mini_batch(program)
    training = FloatTraining(program, first_parameters(program))
    training.step(inputs, labels, RATE)
    tensors = training.tensors()
    shapes = {
        "image": (4, 2, 5, 6),
        "conv": (4, 5, 3, 4),
        "conv.grad.0": (4, 4, 5, 6),
        "conv.weight": (5, 4, 3, 3),
        "conv.weight.master": (5, 4, 3, 3),
        "conv.weight.velocity": (5, 4, 3, 3),
        "conv.weight.grad": (5, 4, 3, 3),
        "head.bias.grad": (3, 1, 1, 1),
        "norm.scale": (1, 5, 1, 1),
        "norm.grad.scale": (2, 5, 1, 1),
        "norm.grad.shift": (5,),
        "norm.gamma.grad": (5,),
        "head.grad": (4, 3, 1, 1),
    }
    for name, shape in shapes.items():
        assert tensors[name].shape == shape
    with pytest.raises(ValueError, match="read-only"):
        tensors["conv"][...] = 0


def test_lenet_learns():
    """Ten images by heart, in float32."""
    program = lenet()
    training = FloatTraining(program, first_parameters(program))
    inputs = {"image": np.random.default_rng(0).normal(size=(10, 1, 28, 28)).astype(np.float32)}
    labels = np.arange(10)
    steps = [training.step(inputs, labels, RATE) for _ in range(25)]
    assert steps[0].correct < 5
    assert steps[-1].correct == 10
    assert steps[-1].loss < 0.1 < 2 < steps[0].loss
    assert training.parameters["conv1.weight"].dtype == np.float32
    assert (training.logits(inputs).argmax(axis=1) == labels).all()


def test_parts_of_a_mini_batch_make_up_the_whole(monkeypatch):
    """Columns made for one image at a time give the same gradients as all at once."""
    program = network(LAYERS["conv-groups-dilation"])
    inputs, labels = mini_batch(program)
    found = []
    for elements in (1, 1 << 20):
        monkeypatch.setattr("binpoint.backends.float_convolutions.CHUNK_ELEMENTS", elements)
        training = FloatTraining(program, first_parameters(program), dtype=np.float64)
        training.step(inputs, labels, RATE)
        found.append(training.tensors())
    for name, values in found[0].items():
        np.testing.assert_allclose(values, found[1][name], rtol=1e-12, atol=1e-15)


def test_a_kernel_without_its_weights_is_refused():
    program = network(LAYERS["conv"])
    steps = [step for step in program.steps if isinstance(step, KernelStep)]
    broken = replace(steps[0], call=replace(steps[0].call, weight=None))
    training = FloatTraining(replace(program, steps=(broken,)), first_parameters(program))
    with pytest.raises(ValueError, match="weights"):
        training.step(*mini_batch(program), RATE)

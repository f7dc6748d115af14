"""Folded parameters: float64 inside, rounded once, by the names of the kernels."""

from fractions import Fraction

import numpy as np
import pytest

from binpoint.compiler.build_nn import build_nn
from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.materialize import materialize_parameters
from binpoint.compiler.pass_runner import run_passes
from binpoint.compiler.pipeline import NN_PASSES
from binpoint.support.diagnostics import UserError

TEXT = """network folded {
  input image: 4x3x3
  conv = conv2d(image, channels=6, kernel=3, padding=1, groups=2)
  norm1 = batch_norm(conv)
  norm2 = batch_norm(relu(norm1), epsilon=0.01)
  fc = linear(flatten(norm2), features=5, bias=false)
  norm3 = batch_norm(fc)
}
"""


def folded(parameters=None):
    network = parse_network_text(TEXT, "folded.bp", None)
    random = np.random.default_rng(3)
    values = {
        name: (random.uniform(0.5, 2, shape) if name.endswith("variance") else random.normal(size=shape)).astype(
            np.float32
        )
        for name, shape in network.parameter_shapes().items()
    }
    values |= parameters or {}
    module = build_nn(network)
    run_passes(module, NN_PASSES)
    return values, materialize_parameters(next(iter(module.ops)), values)


def scale(values, norm, epsilon):
    gamma, variance = values[f"{norm}.gamma"].astype(np.float64), values[f"{norm}.variance"].astype(np.float64)
    return gamma / np.sqrt(variance + float(Fraction(epsilon)))


def test_names_and_shapes():
    _, result = folded()
    assert {name: array.shape for name, array in result.items()} == {
        "conv.weight": (6, 2, 3, 3),
        "conv.bias": (6,),
        "norm2.weight": (6, 1, 1, 1),
        "norm2.bias": (6,),
        "fc.weight": (5, 54, 1, 1),
        "fc.bias": (5,),
    }
    assert {array.dtype for array in result.values()} == {np.dtype(np.float32)}


def test_values_are_those_of_float64_rounded_once():
    values, result = folded()
    first, second = scale(values, "norm1", "1/100000"), scale(values, "norm2", "1/100")
    weight = values["conv.weight"].astype(np.float64) * first[:, None, None, None]
    np.testing.assert_array_equal(result["conv.weight"], weight.astype(np.float32))
    bias = (
        values["norm1.beta"].astype(np.float64)
        + (values["conv.bias"].astype(np.float64) - values["norm1.mean"].astype(np.float64)) * first
    )
    np.testing.assert_array_equal(result["conv.bias"], bias.astype(np.float32))
    np.testing.assert_array_equal(result["norm2.weight"].ravel(), second.astype(np.float32))


def test_parameters_without_an_expression_stay_what_they_are():
    network = parse_network_text("network n { input x: 3\n y = linear(x, features=2) }", "n.bp", None)
    module = build_nn(network)
    values = {"y.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "y.bias": np.ones(2, np.float32)}
    result = materialize_parameters(next(iter(module.ops)), values)
    assert result["y.weight"].tolist() == values["y.weight"].reshape(2, 3, 1, 1).tolist()
    assert result["y.bias"] is values["y.bias"]


def test_a_variance_that_has_no_root():
    variance = np.full(6, -1, np.float32)
    with pytest.raises(UserError) as caught:
        folded({"norm2.variance": variance})
    diagnostic = caught.value.diagnostics[0]
    assert (diagnostic.code, diagnostic.location.line) == ("negative-variance", 5)


def test_numbers_that_leave_float32():
    with pytest.raises(UserError) as caught:
        folded({"norm1.gamma": np.full(6, 3e38, np.float32), "norm1.variance": np.zeros(6, np.float32)})
    assert {each.code for each in caught.value.diagnostics} == {"not-finite"}

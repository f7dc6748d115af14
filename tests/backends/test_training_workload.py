"""Workloads of a training program: which pairs PEs compute, and what one result costs."""

from dataclasses import replace
from fractions import Fraction

import pytest

from binpoint.backends.training_workload import training_workloads
from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.training_pipeline import TrainingOptions, compile_training
from binpoint.scheduling.workload import Workload
from tests.programs import TARGET

BATCH = 4

CONV = """
  input x: 2x8x8
  a = conv2d(x, channels=6, kernel=1, bias=false)
  n = batch_norm(a)
  r = relu(n)
  b = conv2d(r, channels=8, kernel=3, stride=2, padding=1, groups=2)
  p = max_pool(b, kernel=2)
  u = resize(p, size=4)
  m = avg_pool(u, kernel=2)
  f = linear(flatten(m), features=3)
"""


@pytest.fixture(scope="module")
def found():
    network = parse_network_text(f"network n {{ {CONV} }} numeric {{ gradients = 12 bits }}", "n.bp", None)
    program = compile_training(network, TARGET, TrainingOptions(BATCH, Fraction(9, 10), Fraction(1, 1000))).program
    return {workload.layer: workload for workload in training_workloads(program)}


def test_everything_but_reshapes_is_scheduled(found):
    assert list(found) == [
        *["a", "n.sums", "n", "b", "p", "u", "m", "f"],
        *["f.bias.grad", "f.weight.grad", "f.flatten.grad", "u.grad", "p.grad", "b.grad"],
        *["b.bias.grad", "b.weight.grad", "n.grad", "n.acc.grad", "n.grad.sums", "a.grad", "a.weight.grad"],
        *[f"{name}.update" for name in ("a.weight", "n.gamma", "n.beta", "b.weight", "b.bias", "f.weight", "f.bias")],
    ]


def test_the_gradient_of_filters_sums_over_the_mini_batch(found):
    assert found["b.weight.grad"] == Workload(
        layer="b.weight.grad",
        channels=3,
        height=3,
        width=3,
        operations_per_result=BATCH * 4 * 4,
        input_bytes=0,
        parameter_bytes=BATCH * (6 * 64 + 2 * 8 * 16),
        output_bytes=2 * 27,
        fused=("b",),
        rows=8,
    )
    bias = found["b.bias.grad"]
    assert (bias.rows, bias.channels, bias.operations_per_result) == (8, 1, BATCH * 16)


@pytest.mark.parametrize(
    ("layer", "operations"),
    [
        # 4 filters of the group, 9 positions, 16 outputs for 64 inputs.
        ("n.grad", 4 * 9 * 16 // 64),
        ("b.grad", 2 * 2 * 4 // 16),
        ("p.grad", 4),
        ("u.grad", 2 * 2 * 4 // 16),
        ("n.acc.grad", 1),
        ("a.grad", 2),
        ("f.flatten.grad", 3),
    ],
)
def test_gradients_of_data_cost_what_reaches_an_element(found, layer, operations):
    assert found[layer].operations_per_result == operations
    assert found[layer].rows is None
    assert found[layer].statistics == (layer != "n.acc.grad")


def test_sums_are_partial_results_without_statistics(found):
    sums = found["n.grad.sums"]
    assert (sums.channels, sums.operations_per_result, sums.statistics) == (6, 2 * 64, False)
    assert (sums.input_bytes, sums.parameter_bytes, sums.output_bytes) == (6 * 64 + 2 * 6 * 64, 2 * 6 * 8, 0)


def test_updates_have_pairs_of_output_and_input_channels(found):
    weight, bias = found["b.weight.update"], found["b.bias.update"]
    # master, velocity and gradient of 2 bytes in, master, velocity and a working copy of 1 byte out
    assert weight == Workload("b.weight.update", 3, 3, 3, 3, 6 * 27, 0, 5 * 27, fused=("b",), rows=8)
    # a bias does not decay, and its working copy has 2 bytes
    assert bias == Workload("b.bias.update", 1, 1, 1, 2, 6, 0, 6, fused=("b",), rows=8)


def test_another_batch_makes_longer_sums():
    network = parse_network_text(f"network n {{ {CONV} }}", "n.bp", None)
    program = compile_training(network, TARGET, TrainingOptions(1)).program
    one, four = ({w.layer: w for w in training_workloads(replace(program, batch=n))} for n in (1, 4))
    assert four["b.weight.grad"].operations_per_result == 4 * one["b.weight.grad"].operations_per_result
    assert four["b"] == one["b"]

"""Bounds of accumulators: no operands exceed them, and the extreme ones reach them."""

from itertools import product

import numpy as np
import pytest

from binpoint.backends.gradients import AveragePoolGradient, MaxPoolGradient, SigmoidGradient, result_rows
from binpoint.backends.kernel import Add, KernelExponents, KernelParameters
from binpoint.backends.oracle.accumulate import exact_sum
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.training_program import KernelStep, Phase
from binpoint.compiler.bounds import signed_bits
from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.training_pipeline import TrainingOptions, compile_training
from binpoint.dialect.fx_training import ChannelSumsOp
from binpoint.dialect.text import parse_module
from tests.programs import TARGET

BATCH = 3

BEFORE = "input x: 4x9x9 first = conv2d(x, channels=4, kernel=1) "
AFTER = " head = linear(global_avg_pool(last), features=3)"

LAYERS = {
    "conv": "last = conv2d(first, channels=6, kernel=3x5, padding=[1, 2, 1, 2])",
    "strided": "last = conv2d(first, channels=6, kernel=5x4, stride=2x3, padding=2)",
    "dilated": "last = conv2d(first, channels=4, kernel=3, stride=3x2, dilation=2x3, padding=3, groups=2)",
    "max": "last = max_pool(first, kernel=3x2, stride=2x1)",
    "mean": "last = avg_pool(first, kernel=3, stride=2)",
    "resize": "last = resize(first, size=13x20)",
    "leaky": "last = leaky_relu(first, slope=0.1)",
    "sigmoid": "last = sigmoid(first)",
    "shared": "a = conv2d(first, channels=4, kernel=1) last = add(first, a, first)",
}

LOOSE = (Add, AveragePoolGradient, SigmoidGradient)
"""Where bounds are not reached: alignment leaves room, reciprocals round, the table is at most 1/4."""


def compiled(name):
    numeric = "activations = 7 bits weights = 5 bits gradients = 6 bits"
    text = f"network n {{ {BEFORE} {LAYERS[name]} {AFTER} }} numeric {{ {numeric} }}"
    return compile_training(parse_network_text(text, "n.bp", None), TARGET, TrainingOptions(BATCH))


def extreme_sums(call):
    """The largest and smallest sums over operands that are all at one end of their range."""
    spec = call.spec
    weights = getattr(spec.operation, "convolution", spec.operation)
    bits = [*(tensor.bits for tensor in spec.inputs), *([] if call.weight is None else [weights.weight_bits])]
    exponents = KernelExponents((0,) * len(spec.inputs), 0)
    for ends in product(*(mantissa_range(each) for each in bits)):
        inputs = [np.full((BATCH, *tensor.shape), end) for tensor, end in zip(spec.inputs, ends, strict=False)]
        if isinstance(spec.operation, MaxPoolGradient):
            # All windows that hold one element agree on it.
            inputs[0][:] = 0
            inputs[0][:, :, 4, 4] = 1
        parameters = KernelParameters()
        if call.weight is not None:
            rows, columns = spec.inputs[0].channels, spec.output.channels // weights.groups
            parameters = KernelParameters(np.full((rows, columns, *weights.kernel), ends[-1]))
        sums = exact_sum(spec, parameters, inputs, exponents, (0, spec.output.channels))
        assert sums.shape[0] == result_rows(spec, BATCH)
        yield from (int(sums.max()), int(sums.min()))


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_stay_within_their_bounds_and_reach_them(name):
    compilation = compiled(name)
    needed = {proof.kernel: proof.needed_bits for proof in compilation.proofs}
    checked = 0
    for step in compilation.program.steps:
        if not isinstance(step, KernelStep) or step.phase is not Phase.BACKWARD or step.call.spec.exact:
            continue
        spec = step.call.spec
        reached = max(signed_bits(value) for value in extreme_sums(step.call))
        assert reached <= needed[spec.name], spec.name
        if not isinstance(spec.operation, LOOSE):
            assert reached == needed[spec.name], spec.name
        checked += 1
    assert checked >= 5


def test_the_sums_of_a_batch_norm():
    text = "network n { input x: 2x3x3 norm = batch_norm(x) f = linear(global_avg_pool(norm), features=2) }"
    network = parse_network_text(f"{text} numeric {{ activations = 7 bits gradients = 5 bits }}", "n.bp", None)
    module = parse_module(compile_training(network, TARGET, TrainingOptions(BATCH)).ir, "n.mlir")
    needed = {op.label.data: op.needed.data for op in module.walk() if isinstance(op, ChannelSumsOp)}
    count = BATCH * 9
    assert needed["norm.sums"] == signed_bits(count * 64**2)
    assert needed["norm.grad.sums"] == signed_bits(count * 64 * 16)


def test_widths_of_numbers():
    assert [signed_bits(value) for value in (0, 1, -1, 127, 128, -128, -129)] == [1, 2, 1, 8, 9, 8, 9]

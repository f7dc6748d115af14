"""The stages together: the program computes what the graph says, and the compilation holds all that is asked for."""

import json
from pathlib import Path

import numpy as np
import pytest

from binpoint.backends.float_reference import run_float
from binpoint.compiler.dump import DumpDirectory
from binpoint.compiler.frontends.dsl.parser import parse_network, parse_network_text
from binpoint.compiler.parameters import draw_parameters
from binpoint.compiler.pass_registry import PASSES
from binpoint.compiler.pipeline import CompileOptions, compile_network, lower_network
from binpoint.dialect.text import parse_module, print_module
from binpoint.scheduling.document import print_schedule
from binpoint.support.diagnostics import UserError
from binpoint.support.target import Allocation, Strategy, Target
from tests.compiler.frontends.onnx.conftest import evaluate
from tests.programs import TARGET

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "networks").glob("*.bp"))

EVERY_LAYER = """
network every {
  input image: 4x9x8 { scale = 1/255 mean = 0.5 deviation = 0.25 }
  conv = conv2d(image, channels=6, kernel=3x2, stride=2x1, padding=[1, 0, 2, 1], groups=2, dilation=1x2)
  norm = batch_norm(conv)
  act = relu(norm)
  deep = depthwise(act, kernel=3, multiplier=2, padding=1, bias=false)
  six = relu6(deep)
  apart = batch_norm(six, epsilon=0.01)
  pooled = max_pool(apart, kernel=2, padding=1)
  mean = avg_pool(pooled, kernel=3, stride=2, padding=1)
  counted = avg_pool(pooled, kernel=3, stride=2, padding=1, include_padding=true)
  sum = add(mean, counted)
  leaky = leaky_relu(sum, slope=0.125)
  up = upsample(leaky, scale=2x3)
  sized = resize(up, size=3x3)
  joined = concat(sized, resize(pooled, size=3x3))
  gated = sigmoid(joined)
  shaped = reshape(flatten(gated), shape=8x9x3)
  biggest = global_max_pool(shaped)
  average = global_avg_pool(shaped)
  fc = linear(average, features=7)
  same = flatten(fc)
  soft = softmax(same)
  output soft, biggest, up
}
"""


def random_parameters(network):
    random = np.random.default_rng(5)
    return {
        name: (random.uniform(0.5, 2, shape) if name.endswith("variance") else random.normal(size=shape)).astype(
            np.float32
        )
        for name, shape in network.parameter_shapes().items()
    }


def test_the_program_computes_what_the_graph_says():
    network = parse_network_text(EVERY_LAYER, "every.bp", None)
    parameters = random_parameters(network)
    compilation = compile_network(network, parameters, TARGET)
    images = {"image": np.random.default_rng(6).normal(size=(3, 4, 9, 8)).astype(np.float32)}
    outputs = run_float(compilation.program, compilation.floats, images, np.float64)
    expected = evaluate(network, parameters, images)
    assert len(compilation.program.outputs) == len(expected) == 3
    for name, values in zip(compilation.program.outputs, expected, strict=True):
        np.testing.assert_allclose(outputs[name], values, rtol=1e-5, atol=1e-6)


def test_every_layer_is_computed_by_one_kernel():
    network = parse_network_text(EVERY_LAYER, "every.bp", None)
    program = lower_network(network, TARGET)
    computed = [layer for call in program.calls for layer in call.fused]
    assert sorted(computed) == sorted(network.layers)
    assert [call.fused for call in program.calls if len(call.fused) > 1] == [
        ("conv", "norm", "act"),
        ("deep", "six"),
        ("sum", "leaky"),
        ("shaped", "shaped.flatten"),
        ("fc", "same"),
    ]


def test_a_compilation_holds_everything():
    network = parse_network_text(EVERY_LAYER, "every.bp", None)
    compilation = compile_network(network, draw_parameters(network, 0), TARGET, CompileOptions(batch=5))
    assert print_module(parse_module(compilation.fx, "fx.mlir")) == compilation.fx
    assert compilation.nn.startswith("builtin.module {\n  nn.network @every numeric = <")
    assert compilation.program == lower_network(network, TARGET)
    assert set(compilation.parameters.mantissas) == set(compilation.floats)
    assert compilation.schedule.images == 5
    assert compilation.edited is None
    assert {timing.stage for timing in compilation.timings} == {"nn", "parameters", "fx", "kernels", "schedule"}
    assert set(PASSES) <= {timing.step for timing in compilation.timings}
    accumulating = {call.spec.name for call in compilation.program.calls if not call.spec.exact}
    assert {proof.kernel for proof in compilation.proofs} == accumulating
    artifact = compilation.artifact()
    assert (artifact.ir, artifact.batch, artifact.schedule) == (compilation.fx, 5, None)


def test_first_exponents_of_the_user_reach_the_artifact():
    text = "network n { input x: 3\n y = relu(linear(x, features=2)) }\nnumeric { exponents { x = -6  y = -5 } }"
    network = parse_network_text(text, "n.bp", None)
    artifact = compile_network(network, draw_parameters(network, 0), TARGET).artifact()
    kernel = artifact.program.calls[0].spec.name
    assert artifact.exponents["x"] == -6
    assert artifact.exponents[kernel] == -5


def test_an_edited_schedule_is_obeyed(tmp_path):
    network = parse_network_text("network n { input x: 3\n y = linear(x, features=2) }", "n.bp", None)
    parameters = draw_parameters(network, 0)
    plain = compile_network(network, parameters, TARGET, CompileOptions(batch=2))
    edited = tmp_path / "edited.json"
    document = json.loads(print_schedule(plain.schedule, TARGET, {}))
    document["layers"][0]["pe"][0][0] = 7
    edited.write_text(json.dumps(document))
    compilation = compile_network(network, parameters, TARGET, CompileOptions(edited_schedule=edited))
    assert compilation.schedule.layers[0].pe[0][0] == 7
    assert compilation.artifact().schedule == compilation.edited
    assert compilation.artifact().batch == 2


@pytest.mark.parametrize(
    ("numeric", "target", "code"),
    [
        ("activations = 16 bits", Target("narrow", 4, (2, 2), (0,), register_bits=8), "wide-operand"),
        ("accumulators = 48 bits", TARGET, "wide-accumulator"),
        ("exponent = block<4x4>  blocks = analyse(positions = [200])", TARGET, "exponent-out-of-range"),
    ],
)
def test_what_does_not_fit_is_refused(numeric, target, code):
    text = f"network n {{ input x: 3\n y = linear(x, features=2) }}\nnumeric {{ {numeric} }}"
    network = parse_network_text(text, "n.bp", None)
    with pytest.raises(UserError) as caught:
        lower_network(network, target)
    assert {diagnostic.code for diagnostic in caught.value.diagnostics} == {code}
    with pytest.raises(UserError):
        compile_network(network, draw_parameters(network, 0), target)


def test_a_target_without_statistics_compiles_with_a_warning():
    target = Target("blind", 4, (2, 2), (), allocation=Allocation(Strategy.ROTATED))
    network = parse_network_text("network n { input x: 3\n y = linear(x, features=2) }", "n.bp", None)
    compilation = compile_network(network, draw_parameters(network, 0), target)
    assert [each.code for each in compilation.missing] == ["missing-statistics"]
    assert not any(call.spec.statistics for call in compilation.program.calls)


def test_the_target_decides_the_accumulators():
    target = Target("wide", 4, (2, 2), (0,), ("lsb",), accumulator_bits=48, accumulator_wraps=True)
    text = "network n { input x: 3\n y = linear(x, features=2) }\nnumeric { update = lsb-min }"
    program = lower_network(parse_network_text(text, "n.bp", None), target)
    accumulator = program.calls[0].spec.accumulator
    assert (accumulator.bits, accumulator.wraps, accumulator.can_overflow) == (48, True, False)


def test_a_dump_shows_every_pass(tmp_path):
    network = parse_network_text(EVERY_LAYER, "every.bp", None)
    dump = DumpDirectory(tmp_path / "dump")
    compilation = compile_network(network, draw_parameters(network, 0), TARGET, CompileOptions(watch=dump))
    dump.write_times(compilation.timings)
    files = sorted(path.name for path in dump.directory.iterdir())
    names = ["network.bp", "nn.mlir", *(f"{name}.mlir" for name in PASSES), "schedule.json"]
    assert files == [*(f"{number:02}-{name}" for number, name in enumerate(names)), "times.json"]
    assert (dump.directory / "10-outline-kernels.mlir").read_text() == compilation.fx
    assert parse_network(dump.directory / "00-network.bp").shapes == network.shapes
    steps = [entry["step"] for entry in json.loads((dump.directory / "times.json").read_text())]
    assert steps == [timing.step for timing in compilation.timings]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_lower(path):
    network = parse_network(path)
    program = lower_network(network, TARGET)
    assert len(program.outputs) == len(network.outputs)
    assert not any(call.spec.accumulator.can_overflow for call in program.calls)

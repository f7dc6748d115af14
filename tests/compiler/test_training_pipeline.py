"""Compiling for training: what follows from a network, in the program that is read back from the IR."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase as Stage
from hypothesis import given, note, settings

from binpoint.backends.float_training import FloatTraining
from binpoint.backends.gradients import ChannelAffine, ReluGradient, SumsSpec
from binpoint.backends.kernel import Add
from binpoint.backends.training_from_ir import training_program_from_module
from binpoint.backends.training_program import (
    BatchNormBackwardStep,
    BatchNormForwardStep,
    KernelStep,
    LossStep,
    ParameterFormat,
    Phase,
    SumsStep,
    UpdateStep,
)
from binpoint.compiler.dump import DumpDirectory
from binpoint.compiler.frontends.dsl.parser import parse_network, parse_network_text
from binpoint.compiler.frontends.dsl.printer import print_network
from binpoint.compiler.parameters import draw_parameters
from binpoint.compiler.pass_registry import TRAINING_PASSES
from binpoint.compiler.training_pipeline import TrainingOptions, compile_training
from binpoint.dialect.text import parse_module
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import FixedConstant, Rounding, TensorClass
from binpoint.support.target import Target
from tests.compiler.frontends.dsl.test_printer import networks
from tests.programs import TARGET
from tests.trainable import EVERY_LAYER, with_head

EXAMPLES = Path(__file__).parents[2] / "examples" / "networks"


def compiled(text, options=None, target=TARGET):
    return compile_training(parse_network_text(text, "net.bp", None), target, options)


def program(layers, numeric="", options=None):
    return compiled(f"network net {{ {layers} }} numeric {{ {numeric} }}", options).program


def kernels(found):
    """The kernels of a program by name."""
    return {step.call.spec.name: step.call for step in found.steps if isinstance(step, KernelStep)}


def check_flow(found):
    """Every step reads what earlier steps wrote; what has an exponent of its own has a format; names are unique."""
    maps = {declared.name for declared in found.inputs}
    parameters = {parameter.name for parameter in found.parameters}
    known, sums, updated, written = set(parameters), set(), [], []
    phases = [step.phase for step in found.steps if isinstance(step, KernelStep | SumsStep)]
    assert phases == sorted(phases, key=list(Phase).index)
    for step in found.steps:
        match step:
            case KernelStep(call=call):
                assert set(call.inputs) <= maps
                assert {call.weight, call.bias} - {None} <= known
                maps.add(call.spec.name)
                written.append(call.spec.name)
                assert (call.spec.name in found.formats) == (not call.spec.exact)
                assert [each.bits for each in call.spec.inputs] == [bits_of(found, name) for name in call.inputs]
            case SumsStep():
                assert set(step.inputs) <= maps
                sums.add(step.name)
            case LossStep():
                assert step.logits == found.logits
                maps.add(step.gradient)
                written.append(step.gradient)
            case BatchNormForwardStep() | BatchNormBackwardStep():
                assert step.sums in sums
                known |= {step.weight, step.bias}
                if isinstance(step, BatchNormBackwardStep):
                    maps |= {f"{step.layer}.gamma.grad", f"{step.layer}.beta.grad"}
            case UpdateStep():
                assert f"{step.parameter}.grad" in maps
                updated.append(step.parameter)
    assert sorted(updated) == sorted(parameters)
    assert len(set(written)) == len(written)
    assert {name for name in found.formats if found.formats[name].bits < 2} == set()


def bits_of(found, name):
    """The width of a feature map; an exact kernel's is that of its last operand."""
    while name not in found.formats:
        name = kernels(found)[name].inputs[-1]
    return found.formats[name].bits


def test_every_layer_kind():
    compilation = compiled(EVERY_LAYER, TrainingOptions(4, Fraction(9, 10), Fraction(1, 2000), 2))
    assert training_program_from_module(parse_module(compilation.ir, "every.mlir")) == compilation.program
    check_flow(compilation.program)
    assert compilation.program.batch == 4
    accumulating = {name for name, call in kernels(compilation.program).items() if not call.spec.exact}
    assert {proof.kernel for proof in compilation.proofs} == accumulating
    assert not any(proof.overflow_possible for proof in compilation.proofs)
    assert {timing.stage for timing in compilation.timings} == {"nn", "fx", "kernels"}


def test_gradients_are_those_of_the_loss():
    """One step of plain SGD at rate 1 in float64 moves each parameter by its gradient: compare with differences."""
    network = parse_network_text(EVERY_LAYER, "net.bp", None)
    found = compile_training(network, TARGET).program
    random = np.random.default_rng(2)
    start = {
        name: values + random.normal(size=values.shape) / 3 for name, values in draw_parameters(network, 1).items()
    }
    images = {"image": random.normal(size=(3, 4, 9, 8))}
    labels = np.array([4, 0, 2])

    def step(changed):
        training = FloatTraining(found, start | changed, start, np.float64)
        return training.step(images, labels, FixedConstant(1, 0)).loss, training.parameters

    _, moved = step({})
    for name, after in moved.items():
        gradient = (start[name].reshape(after.shape) - after).reshape(start[name].shape)
        for index in random.choice(gradient.size, min(3, gradient.size), replace=False):
            nudge = np.zeros(gradient.size)
            nudge[index] = 1e-5
            nudge = nudge.reshape(gradient.shape)
            difference = step({name: start[name] + nudge})[0] - step({name: start[name] - nudge})[0]
            np.testing.assert_allclose(gradient.flat[index], difference / 2e-5, rtol=1e-4, atol=1e-8, err_msg=name)


@given(network=networks())
@settings(max_examples=25, deadline=None, phases=[Stage.explicit, Stage.reuse, Stage.generate])
def test_any_network_with_a_head(network):
    network = with_head(network)
    note(print_network(network))
    codes: set[str] = set()
    try:
        check_flow(compile_training(network, TARGET).program)
    except UserError as error:
        codes = {each.code for each in error.diagnostics}
    # What no kernel of this version computes with, and a layer's range without the exponent that the network gives.
    assert codes <= {"unsupported-granularity", "wide-operand", "wide-accumulator", "exponent-out-of-range"}


def test_names_and_formats():
    found = program(
        "input x: 2x4x4 c = conv2d(x, channels=3, kernel=3, padding=1) r = relu(c) p = max_pool(r, kernel=2) "
        "f = linear(flatten(p), features=5)",
        "activations = 6 bits weights = 5 bits biases = 12 bits gradients = 7 bits weight_gradients = 14 bits "
        "master_weights = 20 bits rounding = stochastic",
        TrainingOptions(momentum=Fraction(9, 10)),
    )
    names = [*kernels(found)]
    assert names[4:] == [
        "f.bias.grad",
        "f.weight.grad",
        "f.flatten.grad",
        "p.grad",
        "c.grad",
        "c.acc.grad",
        "c.bias.grad",
        "c.weight.grad",
    ]
    formats = {name: (each.tensor_class, each.bits) for name, each in found.formats.items()}
    assert formats == {
        "x": (TensorClass.ACTIVATIONS, 6),
        "c": (TensorClass.ACTIVATIONS, 6),
        "f": (TensorClass.ACTIVATIONS, 6),
        "f.grad": (TensorClass.GRADIENTS, 7),
        "f.flatten.grad": (TensorClass.GRADIENTS, 7),
        "c.grad": (TensorClass.GRADIENTS, 7),
        **{f"{name}.{part}.grad": (TensorClass.WEIGHT_GRADIENTS, 14) for name in "cf" for part in ("weight", "bias")},
        **{f"{name}.weight": (TensorClass.WEIGHTS, 5) for name in "cf"},
        **{f"{name}.bias": (TensorClass.BIASES, 12) for name in "cf"},
        **{
            f"{name}.{part}.{kept}": (TensorClass.MASTER_WEIGHTS, 20)
            for name in "cf"
            for part in ("weight", "bias")
            for kept in ("master", "velocity")
        },
    }
    assert found.parameters[0] == ParameterFormat("c.weight", (3, 2, 3, 3), 5, 20)
    assert found.parameters[1] == ParameterFormat("c.bias", (3,), 12, 20)
    assert {step.rounding for step in found.steps if isinstance(step, UpdateStep)} == {Rounding.STOCHASTIC}
    (loss,) = [step for step in found.steps if isinstance(step, LossStep)]
    assert loss == LossStep("f", "f.grad", 7)


def test_optimisers():
    layers = "input x: 4 f = linear(x, features=3)"
    plain, momentum = (
        program(layers),
        program(layers, options=TrainingOptions(2, Fraction(9, 10), Fraction(5, 10000), 7)),
    )
    (weight, bias) = [step.spec for step in momentum.steps if isinstance(step, UpdateStep)]
    assert (weight.momentum, weight.decay) == (FixedConstant(58982, 16), FixedConstant(33554, 26))
    assert (bias.momentum, bias.decay) == (FixedConstant(58982, 16), None)
    assert (weight.velocity_bits, weight.working_bits, weight.gradient_bits) == (16, 8, 16)
    assert next(step for step in momentum.steps if isinstance(step, LossStep)).scale_exponent == 7
    (weight, bias) = [step.spec for step in plain.steps if isinstance(step, UpdateStep)]
    assert (weight.momentum, weight.decay, weight.velocity_bits) == (None, None, None)
    assert "f.weight.velocity" not in plain.formats


def test_layers_differ():
    found = program(
        "input x: 4 a = linear(x, features=3) b = relu(a) c = linear(b, features=3)",
        "layer a { gradients = 6 bits weight_gradients = 9 bits master_weights = 24 bits rounding = floor } "
        "layer c { gradients = 5 bits update.gradients = msb-max }",
    )
    assert found.formats["a.grad"].bits == 6
    assert found.formats["c.grad"].bits == 5
    assert found.formats["c.grad"].policy.update.rule == "msb-max"
    assert found.formats["a.weight.grad"].bits == 9
    assert found.formats["a.weight.master"].bits == 24
    assert found.formats["c.weight.grad"].bits == 16
    assert kernels(found)["a.grad"].spec.rounding is Rounding.FLOOR
    rounding = {step.parameter: step.rounding for step in found.steps if isinstance(step, UpdateStep)}
    assert (rounding["a.weight"], rounding["c.weight"]) == (Rounding.FLOOR, Rounding.HALF_EVEN)


def test_a_residual_sums_what_its_readers_hand_back():
    found = kernels(
        program(
            "input x: 4x4x4 a = conv2d(x, channels=4, kernel=1) b = conv2d(a, channels=4, kernel=1) s = add(a, b) "
            "r = relu(s) f = linear(global_avg_pool(r), features=3)"
        )
    )
    # The sum hands its own gradient, behind the relu, to both operands: nothing is copied.
    assert isinstance(found["s.acc.grad"].spec.operation, ReluGradient)
    assert found["b.weight.grad"].inputs == ("a", "s.acc.grad")
    assert found["a.grad.b"].inputs == ("s.acc.grad",)
    assert isinstance(found["a.grad"].spec.operation, Add)
    assert found["a.grad"].inputs == ("s.acc.grad", "a.grad.b")
    assert found["a.weight.grad"].inputs == ("x", "a.grad")


def test_batch_norm_trains():
    found = program(
        "input x: 3x4x4 c = conv2d(x, channels=4, kernel=1, bias=false) n = batch_norm(c, epsilon=0.25) r = relu(n) "
        "m = batch_norm(r) f = linear(global_avg_pool(m), features=3)"
    )
    calls = kernels(found)
    assert calls["n"].fused == ("n", "r")
    assert calls["n"].spec.operation == ChannelAffine(16, 16)
    assert (calls["n"].inputs, calls["n"].weight, calls["n"].bias) == (("c",), "n.scale", "n.shift")
    backward = calls["c.grad"]
    assert (backward.inputs, backward.weight, backward.bias) == (("n.acc.grad", "c"), "n.grad.scale", "n.grad.shift")
    forward, *_ = [step for step in found.steps if isinstance(step, BatchNormForwardStep)]
    assert (forward.layer, forward.source, forward.sums, forward.epsilon) == ("n", "c", "n.sums", Fraction(1, 4))
    *_, last = [step for step in found.steps if isinstance(step, BatchNormBackwardStep)]
    assert (last.layer, last.source, last.gradient, last.sums) == ("n", "c", "n.acc.grad", "n.grad.sums")
    sums = {step.name: step for step in found.steps if isinstance(step, SumsStep)}
    maps = calls["n"].spec.inputs[0]
    assert sums["n.sums"].spec == SumsSpec("n.sums", (maps,), ((0,), (0, 0)))
    assert sums["n.grad.sums"].spec.terms == ((1,), (1, 0))
    assert sums["n.grad.sums"].inputs == ("c", "n.acc.grad")
    assert found.formats["n.scale"].tensor_class is TensorClass.WEIGHTS
    assert found.formats["n.gamma.grad"].tensor_class is TensorClass.WEIGHT_GRADIENTS
    assert {"n.gamma", "n.beta"} < {parameter.name for parameter in found.parameters}
    assert not any(name.endswith((".mean", ".variance")) for name in found.formats)


def test_a_batch_norm_of_the_input_has_no_data_gradient():
    found = program("input x: 3x2x2 n = batch_norm(x) f = linear(global_avg_pool(n), features=3)")
    assert "x.grad" not in kernels(found)
    assert any(isinstance(step, BatchNormBackwardStep) for step in found.steps)


def test_what_lies_before_all_parameters_or_beside_the_loss_has_no_gradient():
    found = kernels(compiled(EVERY_LAYER).program)
    assert "pre" in found
    assert not {name for name in found if name.startswith(("pre.grad", "image.grad", "aside"))}


def test_activations_behind_nothing_to_fuse_with():
    found = kernels(
        program(
            "input x: 4 f = linear(x, features=3) s = sigmoid(f) r = relu(s) q = relu6(r) l = leaky_relu(q) "
            "g = linear(l, features=2)"
        )
    )
    assert [name for name in found if name.endswith(".grad") and "weight" not in name and "bias" not in name] == [
        "l.grad",
        "q.grad",
        "r.grad",
        "s.grad",
        "f.grad",
    ]


def test_proofs_hold_for_the_batch():
    layers = "input x: 4 f = linear(x, features=3)"
    needed = {}
    for batch in (1, 1024):
        compilation = compiled(f"network net {{ {layers} }}", TrainingOptions(batch))
        needed[batch] = {proof.kernel: proof.needed_bits for proof in compilation.proofs}
    assert needed[1]["f.weight.grad"] == 16
    assert needed[1024]["f.weight.grad"] == 26
    assert needed[1]["f"] == needed[1024]["f"]


def test_the_target_decides_accumulators_statistics_and_coefficients():
    target = Target("small", 4, (2, 2), (), register_bits=8, accumulator_bits=48, accumulator_wraps=True)
    text = "network net { input x: 3x2x2 n = batch_norm(x) f = linear(global_avg_pool(n), features=3) }"
    compilation = compiled(text, target=target)
    calls = kernels(compilation.program)
    accumulators = {call.spec.accumulator for call in calls.values() if not call.spec.exact}
    assert {(each.bits, each.wraps) for each in accumulators} == {(48, True)}
    assert not any(call.spec.statistics for call in calls.values())
    assert calls["n"].spec.operation == ChannelAffine(8, 16)
    assert [each.code for each in compilation.missing] == ["missing-statistics"]


REFUSALS = {
    "two outputs": ("a = linear(x, features=3) b = linear(x, features=3) output a, b", "no-single-loss"),
    "two losses": ("a = cross_entropy(x) b = cross_entropy(a)", "no-single-loss"),
    "no parameters": ("a = relu(x)", "nothing-to-train"),
    "the input as logits": ("a = cross_entropy(x)", "nothing-to-train"),
    "a softmax within": ("a = linear(softmax(linear(x, features=3)), features=3)", "no-gradient"),
    "a map as logits": ("a = conv2d(reshape(x, shape=1x2x2), channels=3, kernel=1)", "no-vector"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    layers, code = REFUSALS[name]
    with pytest.raises(UserError) as caught:
        program(f"input x: 4 {layers}")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code
    assert diagnostic.location.file == "net.bp"


def test_gradients_must_fit_the_registers():
    target = replace(TARGET, register_bits=8)
    with pytest.raises(UserError, match="16-bit gradients do not fit"):
        compiled("network net { input x: 4 f = linear(x, features=3) } numeric { gradients = 16 bits }", target=target)


def test_a_dump_shows_every_pass(tmp_path):
    dump = DumpDirectory(tmp_path / "dump")
    compilation = compiled(EVERY_LAYER, TrainingOptions(watch=dump))
    names = ["network.bp", "nn.mlir", *(f"{name}.mlir" for name in TRAINING_PASSES)]
    assert sorted(path.name for path in dump.directory.iterdir()) == [f"{i:02}-{name}" for i, name in enumerate(names)]
    assert (dump.directory / "10-insert-statistics.mlir").read_text() == compilation.ir
    assert compilation.nn == (dump.directory / "03-canonicalize.mlir").read_text()


@pytest.mark.parametrize("name", ["lenet", "mlp", "resnet18"])
def test_examples(name):
    network = parse_network(EXAMPLES / f"{name}.bp")
    compilation = compile_training(network, TARGET)
    check_flow(compilation.program)
    trained = {parameter.name for parameter in compilation.program.parameters}
    statistics = {name for name in network.parameter_shapes() if name.endswith((".mean", ".variance"))}
    assert trained == set(network.parameter_shapes()) - statistics

"""A verified module of training as a program; what no kernel computes is refused with its place."""

from fractions import Fraction

import pytest

from binpoint.backends.gradients import (
    AveragePoolGradient,
    BiasGradient,
    ChannelAffine,
    ChannelSlice,
    ClipGradient,
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    LeakyReluGradient,
    MaxPoolGradient,
    ReluGradient,
    ResizeGradient,
    SigmoidGradient,
    SumsSpec,
    UpdateSpec,
    result_rows,
)
from binpoint.backends.kernel import Accumulator, AveragePool, Convolution, MaxPool, TensorSpec
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
from binpoint.dialect.text import parse_module
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import FixedConstant, Rounding, TensorClass
from tests.dialect.texts import FX, TRAINING

MAP = TensorSpec(4, 8, 8, 8)


@pytest.fixture(scope="module")
def program():
    return read(TRAINING)


def read(text):
    return training_program_from_module(parse_module(text, "small.mlir"))


def calls(program):
    return {step.call.spec.name: step.call for step in program.steps if isinstance(step, KernelStep)}


def test_operations(program):
    strided = Convolution((3, 3), (2, 2), (1, 1, 1, 1), groups=2)
    assert {name: call.spec.operation for name, call in calls(program).items() if name.endswith(".grad")} == {
        "fc.weight.grad": ConvolutionWeightGradient(Convolution((1, 1))),
        "fc.bias.grad": BiasGradient(),
        "vector.grad": ConvolutionDataGradient(Convolution((1, 1))),
        "sigmoid.grad": SigmoidGradient(),
        "leaky.grad": LeakyReluGradient(FixedConstant(205, 11)),
        "relu.grad": ReluGradient(),
        "clip.grad": ClipGradient(FixedConstant(192, 5)),
        "part.grad": ChannelSlice(2),
        "resize.grad": ResizeGradient(),
        "max.grad": MaxPoolGradient(MaxPool((3, 3), (2, 2), (1, 1, 1, 1))),
        "mean.grad": AveragePoolGradient(AveragePool((2, 2), (2, 2))),
        "conv.weight.grad": ConvolutionWeightGradient(strided),
        "conv.grad": ConvolutionDataGradient(strided),
        "image.grad": ChannelAffine(16, 16),
    }


def test_a_gradient_of_a_parameter_has_output_channels_as_rows(program):
    filters, bias = calls(program)["conv.weight.grad"], calls(program)["fc.bias.grad"]
    assert (filters.inputs, filters.spec.output) == (("image", "dconv"), TensorSpec(2, 3, 3, 16))
    assert (bias.inputs, bias.spec.output) == (("fc.grad",), TensorSpec(1, 1, 1, 16))
    assert [result_rows(call.spec, 4) for call in (filters, bias)] == [6, 3]
    assert filters.spec.accumulator == Accumulator(40, False, False)
    assert (filters.spec.statistics, bias.spec.statistics) == (True, False)


def test_a_gradient_of_data_reads_forward_weights(program):
    call = calls(program)["conv.grad"]
    assert (call.inputs, call.weight, call.bias, call.spec.output) == (("dconv",), "conv.weight", None, MAP)
    assert call.spec.rounding is Rounding.STOCHASTIC
    # Without a proof, overflow counts as possible.
    assert call.spec.accumulator.can_overflow


def test_steps_in_order(program):
    found = [step for step in program.steps if not isinstance(step, KernelStep)]
    momentum, decay = FixedConstant(58982, 16), FixedConstant(33554, 26)
    assert found == [
        SumsStep(Phase.FORWARD, "norm.sums", SumsSpec("norm.sums", (MAP,), ((0,), (0, 0))), ("image",)),
        BatchNormForwardStep(
            "norm", "image", "norm.sums", "norm.scale", "norm.shift", 16, 16, Fraction(1, 1000), Fraction(1, 5)
        ),
        LossStep("fc", "fc.grad", 8, -3),
        SumsStep(
            Phase.BACKWARD,
            "norm.grad.sums",
            SumsSpec("norm.grad.sums", (MAP, MAP), ((1,), (1, 0))),
            ("image", "resize.grad"),
        ),
        BatchNormBackwardStep(
            "norm", "image", "resize.grad", "norm.grad.sums", "norm.grad.scale", "norm.grad.shift", 16, 16, 12
        ),
        UpdateStep("conv.weight", UpdateSpec("conv.weight", 16, 16, 16, 8, momentum, decay), Rounding.STOCHASTIC),
        UpdateStep("fc.weight", UpdateSpec("fc.weight", 16, 16, None, 8, None, decay)),
    ]
    assert (program.name, program.batch, program.logits) == ("small", 4, "fc")
    assert program.parameters == (
        ParameterFormat("conv.weight", (6, 2, 3, 3), 8, 16),
        ParameterFormat("fc.weight", (3, 5, 1, 1), 8, 16),
    )


def test_batch_norm_kernels_read_what_the_host_wrote(program):
    forward, backward = calls(program)["norm"], calls(program)["image.grad"]
    assert (forward.inputs, forward.weight, forward.bias) == (("image",), "norm.scale", "norm.shift")
    assert (backward.inputs, backward.weight, backward.bias) == (
        ("resize.grad", "image"),
        "norm.grad.scale",
        "norm.grad.shift",
    )


def test_formats(program):
    classes = {name: (found.tensor_class, found.bits) for name, found in program.formats.items()}
    assert classes["image"] == (TensorClass.ACTIVATIONS, 8)
    assert classes["fc.grad"] == (TensorClass.GRADIENTS, 8)
    assert classes["conv.weight.grad"] == (TensorClass.WEIGHT_GRADIENTS, 16)
    assert classes["norm.gamma.grad"] == (TensorClass.WEIGHT_GRADIENTS, 12)
    assert classes["norm.scale"] == classes["norm.grad.scale"] == (TensorClass.WEIGHTS, 16)
    assert classes["norm.shift"] == (TensorClass.BIASES, 16)
    assert classes["conv.weight"] == (TensorClass.WEIGHTS, 8)
    assert classes["conv.weight.master"] == classes["conv.weight.velocity"] == (TensorClass.MASTER_WEIGHTS, 16)
    assert "relu.grad" not in classes
    assert program.formats["resize.grad"].policy.update.rule == "msb-histogram"
    assert program.formats["norm.grad.scale"].policy.update.rule == "msb-max"


MAP_TYPE = "!fx.tensor<?x6x4x4, 8b, exp = tensor>"

REFUSALS = {
    "exponents of channels": (MAP_TYPE, MAP_TYPE.replace("tensor>", "channel>"), "one exponent per tensor"),
    "wide gradients": (MAP_TYPE, MAP_TYPE.replace("8b", "24b"), "2 to 16 bits"),
    "other reciprocals": ("[1/4 = 128]", "[1/4 = 127]", "[1/4 = 128]"),
    "narrow accumulators": ("wrap : !fx.acc<?x5x1x1, 40b>", "wrap : !fx.acc<?x5x1x1, 24b>", "32 to 64 bits"),
    "sums of something else": ("(%sums, %grad.sums, %gamma)", "(%sums, %sums, %gamma)", "[1, 1 * 0]"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    before, after, expected = REFUSALS[name]
    assert TRAINING.count(before) == 1, "the change must hit one place"
    with pytest.raises(UserError) as caught:
        read(TRAINING.replace(before, after))
    diagnostic = caught.value.diagnostics[0]
    assert expected in (diagnostic.expected or diagnostic.hint)
    assert diagnostic.location.line is not None


MISNAMED = {
    "a master": ('"conv.weight.master"', '"conv.master"', "no parameters called conv.weight, conv.weight.master"),
    "an update": ('fx.update "conv.weight"', 'fx.update "conv"', "no parameters called conv, conv.master"),
    "a gradient": ('fx.kernel "fc.weight.grad"', 'fx.kernel "fc.w.grad"', "not updated by its gradient"),
}


@pytest.mark.parametrize("name", MISNAMED)
def test_names_that_say_something_else(name):
    before, after, message = MISNAMED[name]
    assert TRAINING.count(before) == 1, "the change must hit one place"
    with pytest.raises(UserError, match=message):
        read(TRAINING.replace(before, after))


def test_a_kernel_over_a_parameter():
    text = TRAINING.replace(
        "    fx.phase loss\n",
        """    %k = fx.kernel "k" layers = ["k"] {
      %90 = fx.widen (%gamma) on_overflow = saturate : !fx.acc<4, 40b>
      %91 = fx.quantize (%90) rounding = floor, exponent = <fixed> : !fx.tensor<4, 16b, exp = tensor>
      fx.yield (%91)
    } : !fx.tensor<4, 16b, exp = tensor>
    fx.phase loss
""",
    )
    with pytest.raises(UserError, match="is no feature map"):
        read(text)


def test_masters_of_many_bits():
    assert read(TRAINING.replace("<6x2x3x3, 16b", "<6x2x3x3, 32b")).parameters[0].master_bits == 32


def test_a_program_that_updates_nothing():
    with pytest.raises(UserError, match="the program has no update") as caught:
        read(TRAINING[: TRAINING.index("    fx.phase update")] + "  }\n}\n")
    assert caught.value.diagnostics[0].hint == "run differentiate and insert-updates"


def test_a_program_without_a_loss():
    with pytest.raises(UserError, match="the program has no loss"):
        read(TRAINING[: TRAINING.index("    fx.phase loss")] + "  }\n}\n")


def test_operations_outside_of_kernels():
    line = "    %z = fx.relu_gradient (%norm, %image) : !fx.tensor<?x4x8x8, 8b, exp = tensor>\n"
    text = TRAINING.replace("    fx.phase loss\n", f"{line}    fx.phase loss\n")
    with pytest.raises(UserError, match="stands outside of a kernel"):
        read(text)


def test_other_modules():
    with pytest.raises(UserError) as caught:
        read(FX)
    assert caught.value.diagnostics[0].hint == "run lower-nn-to-training and the passes after it"

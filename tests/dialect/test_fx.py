"""Verifiers of the fx dialect: each rule, by one change to a program that verifies."""

import pytest

from binpoint.dialect.text import parse_module
from binpoint.support.diagnostics import UserError
from tests.dialect.texts import FX

POLICY = "<msb-histogram, r_max = 1/50000, range = [-128, 127]>"

OUT = ": !fx.tensor<?x6x6x6, 8b, exp = tensor>\n      fx.yield (%3)"

FAULTS = {
    "quantize of mantissas": ("fx.quantize (%2)", "fx.quantize (%image)", "fx.acc"),
    "an activation on mantissas": ("fx.leaky_relu (%1)", "fx.leaky_relu (%image)", "fx.acc"),
    "a convolution of accumulators": ("fx.add (%max, %max)", "fx.add (%0, %max)", "is not defined"),
    "another shape than follows": (
        "needed = 20b : !fx.acc<?x6x6x6",
        "needed = 20b : !fx.acc<?x6x8x8",
        "the result is 6x8x8",
    ),
    "another type after an activation": (
        "2^-11 : !fx.acc<?x6x6x6, 40b>",
        "2^-11 : !fx.acc<?x6x6x6, 48b>",
        "expected !fx.acc",
    ),
    "another shape after quantisation": (OUT, OUT.replace("?x6x6x6", "?x6x6x5"), "the result is 6x6x5"),
    "filters over other channels": ("<6x2x3x3, 8b", "<6x4x3x3, 8b", "filters over 4 channels"),
    "a bias of another length": ("tensor<6, 16b", "tensor<7, 16b", "the bias is 7"),
    "accumulators narrower than mantissas": ("48b", "12b", "12-bit accumulators of 16-bit mantissas"),
    "mantissas of 64 bits": ("<?x4x8x8, 8b", "<?x4x8x8, 64b", "a width of 64 bits, expected 2 to 32"),
    "accumulators of 1 bit": ("48b", "1b", "a width of 1 bits, expected 2 to 64"),
    "a feature map without a batch": ("!fx.tensor<?x4x8x8", "!fx.tensor<4x8x8", "is no feature map"),
    "a batch of three dimensions": ("!fx.tensor<?x4x8x8", "!fx.tensor<?x8x8", "4 dimensions"),
    "a parameter with a batch": ("!fx.tensor<6x2x3x3", "!fx.tensor<?x2x3x3", "is no parameter"),
    "sizes of nothing": ("!fx.tensor<?x4x8x8", "!fx.tensor<?x4x0x8", "sizes are at least 1"),
    "billions of elements": ("!fx.tensor<?x4x8x8", "!fx.tensor<?x65536x65536x8", "is more than 2147483648 elements"),
    "a verdict that contradicts its width": ("needed = 20b", "needed = 41b", "41 of 40 bits are needed"),
    "a verdict without a width": (", needed = 20b", "", "given together"),
    "reciprocals of other divisors": ("[1/4 = 512, ", "[", "the windows divide by [4, 6, 9]"),
    "an exact operation that narrows": (
        "6x1x1, 16b, exp = tensor>\n      fx.yield (%6)",
        "6x1x1, 8b, exp = tensor>\n      fx.yield (%6)",
        "has not the width and granularity",
    ),
    "an exact operation that regroups": (
        "16b, exp = tensor>\n      fx.yield (%6)",
        "16b, exp = channel>\n      fx.yield (%6)",
        "has not the width and granularity",
    ),
    "a step out of order": (
        "fx.stats (%2) acquires = [msb, lsb]\n",
        "%9 = fx.bias (%2, %b) : !fx.acc<?x6x6x6, 40b>\n",
        "are not in the order of a PE",
    ),
    "a step that skips one": ("fx.quantize (%2)", "fx.quantize (%1)", "does not read the step before it"),
    "a kernel that does not quantise": (
        "      %8 = fx.quantize (%7) rounding = stochastic, exponent = "
        + POLICY
        + " : !fx.tensor<?x6x1x1, 8b, exp = tensor>\n      fx.yield (%8)",
        "      fx.yield (%max)",
        "accumulates first and quantises last",
    ),
    "a kernel of two exact operations": (
        "      fx.yield (%6)",
        "      %9 = fx.reshape (%6) : !fx.tensor<?x6x1x1, 16b, exp = tensor>\n      fx.yield (%9)",
        "a kernel of its own",
    ),
    "a kernel within a kernel": (
        "      fx.yield (%6)",
        "      fx.stats (%0) acquires = [msb]\n      fx.yield (%6)",
        "is not defined",
    ),
    "a kernel of another type": ("    } : !fx.tensor<?x6x6x6, 8b", "    } : !fx.tensor<?x6x6x6, 16b", "yields"),
    "a kernel that yields its operand": ("fx.yield (%8)", "fx.yield (%max)", "does not read the step before it"),
    "a name that is taken": ('fx.kernel "max"', 'fx.kernel "pool"', 'the name "pool" is taken'),
    "an output that is a parameter": ("fx.output (%sum, %conv)", "fx.output (%w)", "is no feature map"),
    "an initial exponent out of range": ("initial = -3", "initial = -300", "outside of -128 to 127"),
}


def test_the_program_verifies():
    parse_module(FX, "small.mlir")


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_refused(name):
    before, after, message = FAULTS[name]
    assert FX.count(before) == 1, "the change must hit one place"
    with pytest.raises(UserError) as caught:
        parse_module(FX.replace(before, after), "small.mlir")
    messages = [each.message for each in caught.value.diagnostics]
    assert any(message in found for found in messages), messages


def test_a_kernel_needs_a_step():
    with pytest.raises(UserError, match="computes something and ends with"):
        parse_module(
            """fx.program @x {
              %a = fx.input "a" exponent = <fixed> : !fx.tensor<?x1x1x1, 8b, exp = tensor>
              %k = fx.kernel "k" layers = ["k"] { fx.yield (%a) } : !fx.tensor<?x1x1x1, 8b, exp = tensor>
              fx.output (%k)
            }""",
            "x.mlir",
        )


def test_a_resize_keeps_the_channels():
    with pytest.raises(UserError, match="the result is 2x4x4, expected 1x4x4"):
        parse_module(
            """fx.program @x {
              %a = fx.input "a" exponent = <fixed> : !fx.tensor<?x1x2x2, 8b, exp = tensor>
              %r = fx.resize (%a) : !fx.tensor<?x2x4x4, 8b, exp = tensor>
              fx.output (%r)
            }""",
            "x.mlir",
        )

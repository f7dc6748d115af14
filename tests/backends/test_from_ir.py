"""A verified fx module as a program; what no kernel computes is refused with its place."""

from fractions import Fraction

import pytest

from binpoint.backends.from_ir import program_from_module
from binpoint.backends.kernel import (
    Accumulator,
    Add,
    AveragePool,
    Convolution,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    TensorSpec,
)
from binpoint.backends.program import KernelCall, Program, ProgramInput
from binpoint.dialect.text import parse_module
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import ExponentRule, FixedConstant, Rounding, TensorPolicy, UpdatePolicy
from tests.dialect.texts import FX, NN

PARAMETER = TensorPolicy(UpdatePolicy(ExponentRule.MSB_MAX, Fraction(0)))
FIXED = TensorPolicy(UpdatePolicy(ExponentRule.FIXED, Fraction(0)), -3)

IMAGE, MAPS = TensorSpec(4, 8, 8, 8), TensorSpec(6, 6, 6, 8)
POOLED, LARGEST, SUM = TensorSpec(6, 3, 3, 16), TensorSpec(6, 1, 1, 16), TensorSpec(6, 1, 1, 8)

PROGRAM = Program(
    "small",
    (ProgramInput("image", IMAGE, Fraction(1, 255)),),
    (
        KernelCall(
            KernelSpec(
                "conv",
                Convolution((3, 3), groups=2, weight_bits=8, bias_bits=16),
                (IMAGE,),
                MAPS,
                LeakyRelu(FixedConstant(205, 11)),
                Accumulator(40, False, False),
            ),
            ("image",),
            "conv.weight",
            "conv.bias",
            ("conv", "leaky"),
        ),
        KernelCall(
            KernelSpec(
                "pool",
                AveragePool((3, 3), (2, 2), (1, 1, 1, 1)),
                (MAPS,),
                POOLED,
                # Without a proof, overflow counts as possible.
                accumulator=Accumulator(40, False, True),
                rounding=Rounding.FLOOR,
                statistics=False,
            ),
            ("conv",),
            fused=("pool",),
        ),
        KernelCall(
            KernelSpec("max", MaxPool((3, 3), (1, 1)), (POOLED,), LARGEST, statistics=False), ("pool",), fused=("max",)
        ),
        KernelCall(
            KernelSpec(
                "sum",
                Add(),
                (LARGEST, LARGEST),
                SUM,
                accumulator=Accumulator(48, True, True),
                rounding=Rounding.STOCHASTIC,
                statistics=False,
            ),
            ("max", "max"),
            fused=("sum",),
        ),
    ),
    ("sum", "conv"),
    {
        "image": TensorPolicy(),
        "conv.weight": PARAMETER,
        "conv.bias": PARAMETER,
        "conv": TensorPolicy(),
        "pool": FIXED,
        "sum": TensorPolicy(),
    },
)


def read(text):
    return program_from_module(parse_module(text, "small.mlir"))


def test_a_program():
    assert read(FX) == PROGRAM


REFUSALS = {
    "blocks": ("<?x4x8x8, 8b, exp = tensor>", "<?x4x8x8, 8b, exp = block<4x4>>", "blocks = <...>"),
    "channels of weights": ("<6x2x3x3, 8b, exp = tensor>", "<6x2x3x3, 8b, exp = channel>", "blocks = <...>"),
    "wide operands": ("<?x4x8x8, 8b,", "<?x4x8x8, 24b,", "2 to 16 bits"),
    "narrow accumulators": (", 48b>", ", 24b>", "32 to 64 bits"),
    "other reciprocals": ("1/9 = 228", "1/9 = 227", "1/9 = 228"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    before, after, expected = REFUSALS[name]
    assert FX.count(before) == 1, "the change must hit one place"
    with pytest.raises(UserError) as caught:
        read(FX.replace(before, after))
    diagnostic = caught.value.diagnostics[0]
    assert expected in (diagnostic.expected or diagnostic.hint)
    assert diagnostic.location.line is not None


def test_a_value_that_is_defined_later():
    # Only the generic form can say this.
    feature_map = "!fx.tensor<?x1x1x1, 8b, exp = tensor>"
    text = f"""fx.program @late {{
      %k = "fx.kernel"() <{{label = #nn.name<"k">, layers = #nn.names<["k"]>}}> ({{
        %0 = "fx.reshape"(%a) : ({feature_map}) -> {feature_map}
        fx.yield (%0)
      }}) : () -> {feature_map}
      %a = fx.input "a" exponent = <fixed> : {feature_map}
      fx.output (%k)
    }}"""
    with pytest.raises(UserError, match="no result of a kernel before it"):
        read(text)


def test_a_program_that_computes_nothing():
    text = """fx.program @idle {
      %a = fx.input "a" exponent = <fixed> : !fx.tensor<?x1x1x1, 8b, exp = tensor>
      fx.output (%a)
    }"""
    with pytest.raises(UserError, match="the program has no kernel"):
        read(text)


def test_a_tensor_leaves_once():
    assert read(FX.replace("(%sum, %conv)", "(%sum, %conv, %sum)")).outputs == ("sum", "conv")


def test_all_refusals_in_one_go():
    text = FX.replace(", 48b>", ", 24b>").replace("1/9 = 228", "1/9 = 227")
    with pytest.raises(UserError) as caught:
        read(text)
    assert [each.code for each in caught.value.diagnostics] == ["not-a-program", "unsupported-width"]


def test_other_modules():
    with pytest.raises(UserError) as caught:
        read(NN)
    assert caught.value.diagnostics[0].hint == "run lower-nn-to-fx and the passes after it"
    body = FX.split("\n", 1)[1].rsplit("}", 1)[0]
    with pytest.raises(UserError, match=r"2 of 2 operations are fx\.program"):
        read(body + body)


def test_operations_outside_of_kernels():
    text = FX.replace('fx.kernel "max" layers = ["max"] {\n', "").replace("%max = ", "")
    text = text.replace("      fx.yield (%6)\n    } : !fx.tensor<?x6x1x1, 16b, exp = tensor>\n", "")
    text = text.replace("(%max, %max)", "(%6, %6)")
    with pytest.raises(UserError) as caught:
        read(text)
    assert caught.value.diagnostics[0].hint == "run outline-kernels"

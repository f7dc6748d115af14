"""The numeric section: what it says, and its faults."""

from dataclasses import replace
from fractions import Fraction

import pytest

from binpoint.support.numeric import (
    BITS_RANGE,
    ExponentRule,
    Granularity,
    NumericPolicy,
    Rounding,
    TensorClass,
    UpdatePolicy,
)
from tests.compiler.frontends.dsl.network_texts import faults, network, parse, places


def test_all_settings():
    policy = parse(
        network(
            "conv = conv2d(x, channels=1, kernel=1)",
            "body = twice(conv)",
            rest="""
            block twice(a) { first = relu(a) return relu(first) }
            numeric {
              layer conv { activations = 16 bits  rounding = floor }
              layer body.* { weights = 4 bits }
              layer body.first { weights = 5 bits  update = fixed }
              activations = 7 bits
              accumulators = 48 bits
              exponent = channel-block<4x2>
              rounding = half-away
              update = msb+lsb(r_max = 2e-5, r_min = 1/1000) every 3
              constants = 6 bits
              exponent_range = [-32, 31]
              exponents { x = -7  conv.weight = 31 }
              exponents { body = 2 }
            }
            """,
        )
    ).numeric
    bits = {TensorClass.ACTIVATIONS: 7, TensorClass.ACCUMULATORS: 48}
    common = NumericPolicy(
        bits=bits,
        granularity=Granularity((4, 2), per_channel=True),
        rounding=Rounding.HALF_AWAY,
        update=UpdatePolicy(ExponentRule.MSB_LSB, Fraction(2, 100_000), Fraction(1, 1000), 3),
        constant_bits=6,
        exponent_range=(-32, 31),
        exponents={"x": -7, "conv.weight": 31, "body": 2},
    )
    assert policy.bits == bits
    assert policy.for_layer("somewhere") == policy
    conv, first, last = (policy.for_layer(name) for name in ("conv", "body.first", "body"))
    assert conv.bits == {**bits, TensorClass.ACTIVATIONS: 16}
    assert conv.rounding is Rounding.FLOOR
    assert first.bits == {**bits, TensorClass.WEIGHTS: 5}
    assert first.update == UpdatePolicy(ExponentRule.FIXED)
    # What shares an exponent is not copied: a layer that says it says more than one that says nothing.
    assert last == replace(common.with_bits(TensorClass.WEIGHTS, 4), granularity=None)
    assert set(policy.overrides) == {"conv", "body.first", "body"}


def test_update_policies():
    policy = parse(
        network(
            "a = relu(x) b = relu(a) c = relu(b)",
            rest="""
            numeric {
              update.gradients = msb-max(window = 16, patience = 3, headroom = 1) every 2
              update = msb-histogram(r_max = 1e-3, confidence = 0.95)
              update.weights = lsb-min(window = 4)
              layer a { update.weights = fixed }
              layer b { update.activations = msb-max  update = fixed }
            }
            """,
        )
    ).numeric
    all_classes = UpdatePolicy(r_max=Fraction(1, 1000), confidence=Fraction(19, 20))
    gradients = UpdatePolicy(ExponentRule.MSB_MAX, period=2, window=16, patience=3, headroom=1)
    weights = UpdatePolicy(ExponentRule.LSB_MIN, window=4)
    assert policy.update == all_classes
    assert policy.updates == {TensorClass.GRADIENTS: gradients, TensorClass.WEIGHTS: weights}
    fixed = UpdatePolicy(ExponentRule.FIXED)
    assert policy.for_layer("a").updates == {TensorClass.GRADIENTS: gradients, TensorClass.WEIGHTS: fixed}
    assert policy.for_layer("a").update == all_classes
    assert policy.for_layer("b").update == fixed
    assert policy.for_layer("b").updates == {TensorClass.ACTIVATIONS: UpdatePolicy(ExponentRule.MSB_MAX)}


def test_silence_is_the_default():
    assert parse(network("a = relu(x)")).numeric == NumericPolicy()
    assert parse(network("a = relu(x)", rest="numeric { }")).numeric == NumericPolicy()


@pytest.mark.parametrize(
    ("written", "granularity"),
    [
        ("tensor", Granularity()),
        ("channel", Granularity(per_channel=True)),
        ("block<4x8>", Granularity((4, 8))),
        ("channel-block<1x1>", Granularity((1, 1), per_channel=True)),
    ],
)
def test_granularity(written, granularity):
    assert parse(network("a = relu(x)", rest=f"numeric {{ exponent = {written} }}")).numeric.granularity == granularity


@pytest.mark.parametrize("tensor_class", TensorClass)
def test_widths_have_limits(tensor_class):
    least, most = BITS_RANGE[tensor_class]
    for bits in (least, most):
        parsed = parse(network("a = relu(x)", rest=f"numeric {{ {tensor_class} = {bits} bits }}"))
        assert parsed.numeric.width(tensor_class) == bits
    for bits in (least - 1, most + 1, -8, 10**30):
        (fault,) = faults(network("a = relu(x)", rest=f"numeric {{ {tensor_class} = {bits} bits }}"))
        assert (fault.code, fault.expected) == ("out-of-range", f"a whole number from {least} to {most} bits")


@pytest.mark.parametrize(
    ("setting", "code", "column"),
    [
        ("activations = 8", "missing-unit", 25),
        ("activations = 8 bits bits", "wrong-type", 32),
        ("activations = 8 every 2", "wrong-type", 27),
        ("activations = 7.5 bits", "wrong-type", 25),
        ("activations = true bits", "wrong-type", 25),
        ("activation = 8 bits", "unknown-setting", 11),
        ("rounding = 8 bits", "wrong-type", 24),
        ("rounding = half", "wrong-value", 22),
        ("rounding = floor  rounding = floor", "duplicate-setting", 29),
        ("constants = 17 bits", "out-of-range", 23),
        ("exponent = block", "wrong-type", 22),
        ("exponent = block<4>", "syntax-error", 28),
        ("exponent = block<4x4x4>", "wrong-type", 22),
        ("exponent = block<0x4>", "out-of-range", 28),
        ("exponent = tensor<4x4>", "wrong-type", 28),
        ("exponent_range = [3, 2]", "wrong-type", 28),
        ("exponent_range = [-2000, 2]", "out-of-range", 29),
        ("exponent_range = 5", "wrong-type", 28),
        ("update = msb", "wrong-value", 20),
        ("update = msb-max(r_max = 0)", "unknown-attribute", 28),
        ("update = msb-histogram(r_mx = 0)", "unknown-attribute", 34),
        ("update = msb-histogram(r_max = 1)", "out-of-range", 42),
        ("update = msb-histogram(r_max = -1/2)", "out-of-range", 42),
        ("update = msb-histogram(r_max = 0, r_max = 0)", "duplicate-setting", 45),
        ("update = msb-max(confidence = 0.95)", "unknown-attribute", 28),
        ("update = lsb-min(headroom = 1)", "unknown-attribute", 28),
        ("update = fixed(window = 2)", "unknown-attribute", 26),
        ("update = msb-max(window = 0)", "out-of-range", 37),
        ("update = msb-max(window = 1.5)", "wrong-type", 37),
        ("update = msb-max(patience = 0)", "out-of-range", 39),
        ("update = msb-max(headroom = 9)", "out-of-range", 39),
        ("update = msb-histogram(confidence = 0.4)", "out-of-range", 47),
        ("update = msb-histogram(confidence = 1)", "out-of-range", 47),
        ("update.gradients = msb-mx", "wrong-value", 30),
        ("update.gradient = msb-max", "unknown-setting", 11),
        ("update.accumulators = msb-max", "unknown-setting", 11),
        ("update.weights = fixed  update.weights = fixed", "duplicate-setting", 35),
        ("update = msb-max every 0", "out-of-range", 34),
        ("update = msb-max every 1.5", "wrong-type", 34),
        ("exponents { a = 128 }", "out-of-range", 27),
        ("exponents { a = 1  a = 1 }", "duplicate-setting", 30),
        ("exponents { a = 1 bits }", "wrong-type", 29),
        ("exponents { b = 1 }", "unknown-tensor", 23),
        ("exponents { a.weight = 1 }", "unknown-tensor", 23),
        ("layer b { rounding = floor }", "unknown-layer", 17),
        ("layer x { rounding = floor }", "unknown-layer", 17),
        ("layer b.* { rounding = floor }", "unknown-layer", 17),
        ("layer a { rounding = floo }", "wrong-value", 32),
        ("weights = 1e99999999999 bits", "out-of-range", 21),
        ("weights = zero bits", "unknown-parameter", 21),
    ],
)
def test_faults(setting, code, column):
    assert places(network("a = relu(x)", rest=f"numeric {{ {setting} }}")) == [(code, 5, column)]


def test_a_layer_section_of_an_instance_has_a_hint():
    block = "block b(a) { r = relu(a) return r }"
    (fault,) = faults(network("y = b(x)", rest=f"{block} numeric {{ layer y {{ rounding = floor }} }}"))
    assert fault.hint == "layer y.* is about all layers of the instance"

"""The numeric policy and its constants."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.support.numeric import (
    DEFAULT_UPDATE,
    PARAMETER_CLASSES,
    BlockMethod,
    BlockPolicy,
    ExponentRule,
    FixedConstant,
    Granularity,
    Neighbour,
    NumericPolicy,
    TensorClass,
    UpdatePolicy,
    fixed_constant,
)


@pytest.mark.parametrize(
    ("value", "bits", "expected"),
    [
        (Fraction(1, 10), 8, "205 * 2^-11"),
        (Fraction(1, 9), 8, "228 * 2^-11"),
        (Fraction(6), 8, "192 * 2^-5"),
        (Fraction(1, 4), 8, "128 * 2^-9"),
        (Fraction(-1, 10), 8, "-205 * 2^-11"),
        (Fraction(511, 512), 8, "128 * 2^-7"),
        (Fraction(0), 8, "0 * 2^-0"),
    ],
)
def test_constants_fill_their_width(value: Fraction, bits: int, expected: str) -> None:
    assert str(fixed_constant(value, bits)) == expected


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**9), st.integers(2, 16))
def test_a_constant_is_the_nearest_of_its_width(value: Fraction, bits: int) -> None:
    constant = fixed_constant(value, bits)
    assert 2 ** (bits - 1) <= constant.multiplier < 2**bits
    step = Fraction(1, 2) ** constant.fraction_bits
    assert abs(constant.multiplier * step - value) <= step / 2


def test_overrides_hold_for_their_layer_alone() -> None:
    wide = NumericPolicy().with_bits(TensorClass.ACTIVATIONS, 16)
    policy = NumericPolicy(overrides={"conv1": wide})
    assert policy.for_layer("conv1").width(TensorClass.ACTIVATIONS) == 16
    assert policy.for_layer("conv2").width(TensorClass.ACTIVATIONS) == 8
    assert policy.width(TensorClass.ACCUMULATORS) is None


def test_granularities_print_as_in_the_language() -> None:
    names = [str(Granularity(block, channel)) for block in (None, (4, 8)) for channel in (False, True)]
    assert names == ["tensor", "channel", "block<4x8>", "channel-block<4x8>"]
    assert FixedConstant(3, 1) != FixedConstant(6, 2)


def test_updates_print_as_in_the_language() -> None:
    assert str(UpdatePolicy()) == "msb-histogram(r_max = 2e-5)"
    assert str(UpdatePolicy(ExponentRule.FIXED, window=3)) == "fixed"
    options = UpdatePolicy(ExponentRule.MSB_LSB, Fraction(1, 3), Fraction(0), 4, 16, Fraction(19, 20), 2, 1)
    written = "r_max = 1/3, r_min = 0, confidence = 0.95, window = 16, patience = 2, headroom = 1"
    assert str(options) == f"msb+lsb({written}) every 4"
    assert str(UpdatePolicy(ExponentRule.MSB_MAX, period=2, patience=3)) == "msb-max(patience = 3) every 2"


def test_a_silent_network_decides_from_a_window() -> None:
    silent = NumericPolicy()
    assert silent.update == DEFAULT_UPDATE
    assert str(silent.update_for(TensorClass.GRADIENTS)) == "msb-histogram(r_max = 2e-5, window = 16)"
    assert str(silent.update_for(TensorClass.MASTER_WEIGHTS)) == "msb-max(window = 16)"


def test_a_class_follows_its_own_policy_or_that_of_all() -> None:
    common = UpdatePolicy(window=16, confidence=Fraction(9, 10), patience=2, headroom=1, period=4)
    own = UpdatePolicy(ExponentRule.LSB_MIN)
    policy = NumericPolicy(update=common, updates={TensorClass.GRADIENTS: own, TensorClass.BIASES: own})
    assert policy.update_for(TensorClass.ACTIVATIONS) == common
    assert policy.update_for(TensorClass.GRADIENTS) == policy.update_for(TensorClass.BIASES) == own
    largest = UpdatePolicy(ExponentRule.MSB_MAX, Fraction(0), period=4, window=16, patience=2)
    assert policy.update_for(TensorClass.WEIGHTS) == policy.update_for(TensorClass.MASTER_WEIGHTS) == largest


@pytest.mark.parametrize("tensor_class", sorted(PARAMETER_CLASSES))
def test_parameters_stay_where_everything_does(tensor_class: TensorClass) -> None:
    fixed = UpdatePolicy(ExponentRule.FIXED)
    assert NumericPolicy(update=fixed).update_for(tensor_class) == fixed


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (BlockPolicy(), "analyse(measure = overflows, candidates = 8, alignment = fraction)"),
        (BlockPolicy(positions=(3, 2)), "analyse(measure = overflows, positions = [3, 2], alignment = fraction)"),
        (
            BlockPolicy(BlockMethod.PREDICT, neighbours=(Neighbour.LEFT,)),
            "predict(measure = overflows, candidates = 8, neighbours = [left], threshold = 10, alignment = fraction)",
        ),
    ],
)
def test_a_block_policy_shows_the_options_of_its_method(policy, text):
    assert str(policy) == text

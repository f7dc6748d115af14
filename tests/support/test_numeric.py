"""The numeric policy and its constants."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.support.numeric import FixedConstant, Granularity, NumericPolicy, TensorClass, fixed_constant


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

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.backends.kernel import Events
from binpoint.runtime.conversion import dequantize, quantize

FINITE = {"allow_nan": False, "allow_infinity": False}


def exactly(value: float, exponent: int, bits: int) -> tuple[int, int]:
    """The mantissa in Python integers, and before saturation."""
    rounded = round(Fraction(value) / Fraction(2) ** exponent)
    return min(max(rounded, -(1 << (bits - 1))), (1 << (bits - 1)) - 1), rounded


@given(
    st.lists(st.floats(width=32, **FINITE) | st.integers(-1000, 1000).map(lambda n: n / 8), min_size=1, max_size=8),
    st.integers(-160, 140),
    st.sampled_from([2, 7, 8, 12, 16, 24, 32]),
)
def test_quantises_like_exact_arithmetic(values: list[float], exponent: int, bits: int) -> None:
    mantissas, events = quantize(np.array(values, np.float32), exponent, bits)
    pairs = [exactly(value, exponent, bits) for value in values]
    assert mantissas.tolist() == [mantissa for mantissa, _ in pairs]
    assert events == Events(
        len(values),
        sum(mantissa != rounded for mantissa, rounded in pairs),
        sum(mantissa == 0 != value for (mantissa, _), value in zip(pairs, values, strict=True)),
    )


def test_halves_go_to_the_even_mantissa() -> None:
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32) * 4
    assert quantize(halves, 2, 8)[0].tolist() == [-2, -2, 0, 0, 2, 2]


@pytest.mark.filterwarnings("error")
def test_the_largest_floats_saturate() -> None:
    mantissas, events = quantize(np.array([1e308, -1e308, 1e-308]), -128, 8)
    assert mantissas.tolist() == [127, -128, 0]
    assert (events.saturated, events.underflowed) == (2, 1)


@pytest.mark.parametrize(("bits", "dtype"), [(4, np.int8), (8, np.int8), (9, np.int16), (16, np.int16), (17, np.int32)])
def test_mantissas_have_the_smallest_type(bits: int, dtype: type) -> None:
    assert quantize(np.zeros(1, np.float32), 0, bits)[0].dtype == dtype


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-128, 127))
def test_dequantising_is_exact(mantissa: int, exponent: int) -> None:
    (value,) = dequantize(np.array([mantissa], np.int32), exponent)
    assert Fraction(float(value)) == mantissa * Fraction(2) ** exponent

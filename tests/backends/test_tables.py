"""Tables against correctly rounded decimals."""

from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from binpoint.backends.tables import exponential_table, sigmoid_gradient_table, sigmoid_table


def fixed(value: Decimal) -> int:
    return int((value * 2**30).to_integral_value(ROUND_HALF_EVEN))


@pytest.mark.parametrize("exponent", [-16, -9, -4, 0, 3, 60])
def test_tables_are_correctly_rounded(exponent):
    with localcontext() as context:
        context.prec = 60
        sigmoid, exponential = sigmoid_table(10, exponent), exponential_table(10, exponent)
        assert len(sigmoid) == len(exponential) == 1024
        for entry in range(0, 1024, 7):
            x = Decimal(entry - 512) * Decimal(2) ** exponent
            far = 2**30 if x > 0 else 0
            assert sigmoid[entry] == (fixed(1 / (1 + (-x).exp())) if abs(x) < 10**6 else far)
            distance = Decimal(entry) * Decimal(2) ** exponent
            assert exponential[entry] == (fixed((-distance).exp()) if distance < 10**6 else 0)


def test_sigmoid_ends_and_centre():
    table = sigmoid_table(8, 0)
    assert table[0] == 0
    assert table[128] == 2**29
    assert table[255] == 2**30
    assert (np.diff(table) >= 0).all()


@pytest.mark.parametrize("exponent", [-40, -16, -9, -8, 0, 60])
@pytest.mark.parametrize("fraction_bits", [17, 25, 30])
def test_sigmoid_gradient(exponent, fraction_bits):
    """y * (1 - y), exactly rounded, and 0 outside of 0 to 1."""
    table = sigmoid_gradient_table(9, exponent, fraction_bits)
    for entry, mantissa in enumerate(range(-256, 256)):
        y = mantissa * Fraction(2) ** exponent
        assert table[entry] == (round(y * (1 - y) * 2**fraction_bits) if 0 <= y <= 1 else 0)


def test_tables_are_shared_and_read_only():
    assert exponential_table(8, -4) is exponential_table(8, -4)
    with pytest.raises(ValueError, match="read-only"):
        exponential_table(8, -4)[0] = 1


@pytest.mark.parametrize("bits", [0, 17, 32])
def test_no_table_past_16_bits(bits):
    with pytest.raises(ValueError, match="16"):
        sigmoid_table(bits, 0)

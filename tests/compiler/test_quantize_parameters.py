"""Parameters as mantissas: the exponent follows the largest value, or the user."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from binpoint.compiler import quantize_parameters as module
from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.pipeline import lower_network
from binpoint.compiler.quantize_parameters import largest_exponent, quantize_parameters
from tests.programs import TARGET


def program(numeric=""):
    text = f"network n {{ input x: 3\n y = linear(x, features=2) }}\nnumeric {{ {numeric} }}"
    return lower_network(parse_network_text(text, "n.bp", None), TARGET)


def floats(weight, bias=(0, 0)):
    return {
        "y.weight": np.array(weight, np.float32).reshape(2, 3, 1, 1),
        "y.bias": np.array(bias, np.float32),
    }


def test_the_largest_value_keeps_its_top_bit():
    result = quantize_parameters(program(), floats([1, 0.5, -0.25, 0, 0.0078125, 0.3], (3, -4)))
    # Top position 0: 1 is 64 * 2^-6 in 8 bits. -4 has the position of 3: 16384 * 2^-13 would not fit 16 bits.
    assert result.exponents == {"y.weight": -6, "y.bias": -13}
    assert result.mantissas["y.weight"].ravel().tolist() == [64, 32, -16, 0, 0, 19]
    assert result.mantissas["y.bias"].tolist() == [24576, -32768]
    assert result.mantissas["y.weight"].dtype == np.int8
    assert result.mantissas["y.bias"].dtype == np.int16
    assert (result.saturated, result.clamped) == ({}, ())


def test_an_exponent_of_the_user_is_obeyed_and_what_saturates_is_counted():
    result = quantize_parameters(program("exponents { y.weight = -8 }"), floats([1, -1, 0.5, 0.25, 0, 0]))
    assert result.exponents["y.weight"] == -8
    assert result.mantissas["y.weight"].ravel().tolist() == [127, -128, 127, 64, 0, 0]
    assert result.saturated == {"y.weight": 3}


def test_an_exponent_is_clamped_into_its_range():
    result = quantize_parameters(program("exponent_range = [-4, 4]"), floats([1e9, 1, 0, 0, 0, 0], (0.01, 0)))
    assert result.exponents == {"y.weight": 4, "y.bias": -4}
    assert result.clamped == ("y.weight", "y.bias")
    assert result.saturated == {"y.weight": 1}


def test_pieces_make_no_difference(monkeypatch):
    values = floats([1, 0.5, -0.25, 0, 0.0078125, 0.3], (3, -4))
    whole = quantize_parameters(program("exponents { y.bias = -15 }"), values)
    monkeypatch.setattr(module, "PIECE", 4)
    pieces = quantize_parameters(program("exponents { y.bias = -15 }"), values)
    assert pieces.saturated == whole.saturated == {"y.bias": 2}
    for name in values:
        np.testing.assert_array_equal(pieces.mantissas[name], whole.mantissas[name])


@pytest.mark.parametrize("bits", [2, 8, 16])
@given(values=hnp.arrays(np.float32, st.integers(1, 20), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_no_value_is_out_of_range_at_its_exponent(bits, values):
    exponent = largest_exponent(values, bits)
    scaled = np.ldexp(values.astype(np.float64), -exponent)
    assert (scaled >= -(2 ** (bits - 1))).all()
    assert (scaled < 2 ** (bits - 1)).all()
    if values.any():
        finer = np.ldexp(values.astype(np.float64), 1 - exponent)
        assert ((finer < -(2 ** (bits - 1))) | (finer >= 2 ** (bits - 1))).any()


def test_exponents_of_channels_are_clamped_and_shown_as_a_range():
    numeric = "weights = 8 bits per channel  exponent_range = [-9, 4]"
    result = quantize_parameters(program(numeric), floats([1, 0.5, 0, 2**-9, 0, 0]))
    assert result.channel_exponents["y.weight"] == (-6, -9)
    assert result.clamped == ("y.weight", "y.bias")
    assert (result.shown_exponent("y.weight"), result.shown_exponent("y.bias")) == ("-9 to -6", "-9")
    alike = quantize_parameters(program(numeric), floats([1, 0, 0, 1, 0, 0]))
    assert alike.shown_exponent("y.weight") == "-6"

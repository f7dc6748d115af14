"""SGD on mantissas against fractions: one element, one rounding at a time."""

from fractions import Fraction
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.backends.gradients import UpdateSpec
from binpoint.backends.kernel import Draw, Events
from binpoint.backends.training_backend import UpdateExponents
from binpoint.support.numeric import FixedConstant, Rounding, fixed_constant
from tests.backends.oracle.reference import (
    BACKEND,
    DETERMINISTIC,
    FILLS,
    clipped,
    mantissas,
    mix,
    real_constant,
    reference_record,
    rounded,
    slow_inputs,
)

RATE = fixed_constant(Fraction(5, 100), 16)


def exact_sum(terms, rounding):
    """The sum of (factor, mantissa, exponent, bits): aligned, added; as (value, exponent)."""
    finest = min(exponent for _, _, exponent, _ in terms)
    highest = max(exponent + bits for _, _, exponent, bits in terms)
    meeting = max(finest, highest + ceil(log2(len(terms))) + 1 - 63)
    total = sum(rounded(factor * m * Fraction(2) ** (e - meeting), rounding) for factor, m, e, _ in terms)
    assert -(2**62) <= total < 2**62
    return total, meeting


def product(constants, mantissa, exponent, bits):
    """A term scaled by constants of 16 bits: exact at a finer exponent."""
    factor = 1
    for constant in constants:
        factor, exponent, bits = factor * constant.multiplier, exponent - constant.fraction_bits, bits + 16
    return factor, mantissa, exponent, bits


def stored(value, exponent, target, bits, rounding):
    """(mantissa, saturated, underflowed) of value * 2^exponent at 2^target."""
    mantissa = rounded(value * Fraction(2) ** (exponent - target), rounding)
    kept = clipped(mantissa, bits)
    return kept, kept != mantissa, value != 0 and kept == 0


def negative(constant):
    return FixedConstant(-constant.multiplier, constant.fraction_bits)


def expected(spec, w, v, g, exponents, rate, rounding):
    """(value before quantisation, its exponent, what is stored) of velocity, master and working copy."""
    decayed = [] if spec.decay is None else [([spec.decay], w, exponents.master, spec.master_bits)]
    directions = [([], g, exponents.gradient, spec.gradient_bits), *decayed]
    velocity = None
    if spec.momentum is not None:
        moved = exact_sum(
            [
                product([spec.momentum], v, exponents.velocity, spec.velocity_bits),
                *(product(*each) for each in directions),
            ],
            rounding,
        )
        velocity = (*moved, stored(*moved, exponents.new_velocity, spec.velocity_bits, rounding))
        directions = [([], velocity[2][0], exponents.new_velocity, spec.velocity_bits)]
    steps = [product([*constants, negative(rate)], *rest) for constants, *rest in directions]
    stepped = exact_sum([(1, w, exponents.master, spec.master_bits), *steps], rounding)
    master = (*stepped, stored(*stepped, exponents.new_master, spec.master_bits, rounding))
    kept = master[2][0], exponents.new_master
    working = (*kept, stored(*kept, exponents.working, spec.working_bits, rounding))
    return velocity, master, working


constants = st.sampled_from([None, Fraction(9, 10), Fraction(5, 10000), Fraction(1), Fraction(0)])
widths = st.sampled_from([8, 16, 24, 32])


@slow_inputs
@given(
    st.tuples(constants, constants),
    st.tuples(widths, widths, widths, st.sampled_from([8, 16])),
    st.sampled_from([Fraction(1, 20), Fraction(1, 10**6), Fraction(3), Fraction(0)]),
    st.lists(st.integers(-40, 20), min_size=6, max_size=6),
    st.sampled_from(DETERMINISTIC),
    st.sampled_from(FILLS),
)
def test_update(fractions, bits, rate, exponents, rounding, fill):
    momentum, decay = (None if each is None else fixed_constant(each, 16) for each in fractions)
    velocity_bits = None if momentum is None else bits[2]
    spec = UpdateSpec("conv.weight", bits[0], bits[1], velocity_bits, bits[3], momentum, decay)
    rng, shape = np.random.default_rng(sum(exponents) % 99), (3, 2, 1, 2)
    w, g = mantissas(shape, bits[0], fill, rng), mantissas(shape, bits[1], "random", rng)
    v = None if momentum is None else mantissas(shape, bits[2], fill, rng)
    places, rate = UpdateExponents(*exponents), fixed_constant(rate, 16)
    sample = rng.random(shape[:2]) < 0.5
    result = BACKEND.prepare_update(spec, rounding)(w, v, g, places, rate, sample=sample)
    reference = {
        index: expected(
            spec, int(w[index]), None if v is None else int(v[index]), int(g[index]), places, rate, rounding
        )
        for index in np.ndindex(shape)
    }
    for number, updated in enumerate((result.velocity, result.master, result.working)):
        if updated is None:
            assert momentum is None
            assert number == 0
            continue
        each = {index: results[number] for index, results in reference.items()}
        assert {index: int(updated.mantissas[index]) for index in each} == {
            i: kept[0] for i, (_, _, kept) in each.items()
        }
        counts = [sum(kept[which] for _, _, kept in each.values()) for which in (1, 2)]
        assert updated.events == Events(12, *counts)
        (exponent,) = {exponent for _, exponent, _ in each.values()}
        values = {index: value for index, (value, _, _) in each.items()}
        assert updated.statistics == reference_record(values, exponent, sample)


@pytest.mark.parametrize(("bits", "dtype"), [(8, np.int8), (16, np.int16), (24, np.int32)])
def test_mantissas_come_in_the_smallest_type(bits, dtype):
    spec, one = UpdateSpec("w", bits, 16, None, 8), np.ones((2, 1, 1, 1), int)
    result = BACKEND.prepare_update(spec, Rounding.FLOOR)(one, None, one, UpdateExponents(0, 0, 0, 0), RATE)
    assert result.master.mantissas.dtype == dtype
    assert result.working.mantissas.dtype == np.int8
    assert result.velocity is None
    assert result.master.statistics is None


def test_the_masters_saturate_and_say_so():
    spec = UpdateSpec("w", 16, 16, None, 8)
    w, g = np.full((1, 1, 1, 2), 32767), np.array([-100, 100]).reshape(1, 1, 1, 2)
    rate = fixed_constant(Fraction(1), 16)
    result = BACKEND.prepare_update(spec, Rounding.HALF_EVEN)(w, None, g, UpdateExponents(0, 0, 0, 9), rate)
    assert result.master.mantissas.ravel().tolist() == [32767, 32667]
    assert result.master.events == Events(2, saturated=1)
    assert result.working.mantissas.ravel().tolist() == [64, 64]


def test_stochastic_rounding_numbers_the_three_tensors():
    spec = UpdateSpec("w", 16, 16, 16, 8, fixed_constant(Fraction(9, 10), 16), None)
    rng, shape = np.random.default_rng(1), (4, 3, 2, 2)
    w, v, g = (rng.integers(-(2**14), 2**14, shape) for _ in range(3))
    places = UpdateExponents(master=-15, gradient=-18, new_master=-15, working=-7, velocity=-16, new_velocity=-15)
    draw = Draw(7, 30, 5)
    result = BACKEND.prepare_update(spec, Rounding.STOCHASTIC)(w, v, g, places, RATE, draw=draw)
    numbers = [random_numbers(draw.seed, draw.tensor + each, draw.step, 48) for each in range(3)]
    for index, place in enumerate(np.ndindex(shape)):
        moved = int(v[place]) * real_constant(spec.momentum) * Fraction(1, 2**16) + int(g[place]) * Fraction(1, 2**18)
        velocity = stochastic(moved * 2**15, numbers[0][index])
        assert result.velocity.mantissas[place] == velocity
        master = stochastic(int(w[place]) - velocity * real_constant(RATE), numbers[1][index])
        assert result.master.mantissas[place] == clipped(master, 16)
        working = stochastic(Fraction(clipped(master, 16), 2**8), numbers[2][index])
        assert result.working.mantissas[place] == clipped(working, 8)


def random_numbers(seed, tensor, step, count):
    key = 0
    for part in (seed, tensor, step):
        key = mix((key + part + 0x9E3779B97F4A7C15) % 2**64)
    return [mix((key + (index + 1) * 0x9E3779B97F4A7C15) % 2**64) for index in range(count)]


def stochastic(value: Fraction, number: int) -> int:
    floor = value.numerator // value.denominator
    return floor + (number < (value - floor) * 2**64)


def test_what_belongs_together_is_checked():
    one, exponents = np.ones((1, 1, 1, 1), int), UpdateExponents(0, 0, 0, 0)
    with_momentum = UpdateSpec("w", 16, 16, 16, 8, RATE)
    with pytest.raises(ValueError, match="velocity"):
        BACKEND.prepare_update(with_momentum, Rounding.FLOOR)(one, None, one, exponents, RATE)
    without = UpdateSpec("w", 16, 16, None, 8)
    with pytest.raises(ValueError, match="velocity"):
        BACKEND.prepare_update(without, Rounding.FLOOR)(one, one, one, exponents, RATE)
    with pytest.raises(ValueError, match="16 bits"):
        BACKEND.prepare_update(without, Rounding.FLOOR)(one, None, one, exponents, FixedConstant(1 << 16, 20))
    with pytest.raises(ValueError, match="draw"):
        BACKEND.prepare_update(without, Rounding.STOCHASTIC)(one, None, one, exponents, RATE)

"""Whole kernels against scalar loops over Python integers, written apart from the NumPy code."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.backends.kernel import (
    Accumulator,
    Add,
    AveragePool,
    Concat,
    Convolution,
    Draw,
    Events,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    MaxPool,
    Reshape,
    Resize,
    Sigmoid,
    Softmax,
    TensorSpec,
    Widen,
)
from binpoint.support.numeric import Rounding, fixed_constant
from tests.backends.oracle.reference import (
    ACTIVATIONS,
    BACKEND,
    DETERMINISTIC,
    FILLS,
    NO_PARAMETERS,
    accumulators,
    assert_equals_reference,
    bits_of_operands,
    clipped,
    convolution_sums,
    convolutions,
    mantissas,
    mix,
    pools,
    rounded,
    run,
    slow_inputs,
    window,
)


@slow_inputs
@given(
    convolutions(),
    st.integers(1, 2),
    st.sampled_from(FILLS),
    st.sampled_from(FILLS),
    st.integers(-70, 70),
    st.integers(-80, 80),
    st.integers(0, 2**32),
)
def test_convolution(spec, images, fill, weight_fill, output_shift, bias_shift, seed):
    rng = np.random.default_rng(seed)
    operation, tensor = spec.operation, spec.inputs[0]
    x = mantissas((images, *tensor.shape), tensor.bits, fill, rng)
    weight_shape = (spec.output.channels, tensor.channels // operation.groups, *operation.kernel)
    w = mantissas(weight_shape, operation.weight_bits, weight_fill, rng)
    bias = None
    if operation.bias_bits is not None:
        bias = mantissas((spec.output.channels,), operation.bias_bits, "random", rng)
    exponents = KernelExponents((-3,), output=-8 + output_shift, weight=-5, bias=-8 + bias_shift)
    parameters = KernelParameters(w, bias)
    assert_equals_reference(spec, [x], exponents, convolution_sums(spec, x, w), -8, parameters)


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("bits", [32, 33, 40, 48, 63, 64])
def test_accumulator_overflows_once_a_step(bits, wraps):
    """Sums just inside, at and past the width; then a bias that pushes past it again."""
    edge = 2 ** (bits - 1)
    for total, bias in product((edge - 1, edge, -edge, -edge - 1, edge + 7, 0), (-1, 0, 1, 2**31 - 1, -(2**31))):
        # One convolution of 32-bit factors whose sum is exactly `total`.
        factors = [(total >> 31, 2**30), (total >> 31, 2**30), (total & (2**31 - 1), 1)]
        x = np.array([factor for factor, _ in factors]).reshape(1, -1, 1, 1)
        w = np.array([weight for _, weight in factors]).reshape(1, -1, 1, 1)
        if x.min() < -(2**31) or x.max() >= 2**31:
            x, w = w.copy(), x.copy()  # the wide factor as the weight, which has no declared container
        spec = KernelSpec(
            "edge",
            Convolution((1, 1), weight_bits=36, bias_bits=32),
            (TensorSpec(3, 1, 1, 32),),
            TensorSpec(1, 1, 1, 16),
            accumulator=Accumulator(bits, wraps),
        )
        sums = {(0, 0, 0, 0): total}
        parameters = KernelParameters(w.reshape(1, 3, 1, 1), np.array([bias]))
        assert_equals_reference(spec, [x.reshape(1, 3, 1, 1)], KernelExponents((0,), bits - 16), sums, 0, parameters)


def test_the_sum_saturates_once_and_not_on_the_way():
    """Partial sums past the width that come back are no overflow: results do not depend on the order."""
    spec = KernelSpec(
        "order",
        Convolution((1, 1), weight_bits=16),
        (TensorSpec(4, 1, 1, 16),),
        TensorSpec(1, 1, 1, 16),
        accumulator=Accumulator(32),
    )
    x = np.full((1, 4, 1, 1), 32767)
    w = np.array([32767, 32767, 32767, -32768 * 2]).reshape(1, 4, 1, 1)
    result = run(spec, KernelParameters(w), [x], KernelExponents((0,), 16))
    assert result.events.accumulator_overflows == 0
    assert BACKEND.download(result.output).item() == round(Fraction(32767 * (3 * 32767 - 65536), 2**16))


@slow_inputs
@given(pools(), st.booleans(), accumulators, st.sampled_from(ACTIVATIONS), st.sampled_from(FILLS), st.integers(-20, 40))
def test_average_pool(pool, include_padding, accumulator, activation, fill, shift):
    kernel, stride, padding, source, output = pool
    operation = AveragePool(kernel, stride, padding, include_padding)
    x = mantissas((2, *source.shape), source.bits, fill, np.random.default_rng(shift + 99))
    windows = {index: window(x, *index, kernel, stride, padding) for index in np.ndindex(2, *output.shape)}
    divisors = {index: kernel[0] * kernel[1] if include_padding else len(each) for index, each in windows.items()}
    constants = {divisor: fixed_constant(Fraction(1, divisor), 8) for divisor in set(divisors.values())}
    fraction_bits = max(constant.fraction_bits for constant in constants.values())
    sums = {}
    for index, each in windows.items():
        constant = constants[divisors[index]]
        sums[index] = sum(each) * constant.multiplier * 2 ** (fraction_bits - constant.fraction_bits)
    spec = KernelSpec("pool", operation, (source,), output, activation, accumulator)
    exponent = 4 - fraction_bits
    assert_equals_reference(spec, [x], KernelExponents((4,), exponent + shift), sums, exponent)


def test_average_of_nine_is_228_over_2048():
    tensor = TensorSpec(1, 3, 3, 8)
    spec = KernelSpec("pool", AveragePool((3, 3), (3, 3)), (tensor,), TensorSpec(1, 1, 1, 16))
    result = run(spec, NO_PARAMETERS, [np.full((1, 1, 3, 3), 100)], KernelExponents((0,), -6))
    assert BACKEND.download(result.output).item() == round(Fraction(900 * 228, 2**11) * 2**6)


@slow_inputs
@given(
    st.sampled_from([Add, Concat]),
    st.lists(st.tuples(st.integers(-60, 60), st.sampled_from([8, 16, 32])), min_size=2, max_size=5),
    accumulators,
    st.sampled_from(ACTIVATIONS),
    st.sampled_from(DETERMINISTIC),
    st.sampled_from(FILLS),
    st.integers(-10, 50),
)
def test_add_and_concat(kind, operands, accumulator, activation, rounding, fill, shift):
    rng = np.random.default_rng(shift + 99)
    channels = [2] * len(operands) if kind is Add else [1 + index % 3 for index in range(len(operands))]
    tensors = tuple(TensorSpec(c, 2, 2, bits) for c, (_, bits) in zip(channels, operands, strict=True))
    inputs = [mantissas((2, *tensor.shape), tensor.bits, fill, rng) for tensor in tensors]
    exponents = [exponent for exponent, _ in operands]
    widest, carries = max(bits for _, bits in operands), math.ceil(math.log2(len(operands)))
    exponent = max(min(exponents), max(exponents) - (accumulator.bits - widest - carries - 1))
    aligned = [
        np.vectorize(lambda m, e=e: rounded(int(m) * Fraction(2) ** (e - exponent), rounding), otypes=[object])(x)
        for x, e in zip(inputs, exponents, strict=True)
    ]
    total = sum(aligned) if kind is Add else np.concatenate(aligned, axis=1)
    output = TensorSpec(total.shape[1], 2, 2, 8)
    spec = KernelSpec("join", kind(), tensors, output, activation, accumulator, rounding)
    sums = {index: total[index] for index in np.ndindex(total.shape)}
    assert_equals_reference(spec, inputs, KernelExponents(tuple(exponents), exponent + shift), sums, exponent)


@slow_inputs
@given(bits_of_operands, accumulators, st.sampled_from(ACTIVATIONS), st.sampled_from(FILLS), st.integers(-70, 70))
def test_widen(bits, accumulator, activation, fill, shift):
    tensor = TensorSpec(3, 2, 5, bits)
    x = mantissas((2, *tensor.shape), bits, fill, np.random.default_rng(shift + 99))
    spec = KernelSpec("alone", Widen(), (tensor,), TensorSpec(3, 2, 5, 8), activation, accumulator)
    sums = {index: int(x[index]) for index in np.ndindex(x.shape)}
    assert_equals_reference(spec, [x], KernelExponents((-2,), -2 + shift), sums, -2)


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("exponent", [-20, -7, -3, 0, 100])
def test_sigmoid(bits, exponent):
    x = np.arange(-(2 ** (bits - 1)), 2 ** (bits - 1), max(1, 2 ** (bits - 8))).reshape(1, 1, -1, 1)
    tensor = TensorSpec(1, x.size, 1, bits)
    spec = KernelSpec("sigmoid", Sigmoid(), (tensor,), tensor)
    sums = {}
    for index in np.ndindex(x.shape):
        real = float(x[index]) * 2.0**exponent
        decay = math.exp(-abs(real))
        sums[index] = round((1.0 if real >= 0 else decay) / (1.0 + decay) * 2**30)
    assert_equals_reference(spec, [x], KernelExponents((exponent,), -(bits - 1)), sums, -30)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize(("bits", "exponent"), [(8, -4), (8, 0), (8, 60), (16, -10), (4, -1)])
def test_softmax(fill, bits, exponent):
    tensor = TensorSpec(5, 2, 3, bits)
    x = mantissas((2, *tensor.shape), bits, fill, np.random.default_rng(bits))
    spec = KernelSpec("softmax", Softmax(), (tensor,), TensorSpec(5, 2, 3, 8))
    sums = {}
    for n, h, w in np.ndindex(2, 2, 3):
        pixel = [int(value) for value in x[n, :, h, w]]
        exponentials = [round(math.exp(-(max(pixel) - value) * 2.0**exponent) * 2**30) for value in pixel]
        for c, each in enumerate(exponentials):
            sums[n, c, h, w] = each * 2**30 // sum(exponentials)
    assert_equals_reference(spec, [x], KernelExponents((exponent,), -7), sums, -30)


@given(pools(), st.sampled_from(FILLS))
def test_max_pool_keeps_mantissas(pool, fill):
    kernel, stride, padding, source, output = pool
    x = mantissas((2, *source.shape), source.bits, fill, np.random.default_rng(7))
    spec = KernelSpec("pool", MaxPool(kernel, stride, padding), (source,), output, statistics=False)
    result = run(spec, NO_PARAMETERS, [x], KernelExponents((3,), 99), sample=np.ones((2, output.channels), bool))
    got = BACKEND.download(result.output)
    for index in np.ndindex(2, *output.shape):
        assert got[index] == max(window(x, *index, kernel, stride, padding))
    assert result.statistics is None
    assert result.events == Events(got.size)


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 15), st.integers(1, 15))
def test_resize_reads_the_nearest(height, width, out_h, out_w):
    x = np.random.default_rng(0).integers(-128, 128, (2, 3, height, width))
    spec = KernelSpec("resize", Resize(), (TensorSpec(3, height, width, 8),), TensorSpec(3, out_h, out_w, 8))
    got = BACKEND.download(run(spec, NO_PARAMETERS, [x], KernelExponents((0,), 0)).output)
    for n, c, h, w in np.ndindex(got.shape):
        assert got[n, c, h, w] == x[n, c, h * height // out_h, w * width // out_w]


def test_reshape_moves_nothing():
    x = np.random.default_rng(0).integers(-128, 128, (3, 4, 2, 5))
    spec = KernelSpec("flatten", Reshape(), (TensorSpec(4, 2, 5, 8),), TensorSpec(40, 1, 1, 8))
    got = BACKEND.download(run(spec, NO_PARAMETERS, [x], KernelExponents((0,), 0)).output)
    assert got.dtype == np.int8
    assert (got.ravel() == x.ravel()).all()


def stochastic_spec(**changes):
    tensor = TensorSpec(4, 3, 3, 8)
    operation = Convolution((3, 3), padding=(1, 1, 1, 1), bias_bits=16)
    return KernelSpec("conv", operation, (tensor,), tensor, rounding=Rounding.STOCHASTIC, **changes)


def test_stochastic_rounding_draws_by_element_index():
    rng = np.random.default_rng(5)
    spec, draw, first_image = stochastic_spec(), Draw(11, 22, 33), 7
    x, w = rng.integers(-128, 128, (2, 4, 3, 3)), rng.integers(-128, 128, (4, 4, 3, 3))
    bias = rng.integers(-(2**15), 2**15, 4)
    # The bias needs a right shift of 3, which is half-even.
    exponents = KernelExponents((0,), 11, bias=-3)
    result = run(spec, KernelParameters(w, bias), [x], exponents, draw=draw, first_image=first_image)
    got = BACKEND.download(result.output)
    key = 0
    for part in (11, 22, 33):
        key = mix((key + part + 0x9E3779B97F4A7C15) % 2**64)
    sums = convolution_sums(spec, x, w)
    for (n, c, h, width), total in sums.items():
        value = total + round(Fraction(int(bias[c]), 8))
        index = (first_image + n) * 36 + c * 9 + h * 3 + width
        number = mix((key + (index + 1) * 0x9E3779B97F4A7C15) % 2**64)
        up = number < value % 2**11 << 53
        assert got[n, c, h, width] == clipped((value >> 11) + up, 8)


def test_stochastic_rounding_needs_a_draw():
    spec = stochastic_spec()
    parameters = KernelParameters(np.zeros((4, 4, 3, 3), int), np.zeros(4, int))
    with pytest.raises(ValueError, match="draw"):
        run(spec, parameters, [np.zeros((1, 4, 3, 3), int)], KernelExponents((0,), 0))

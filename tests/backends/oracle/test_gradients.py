"""Gradient kernels against scalar loops over Python integers: each forward loop, with the roles turned round."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.backends.gradients import (
    AveragePoolGradient,
    BiasGradient,
    ChannelAffine,
    ChannelSlice,
    ClipGradient,
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    LeakyReluGradient,
    MaxPoolGradient,
    ReluGradient,
    ResizeGradient,
    SigmoidGradient,
)
from binpoint.backends.kernel import (
    Accumulator,
    AveragePool,
    Convolution,
    Draw,
    Events,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    MaxPool,
    Relu,
    TensorSpec,
)
from binpoint.support.numeric import FixedConstant, Rounding, fixed_constant
from tests.backends.oracle.reference import (
    BACKEND,
    DETERMINISTIC,
    FILLS,
    NO_PARAMETERS,
    accumulators,
    assert_equals_reference,
    clipped,
    convolutions,
    mantissas,
    mix,
    pools,
    rounded,
    run,
    slow_inputs,
)

FLAT = KernelExponents((0,), 0)


def products(forward, images):
    """Every product of a convolution: indices of dy, of x and of w."""
    operation, (channels, height, width) = forward.operation, forward.inputs[0].shape
    (stride_h, stride_w), (dilation_h, dilation_w) = operation.stride, operation.dilation
    top, left = operation.padding[:2]
    group_inputs, group_outputs = channels // operation.groups, forward.output.channels // operation.groups
    taps = product(range(group_inputs), *map(range, operation.kernel))
    for (n, k, i, j), (c, r, s) in product(np.ndindex(images, *forward.output.shape), list(taps)):
        h, v = i * stride_h + r * dilation_h - top, j * stride_w + s * dilation_w - left
        if 0 <= h < height and 0 <= v < width:
            yield (n, k, i, j), (n, k // group_outputs * group_inputs + c, h, v), (k, c, r, s)


def zeros(*shape):
    return dict.fromkeys(np.ndindex(shape), 0)


@slow_inputs
@given(convolutions(), st.integers(1, 2), st.sampled_from(FILLS), st.sampled_from(FILLS), st.integers(-70, 70))
def test_convolution_data_gradient(forward, images, fill, weight_fill, shift):
    rng = np.random.default_rng(shift + 99)
    operation, x, y = forward.operation, forward.inputs[0], forward.output
    dy = mantissas((images, *y.shape), y.bits, fill, rng)
    w = mantissas(
        (y.channels, x.channels // operation.groups, *operation.kernel), operation.weight_bits, weight_fill, rng
    )
    sums = zeros(images, *x.shape)
    for of_dy, of_x, of_w in products(forward, images):
        sums[of_x] += int(w[of_w]) * int(dy[of_dy])
    spec = replace(forward, operation=ConvolutionDataGradient(operation), inputs=(y,), output=x, activation=None)
    exponents = KernelExponents((-3,), output=-8 + shift, weight=-5)
    assert_equals_reference(spec, [dy], exponents, sums, -8, KernelParameters(w))


@slow_inputs
@given(convolutions(), st.integers(1, 3), st.sampled_from(FILLS), st.sampled_from(FILLS), st.integers(-70, 70))
def test_convolution_weight_gradient(forward, images, fill, gradient_fill, shift):
    rng = np.random.default_rng(shift + 99)
    operation, x, y = forward.operation, forward.inputs[0], forward.output
    data = mantissas((images, *x.shape), x.bits, fill, rng)
    dy = mantissas((images, *y.shape), y.bits, gradient_fill, rng)
    output = TensorSpec(x.channels // operation.groups, *operation.kernel, 16)
    sums = zeros(y.channels, *output.shape)
    for of_dy, of_x, of_w in products(forward, images):
        sums[of_w] += int(data[of_x]) * int(dy[of_dy])
    operation = ConvolutionWeightGradient(operation)
    spec = replace(forward, operation=operation, inputs=(x, y), output=output, activation=None)
    assert_equals_reference(spec, [data, dy], KernelExponents((-3, 2), output=-1 + shift), sums, -1)


def test_weight_gradients_add_up_past_64_bits():
    """512 images whose products are 2^55 each: parts of the sum fit into 64 bits, the sum does not."""
    tensors = TensorSpec(1, 1, 1, 32), TensorSpec(1, 1, 1, 32)
    x, dy = np.full((512, 1, 1, 1), 2**27), np.full((512, 1, 1, 1), 2**28)
    operation = ConvolutionWeightGradient(Convolution((1, 1)))
    spec = KernelSpec("dw", operation, tensors, TensorSpec(1, 1, 1, 16), None, Accumulator(64))
    assert_equals_reference(spec, [x, dy], KernelExponents((0, 0), 50), {(0, 0, 0, 0): 2**64}, 0)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_bias_gradient(bits, fill):
    tensor = TensorSpec(5, 3, 2, bits)
    dy = mantissas((4, *tensor.shape), bits, fill, np.random.default_rng(bits))
    spec = KernelSpec("bias", BiasGradient(), (tensor,), TensorSpec(1, 1, 1, 16))
    sums = {(k, 0, 0, 0): sum(int(m) for m in dy[:, k].flat) for k in range(5)}
    assert_equals_reference(spec, [dy], KernelExponents((-6,), -3), sums, -6)


@slow_inputs
@given(pools(), accumulators, st.sampled_from(["random", "few", *FILLS]), st.integers(-10, 20))
def test_max_pool_gradient_goes_to_the_first_of_the_largest(pool, accumulator, fill, shift):
    kernel, stride, padding, x, y = pool
    rng = np.random.default_rng(shift + 99)
    data = rng.integers(-2, 2, (2, *x.shape)) if fill == "few" else mantissas((2, *x.shape), x.bits, fill, rng)
    dy = mantissas((2, *y.shape), 16, "random", rng)
    sums = zeros(2, *x.shape)
    for n, c, i, j in np.ndindex(dy.shape):
        inside = [
            (h, v)
            for h in range(i * stride[0] - padding[0], i * stride[0] - padding[0] + kernel[0])
            for v in range(j * stride[1] - padding[1], j * stride[1] - padding[1] + kernel[1])
            if 0 <= h < x.height and 0 <= v < x.width
        ]
        h, v = max(inside, key=lambda place: data[n, c, *place])  # the first of equals
        sums[n, c, h, v] += int(dy[n, c, i, j])
    operation = MaxPoolGradient(MaxPool(kernel, stride, padding))
    spec = KernelSpec("pool", operation, (x, replace(y, bits=16)), replace(x, bits=8), None, accumulator)
    assert_equals_reference(spec, [data, dy], KernelExponents((9, -4), -4 + shift), sums, -4)


@slow_inputs
@given(pools(), st.booleans(), accumulators, st.sampled_from(FILLS), st.integers(-20, 40))
def test_average_pool_gradient(pool, include_padding, accumulator, fill, shift):
    kernel, stride, padding, x, y = pool
    dy = mantissas((2, *y.shape), y.bits, fill, np.random.default_rng(shift + 99))
    places = {
        (i, j): [
            (h, v)
            for h in range(i * stride[0] - padding[0], i * stride[0] - padding[0] + kernel[0])
            for v in range(j * stride[1] - padding[1], j * stride[1] - padding[1] + kernel[1])
            if 0 <= h < x.height and 0 <= v < x.width
        ]
        for i, j in np.ndindex(y.shape[1:])
    }
    divisors = {window: kernel[0] * kernel[1] if include_padding else len(each) for window, each in places.items()}
    constants = {divisor: fixed_constant(Fraction(1, divisor), 8) for divisor in set(divisors.values())}
    fraction_bits = max(constant.fraction_bits for constant in constants.values())
    sums = zeros(2, *x.shape)
    for n, c, i, j in np.ndindex(dy.shape):
        constant = constants[divisors[i, j]]
        for place in places[i, j]:
            reciprocal = constant.multiplier * 2 ** (fraction_bits - constant.fraction_bits)
            sums[n, c, *place] += int(dy[n, c, i, j]) * reciprocal
    operation = AveragePoolGradient(AveragePool(kernel, stride, padding, include_padding))
    spec = KernelSpec("pool", operation, (y,), replace(x, bits=8), None, accumulator)
    exponent = 4 - fraction_bits
    assert_equals_reference(spec, [dy], KernelExponents((4,), exponent + shift), sums, exponent)


@given(*[st.integers(1, 7)] * 2, *[st.integers(1, 15)] * 2, st.sampled_from(FILLS))
def test_resize_gradient(height, width, out_h, out_w, fill):
    dy = mantissas((2, 2, out_h, out_w), 16, fill, np.random.default_rng(height))
    sums = zeros(2, 2, height, width)
    for n, c, h, v in np.ndindex(dy.shape):
        sums[n, c, h * height // out_h, v * width // out_w] += int(dy[n, c, h, v])
    x, y = TensorSpec(2, height, width, 8), TensorSpec(2, out_h, out_w, 16)
    spec = KernelSpec("resize", ResizeGradient(), (y,), x)
    assert_equals_reference(spec, [dy], KernelExponents((3,), 7), sums, 3)


def masked(operation, y, dy, exponents=(-2, 5)):
    tensor, gradient = TensorSpec(1, 1, len(y), 8), TensorSpec(1, 1, len(y), 16)
    spec = KernelSpec("mask", operation, (tensor, gradient), gradient, statistics=False)
    inputs = [np.reshape(each, (1, 1, 1, -1)) for each in (y, dy)]
    result = run(spec, NO_PARAMETERS, inputs, KernelExponents(exponents, 99), sample=np.ones((1, 1), bool))
    assert result.statistics is None
    assert result.events == Events(len(y))
    return BACKEND.download(result.output).ravel().tolist()


def test_relu_gradient_looks_at_the_stored_output():
    assert masked(ReluGradient(), [-128, -1, 0, 1, 127], [5, 6, 7, -8, 32767]) == [0, 0, 0, -8, 32767]


@pytest.mark.parametrize(("exponent", "limit"), [(-4, 96), (-2, 24), (1, 3), (2, 2), (3, 1), (4, 0), (-9, 127)])
def test_clip_gradient_stops_at_the_limit(exponent, limit):
    """6 at the output's exponent, half-even (6/4 is 2, 6/16 is 0), at most the greatest mantissa."""
    y = list(range(-128, 128))
    expected = [1000 + m if 0 < m < limit else 0 for m in y]
    operation = ClipGradient(fixed_constant(Fraction(6), 8))
    assert masked(operation, y, [1000 + m for m in y], (exponent, 3)) == expected


def test_channel_slice_of_a_concat():
    dy = np.arange(-60, 60).reshape(2, 10, 2, 3)
    spec = KernelSpec("part", ChannelSlice(3), (TensorSpec(10, 2, 3, 8),), TensorSpec(4, 2, 3, 8), statistics=False)
    result = run(spec, NO_PARAMETERS, [dy], KernelExponents((1,), 99))
    assert (BACKEND.download(result.output) == dy[:, 3:7]).all()


@slow_inputs
@given(
    st.sampled_from([fixed_constant(Fraction(1, 10), 8), FixedConstant(0, 0), FixedConstant(250, -2)]),
    st.sampled_from([8, 16, 32]),
    accumulators,
    st.sampled_from(FILLS),
    st.integers(-40, 40),
)
def test_leaky_relu_gradient(slope, bits, accumulator, fill, shift):
    rng = np.random.default_rng(shift + 99)
    y = rng.integers(-2, 3, (2, 3, 2, 5))
    dy = mantissas(y.shape, bits, fill, rng)
    tensors = TensorSpec(3, 2, 5, 8), TensorSpec(3, 2, 5, bits)
    spec = KernelSpec("leaky", LeakyReluGradient(slope), tensors, tensors[0], None, accumulator)
    sums = {index: int(dy[index]) for index in np.ndindex(dy.shape)}
    exponents = KernelExponents((-7, -2), -2 + shift)
    assert_equals_reference(spec, [y, dy], exponents, sums, -2, passes=y >= 0)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("gradient_bits", [8, 16])
@pytest.mark.parametrize(("bits", "exponent"), [(8, -7), (8, -6), (8, 3), (8, -30), (16, -15), (16, -14)])
@pytest.mark.parametrize("accumulator", [32, 40, 64])
def test_sigmoid_gradient(bits, exponent, gradient_bits, accumulator, fill):
    y = np.arange(-(2 ** (bits - 1)), 2 ** (bits - 1), max(1, 2 ** (bits - 8))).reshape(1, 1, -1, 1)
    dy = mantissas(y.shape, gradient_bits, fill, np.random.default_rng(bits))
    tensors = TensorSpec(1, y.size, 1, bits), TensorSpec(1, y.size, 1, gradient_bits)
    spec = KernelSpec("sigmoid", SigmoidGradient(), tensors, tensors[1], accumulator=Accumulator(accumulator))
    fraction_bits = min(30, accumulator - gradient_bits + 1)
    sums = {}
    for index in np.ndindex(y.shape):
        real = min(max(int(y[index]) * Fraction(2) ** exponent, Fraction(0)), Fraction(1))
        # Where an exact product is a tie, both factors are short and float64 holds it exactly.
        sums[index] = int(dy[index]) * round(real * (1 - real) * 2**fraction_bits)
        assert abs(sums[index]) < 2 ** (accumulator - 1)
    assert_equals_reference(spec, [y, dy], KernelExponents((exponent, -9), -12), sums, -9 - fraction_bits)


@slow_inputs
@given(
    st.lists(st.tuples(st.integers(-40, 40), st.sampled_from([8, 16])), min_size=1, max_size=2),
    accumulators,
    st.sampled_from([None, Relu()]),
    st.sampled_from(DETERMINISTIC),
    st.sampled_from(FILLS),
    st.integers(-20, 40),
)
def test_channel_affine(operands, accumulator, activation, rounding, fill, shift):
    rng = np.random.default_rng(shift + 99)
    tensors = tuple(TensorSpec(3, 2, 2, bits) for _, bits in operands)
    inputs = [mantissas((2, *tensor.shape), tensor.bits, fill, rng) for tensor in tensors]
    weight = mantissas((len(operands), 3, 1, 1), 16, fill, rng)
    bias = mantissas((3,), 16, "random", rng)
    products = [exponent - 5 for exponent, _ in operands]
    widest = max(bits for _, bits in operands) + 16
    exponent = max(min(products), max(products) - (accumulator.bits - widest - (len(operands) - 1) - 1))
    sums = {}
    for n, c, h, v in np.ndindex(2, 3, 2, 2):
        factors = [(int(x[n, c, h, v]), int(weight[i, c, 0, 0])) for i, x in enumerate(inputs)]
        sums[n, c, h, v] = sum(
            rounded(x * w * Fraction(2) ** (e - exponent), rounding)
            for (x, w), e in zip(factors, products, strict=True)
        )
    operation = ChannelAffine(16, 16)
    spec = KernelSpec("norm", operation, tensors, TensorSpec(3, 2, 2, 8), activation, accumulator, rounding)
    exponents = KernelExponents(tuple(e for e, _ in operands), exponent + shift, weight=-5, bias=exponent + shift - 8)
    assert_equals_reference(spec, inputs, exponents, sums, exponent, KernelParameters(weight, bias))


@pytest.mark.parametrize("operation", [ConvolutionDataGradient(Convolution((3, 3))), ChannelAffine(16, 16)])
def test_operations_on_weights_need_them(operation):
    tensor = TensorSpec(2, 3, 3, 8)
    with pytest.raises(ValueError, match="weights"):
        run(KernelSpec("x", operation, (tensor,), tensor), NO_PARAMETERS, [np.zeros((1, 2, 3, 3), int)], FLAT)


def test_new_weights_need_no_new_kernel():
    rng = np.random.default_rng(0)
    tensor = TensorSpec(2, 3, 3, 8)
    spec = KernelSpec("dx", ConvolutionDataGradient(Convolution((3, 3), padding=(1, 1, 1, 1))), (tensor,), tensor)
    old, new = (KernelParameters(rng.integers(-128, 128, (2, 2, 3, 3))) for _ in range(2))
    dy = [BACKEND.upload(rng.integers(-128, 128, (2, 2, 3, 3)), tensor)]
    kernel = BACKEND.prepare(spec, old)
    before = kernel(dy, KernelExponents((0,), 8)).output.mantissas
    kernel.bind(new)
    after = kernel(dy, KernelExponents((0,), 8)).output.mantissas
    assert (after == BACKEND.prepare(spec, new)(dy, KernelExponents((0,), 8)).output.mantissas).all()
    assert (after != before).any()


def test_stochastic_gradients_of_weights_draw_by_the_index_of_the_weight():
    rng = np.random.default_rng(3)
    x, dy = rng.integers(-128, 128, (2, 4, 3, 3)), rng.integers(-128, 128, (2, 5, 3, 3))
    operation = ConvolutionWeightGradient(Convolution((3, 3), padding=(1, 1, 1, 1)))
    tensors = TensorSpec(4, 3, 3, 8), TensorSpec(5, 3, 3, 8)
    spec = KernelSpec("dw", operation, tensors, TensorSpec(4, 3, 3, 8), rounding=Rounding.STOCHASTIC)
    result = run(spec, NO_PARAMETERS, [x, dy], KernelExponents((0, 0), 11), draw=Draw(1, 2, 3))
    key = 0
    for part in (1, 2, 3):
        key = mix((key + part + 0x9E3779B97F4A7C15) % 2**64)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    got = BACKEND.download(result.output)
    for index, (k, c, r, s) in enumerate(np.ndindex(5, 4, 3, 3)):
        exact = int((padded[:, c, r : r + 3, s : s + 3] * dy[:, k]).sum())
        up = mix((key + (index + 1) * 0x9E3779B97F4A7C15) % 2**64) < exact % 2**11 << 53
        assert got[k, c, r, s] == clipped((exact >> 11) + up, 8)

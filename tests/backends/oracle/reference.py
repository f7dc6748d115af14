"""Kernels one result at a time, in Python integers and fractions, written apart from the NumPy code."""

import math
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from binpoint.backends.kernel import (
    Accumulator,
    Clip,
    Convolution,
    Events,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    Relu,
    StatisticsRecord,
    TensorSpec,
)
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.support.numeric import FixedConstant, Rounding, fixed_constant

BACKEND = OracleBackend()
NO_PARAMETERS = KernelParameters()
HALF = Fraction(1, 2)
FILLS = ["random", "least", "greatest", "spike"]
DETERMINISTIC = [rounding for rounding in Rounding if rounding is not Rounding.STOCHASTIC]
ACTIVATIONS = [
    None,
    Relu(),
    Clip(fixed_constant(Fraction(6), 8)),
    LeakyRelu(fixed_constant(Fraction(1, 10), 8)),
    LeakyRelu(FixedConstant(-3, 0)),
    LeakyRelu(FixedConstant(250, -2)),
]

bits_of_operands = st.sampled_from([4, 8, 16, 32])
accumulators = st.builds(Accumulator, st.sampled_from([32, 33, 40, 48, 63, 64]), st.booleans())
slow_inputs = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=150)


# The reference: one result at a time.


def rounded(x: Fraction, rounding: Rounding) -> int:
    if rounding is Rounding.FLOOR:
        return math.floor(x)
    if rounding is Rounding.HALF_UP:
        return math.floor(x + HALF)
    if rounding is Rounding.HALF_AWAY and x < 0:
        return math.ceil(x - HALF)
    return round(x) if rounding in (Rounding.HALF_EVEN, Rounding.STOCHASTIC) else math.floor(x + HALF)


def clipped(value: int, bits: int) -> int:
    return min(max(value, -(2 ** (bits - 1))), 2 ** (bits - 1) - 1)


def held(value: int, accumulator: Accumulator) -> int:
    """The value in the accumulator's width."""
    if accumulator.wraps:
        return (value + 2 ** (accumulator.bits - 1)) % 2**accumulator.bits - 2 ** (accumulator.bits - 1)
    return clipped(value, accumulator.bits)


def activated(value: int, exponent: int, activation, bits: int) -> tuple[Fraction, int]:
    """The real value after the activation, and the exponent it is held at."""
    unit = Fraction(2) ** exponent
    if isinstance(activation, Relu):
        return max(value, 0) * unit, exponent
    if isinstance(activation, Clip):
        limit = min(round(real_constant(activation.limit) / unit), 2 ** (bits - 1) - 1)
        return min(max(value, 0), limit) * unit, exponent
    if isinstance(activation, LeakyRelu):
        return leaked(value, exponent, activation.slope, value >= 0)
    return value * unit, exponent


def leaked(value: int, exponent: int, slope: FixedConstant, passes: bool) -> tuple[Fraction, int]:
    """The value where it passes, else times the slope, and the exponent it is held at."""
    factor = 1 if passes else real_constant(slope)
    return value * factor * Fraction(2) ** exponent, exponent - max(slope.fraction_bits, 0)


def real_constant(constant: FixedConstant) -> Fraction:
    return constant.multiplier * Fraction(2) ** -constant.fraction_bits


def differing(value: int) -> list[int]:
    sign = value < 0
    return [bit for bit in range(value.bit_length() + 1) if (value >> bit & 1) != sign]


def finish(spec, sums, exponent, bias, exponents, passes=None):
    """(outputs, values after the activation, their exponent, events) of exact sums by index (n, k, h, w).

    `passes` says, for the gradient of a leaky ReLU, which results are not scaled.
    """
    outputs, values, counts = {}, {}, Counter()
    for index, exact in sums.items():
        total = held(exact, spec.accumulator)
        overflowed = total != exact
        if bias is not None:
            real = int(bias[index[1]]) * Fraction(2) ** (exponents.bias - exponent)
            with_bias = total + clipped(rounded(real, spec.rounding), spec.accumulator.bits)
            total = held(with_bias, spec.accumulator)
            overflowed |= total != with_bias
        if passes is None:
            real, final_exponent = activated(total, exponent, spec.activation, spec.accumulator.bits)
        else:
            real, final_exponent = leaked(total, exponent, spec.operation.slope, passes[index])
        values[index] = int(real * Fraction(2) ** -final_exponent)
        assert values[index] * Fraction(2) ** final_exponent == real
        mantissa = rounded(real * Fraction(2) ** -exponents.output, spec.rounding)
        outputs[index] = clipped(mantissa, spec.output.bits)
        counts["saturated"] += outputs[index] != mantissa
        counts["underflowed"] += real != 0 and outputs[index] == 0
        counts["accumulator_overflows"] += overflowed
    return outputs, values, final_exponent, Events(results=len(sums), **counts)


def reference_record(values, exponent, sample) -> StatisticsRecord:
    positions = [differing(value) for (n, k, _, _), value in values.items() if sample[n, k]]
    return StatisticsRecord(
        Counter(max(each) + exponent for each in positions if each),
        Counter(min(each) + exponent for each in positions if each),
        sum(not each for each in positions),
        len(positions),
    )


def convolution_sums(spec, x, w):
    """The seven loops."""
    operation, sums = spec.operation, {}
    (stride_h, stride_w), (dilation_h, dilation_w) = operation.stride, operation.dilation
    top, left = operation.padding[:2]
    group_inputs, group_outputs = w.shape[1], w.shape[0] // operation.groups
    for n, k, oh, ow in product(range(len(x)), *map(range, spec.output.shape)):
        total = 0
        for c, r, s in product(*map(range, w.shape[1:])):
            h, width = oh * stride_h + r * dilation_h - top, ow * stride_w + s * dilation_w - left
            if 0 <= h < x.shape[2] and 0 <= width < x.shape[3]:
                total += int(x[n, k // group_outputs * group_inputs + c, h, width]) * int(w[k, c, r, s])
        sums[n, k, oh, ow] = total
    return sums


def window(x, n, c, oh, ow, kernel, stride, padding):
    """The elements of one window, padding left out."""
    rows = (oh * stride[0] + r - padding[0] for r in range(kernel[0]))
    columns = [ow * stride[1] + s - padding[1] for s in range(kernel[1])]
    return [int(x[n, c, h, w]) for h in rows for w in columns if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]]


def mix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


# What goes in.


def mantissas(shape, bits, fill, rng):
    least, greatest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if fill == "random":
        return rng.integers(least, greatest, shape, endpoint=True)
    if fill == "spike":
        values = np.zeros(shape, dtype=np.int64)
        values.flat[rng.integers(values.size)] = rng.choice([least, greatest])
        return values
    return np.full(shape, least if fill == "least" else greatest)


def run(spec, parameters, inputs, exponents, **keywords):
    buffers = [BACKEND.upload(x, tensor) for x, tensor in zip(inputs, spec.inputs, strict=True)]
    return BACKEND.prepare(spec, parameters)(buffers, exponents, **keywords)


def assert_equals_reference(spec, inputs, exponents, sums, exponent, parameters=NO_PARAMETERS, passes=None):
    rows, channels = 1 + max(row for row, *_ in sums), spec.output.channels
    sample = np.random.default_rng(rows).random((rows, channels)) < 0.5
    result = run(spec, parameters, inputs, exponents, sample=sample)
    outputs, values, final_exponent, events = finish(spec, sums, exponent, parameters.bias, exponents, passes)
    got = BACKEND.download(result.output)
    assert got.shape == (rows, *spec.output.shape)
    assert {index: int(got[index]) for index in np.ndindex(got.shape)} == outputs
    assert result.events == events
    assert result.statistics == reference_record(values, final_exponent, sample)


@st.composite
def convolutions(draw):
    groups = draw(st.integers(1, 3))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    height, width = (draw(st.integers(step * (k - 1) + 1, 6)) for k, step in zip(kernel, dilation, strict=True))
    bits, weight_bits = draw(bits_of_operands), draw(bits_of_operands)
    operation = Convolution(
        kernel,
        stride=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        padding=draw(st.tuples(*[st.integers(0, 2)] * 4)),
        dilation=dilation,
        groups=groups,
        weight_bits=weight_bits,
        bias_bits=draw(st.sampled_from([None, 16, 32])),
    )
    channels, outputs = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    top, left, bottom, right = operation.padding
    out_h = (height + top + bottom - dilation[0] * (kernel[0] - 1) - 1) // operation.stride[0] + 1
    out_w = (width + left + right - dilation[1] * (kernel[1] - 1) - 1) // operation.stride[1] + 1
    return KernelSpec(
        "conv",
        operation,
        (TensorSpec(channels, height, width, bits),),
        TensorSpec(outputs, out_h, out_w, draw(bits_of_operands)),
        draw(st.sampled_from(ACTIVATIONS)),
        draw(accumulators),
        draw(st.sampled_from(DETERMINISTIC)),
    )


@st.composite
def pools(draw):
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    padding = tuple(draw(st.integers(0, kernel[axis % 2] - 1)) for axis in range(4))
    height, width = (draw(st.integers(kernel[axis], 6)) for axis in range(2))
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    out_h = (height + padding[0] + padding[2] - kernel[0]) // stride[0] + 1
    out_w = (width + padding[1] + padding[3] - kernel[1]) // stride[1] + 1
    channels, bits = draw(st.integers(1, 3)), draw(bits_of_operands)
    return kernel, stride, padding, TensorSpec(channels, height, width, bits), TensorSpec(channels, out_h, out_w, bits)

"""Activations of accumulators: all at one exponent, or each element at its own."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from binpoint.backends.kernel import Accumulator, Activation, BoolArray, Clip, KernelSpec, LeakyRelu, Relu
from binpoint.backends.oracle.exact import Integers, multiply, shift_left
from binpoint.backends.oracle.fixed_point import quantize
from binpoint.backends.oracle.positions import Exponents, each_value
from binpoint.support.numeric import FixedConstant, Rounding

Exponent = TypeVar("Exponent", int, Exponents)
"""The exponent of all values, or an array of exponents that broadcasts to them."""


def activate(
    activation: Activation | None, values: Integers, exponent: Exponent, accumulator: Accumulator
) -> tuple[Integers, Exponent]:
    """The values after the activation and their exponent."""
    match activation:
        case None:
            return values, exponent
        case Relu():
            return np.maximum(values, 0), exponent
        case Clip(limit):
            limits = np.empty(np.shape(exponent), np.int64)
            for each, where in each_value(np.asarray(exponent)):
                limits[where] = clip_limit(limit, each, accumulator)
            return np.clip(values, 0, limits), exponent
        case LeakyRelu(slope):
            return leak(slope, values, exponent, values >= 0)


def leak(slope: FixedConstant, values: Integers, exponent: Exponent, passes: BoolArray) -> tuple[Integers, Exponent]:
    """Values where they pass, else slope * values, and the exponent of both."""
    bits = fraction_bits(slope)
    multiplier = slope.multiplier << (bits - slope.fraction_bits)
    scaled = multiply(values, np.asarray(multiplier, dtype=object))
    return np.where(passes, shift_left(values, bits), scaled), exponent - bits


def clip_limit(limit: FixedConstant, exponent: int, accumulator: Accumulator) -> int:
    """The clip's limit in units of 2^exponent, half-even; the accumulator's maximum where it lies beyond it."""
    shift = exponent + limit.fraction_bits
    return int(quantize(np.asarray(limit.multiplier), shift, accumulator.bits, Rounding.HALF_EVEN)[0])


def fraction_bits(slope: FixedConstant) -> int:
    """The fraction bits of a slope; one of 256 or more has none, and its multiplier is shifted left instead."""
    return max(slope.fraction_bits, 0)


def spare_bits(spec: KernelSpec) -> int:
    """Bits that an activation adds below those of the accumulator."""
    return fraction_bits(spec.activation.slope) if isinstance(spec.activation, LeakyRelu) else 0

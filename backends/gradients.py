"""The operations of training beyond those of inference: gradients, channel-wise sums and the update.

They are operations of a `KernelSpec` like the others: accumulate -> statistics -> quantise. Where a result belongs to
the weights, its rows take the place of images: the gradient of weights (K, C / groups, R, S) is an array
(N, C, H, W) with N = K, so the pairs of the allocation are (output channel, input channel), and those of a gradient of
data are (image, input channel).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from binpoint.backends.kernel import AveragePool, Convolution, KernelSpec, MaxPool, TensorSpec
from binpoint.support.numeric import FixedConstant


@dataclass(frozen=True)
class ConvolutionDataGradient:
    """dL/dx of a convolution, linear layers included. Reads (dy,) and the forward weights (K, C / groups, R, S).

    dx[n, c, y, x] = sum over k, r, s of w[k, c, r, s] * dy[n, k, h, v] where h * stride + r * dilation - padding = y,
    and columns alike. e_acc = e_dy + e_w.
    """

    convolution: Convolution
    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class ConvolutionWeightGradient:
    """dL/dw of a convolution, linear layers included. Reads (x, dy); the result is (K, C / groups, R, S).

    dw[k, c, r, s] = sum over n, h, v of x[n, c, h * stride + r * dilation - padding, ...] * dy[n, k, h, v].
    e_acc = e_x + e_dy.
    """

    convolution: Convolution
    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class BiasGradient:
    """dL/db: the sum of dy over images and pixels. Reads (dy,); the result is (K, 1, 1, 1)."""

    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class MaxPoolGradient:
    """Reads (x, dy): dy goes to the first of the largest elements of its window, row by row; overlaps add up."""

    pool: MaxPool
    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class AveragePoolGradient:
    """Reads (dy,): each window's dy times its reciprocal goes to every element; e_acc = e_dy - fraction_bits."""

    pool: AveragePool
    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class ResizeGradient:
    """Reads (dy,): the sum of dy over the output elements that read an input element."""

    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class ReluGradient:
    """Reads (y, dy): dy where the stored output y > 0, else 0. Keeps dy's exponent."""

    exact: ClassVar[bool] = True


@dataclass(frozen=True)
class ClipGradient:
    """Reads (y, dy): dy where 0 < y < limit, else 0. Keeps dy's exponent.

    The limit in units of y is the constant aligned to y's exponent, half-even, saturated to y's width, as the
    forward kernel stores it.
    """

    limit: FixedConstant
    exact: ClassVar[bool] = True


@dataclass(frozen=True)
class LeakyReluGradient:
    """Reads (y, dy): dy where the stored output y >= 0, else slope * dy.

    dy is the accumulator; the scaling is that of the activation, exact and past the accumulator's width too: the
    result has slope.fraction_bits more fraction bits.
    """

    slope: FixedConstant
    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class SigmoidGradient:
    """Reads (y, dy): dy times y * (1 - y), which a table gives for each mantissa of y.

    The table (`tables.sigmoid_gradient_table`) has as many fraction bits as cannot overflow the accumulator, see
    `sigmoid_gradient_fraction_bits`; e_acc = e_dy - fraction bits.
    """

    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class ChannelSlice:
    """Reads (dy,): the channels from `first` on, as many as the output has: the gradient of one part of a concat."""

    first: int
    exact: ClassVar[bool] = True


@dataclass(frozen=True)
class ChannelAffine:
    """sum_i coefficient_i[c] * x_i + constant[c]: batch norm of training, forward (one input) and backward (two).

    The coefficients are the weight (inputs, C, 1, 1) at one exponent, the constants the bias (C,). The products are
    aligned to e_acc = the finest e_x_i + e_w as the operands of `Add` are, with weight_bits more bits. Then bias,
    activation and the rest as in a convolution.
    """

    weight_bits: int
    bias_bits: int
    exact: ClassVar[bool] = False


GradientOperation = (
    ConvolutionDataGradient
    | ConvolutionWeightGradient
    | BiasGradient
    | MaxPoolGradient
    | AveragePoolGradient
    | ResizeGradient
    | ReluGradient
    | ClipGradient
    | LeakyReluGradient
    | SigmoidGradient
    | ChannelSlice
    | ChannelAffine
)


PARAMETER_GRADIENTS = (ConvolutionWeightGradient, BiasGradient)
"""The operations that sum over images: the rows of their results are output channels."""


def result_rows(spec: KernelSpec, batch: int) -> int:
    """The rows of a kernel's result, N of (N, C, H, W): the images, or the output channels K of a parameter's gradient.

    Data gradients and all operations of inference have one row an image; gradients of weights and biases, one an
    output channel of the layer, as many as dy has channels.
    """
    return spec.inputs[-1].channels if isinstance(spec.operation, PARAMETER_GRADIENTS) else batch


def sigmoid_gradient_fraction_bits(spec: KernelSpec) -> int:
    """Fraction bits of the table of y * (1 - y) <= 1/4: 30, or fewer so that dy times it fits the accumulator."""
    return min(30, spec.accumulator.bits - spec.inputs[1].bits + 1)


@dataclass(frozen=True)
class UpdateSpec:
    """One step of SGD for one parameter tensor, on mantissas (masters w, velocity v, gradient g), elementwise.

    With momentum v' = quantise(momentum * v + g + decay * w) and w' = quantise(w + (-rate) * v'); without, there is no
    velocity and w' = quantise(w + (-rate) * g + (-rate * decay) * w). The working copy of the next mini-batch is
    quantise(w').

    The products are exact. The terms of a sum meet at the finest of their exponents, unless the coarsest would then
    leave an accumulator of 63 bits:

        e_acc = max(min e_i, max(e_i + b_i) + ceil(log2(number of terms)) + 1 - 63)

    where term i has b_i bits, those of the tensor and of the constants' multipliers that scale it (16 for each).
    Left shifts are exact, right shifts round as those of `Add`; the sum cannot overflow and is rounded once. Every
    constant is m * 2^-k with 0 <= m < 2^16; the learning rate comes at run time (the schedule moves it).
    """

    name: str
    master_bits: int
    gradient_bits: int
    velocity_bits: int | None
    """Width of the velocity, None without momentum."""
    working_bits: int
    momentum: FixedConstant | None = None
    decay: FixedConstant | None = None


@dataclass(frozen=True)
class SumsSpec:
    """Exact sums over images and pixels of each channel, no quantisation: int64 (terms, C).

    `terms` lists products of inputs by index: ((0,), (0, 0)) is (sum x, sum x^2), ((1,), (1, 0)) with inputs (x, dy) is
    (sum dy, sum dy * x).
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    terms: tuple[tuple[int, ...], ...]

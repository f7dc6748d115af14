"""The host's part of batch normalisation, in float64: from exact sums to the coefficients of affine kernels.

S. Ioffe, C. Szegedy, "Batch normalization", ICML 2015. With n values x of a channel, m their mean, v their variance and
d = sqrt(v + epsilon):

    y  = gamma * (x - m) / d + beta        = A * x + B
    dx = gamma / d * (dy - mean(dy) - (x - m) / d^2 * mean(dy * (x - m)))   = A * dy + B * x + C

Sums are integers. What cancels is subtracted in integers, so that no digit is lost before the first rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import IntArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """What the forward pass keeps of a batch normalisation, by channel.

    `count` is n; `sums` are the exact sums of x in units of 2^`exponent`; `variance` is the biased one, as it
    normalises.
    """

    count: int
    sums: IntArray
    exponent: int
    mean: Array
    variance: Array

    @property
    def unbiased_variance(self) -> Array:
        """The estimate of the variance of all images: n / (n - 1) times as much; the same for a single value."""
        return self.variance * (self.count / max(self.count - 1, 1))


@dataclass(frozen=True, eq=False)
class Affine:
    """Coefficients (inputs, C, 1, 1) and constants (C,) of an affine kernel."""

    coefficients: Array
    constants: Array

    def raised(self) -> int:
        """The power of two that makes the last input's coefficients as large as the first's; 0 where some are all 0."""
        first, last = (float(np.abs(self.coefficients[index]).max()) for index in (0, -1))
        return frexp(first)[1] - frexp(last)[1] if first and last else 0

    def raise_last(self, shift: int) -> Affine:
        """The last input's coefficients 2^shift times as large."""
        coefficients = self.coefficients.copy()
        coefficients[-1] = np.ldexp(coefficients[-1], shift)
        return Affine(coefficients, self.constants)


@dataclass(frozen=True, eq=False)
class BackwardPart:
    """The affine kernel of dx, and the gradients of gamma and beta, (C,)."""

    affine: Affine
    gamma: Array
    beta: Array


def moments(sums: IntArray, count: int, exponent: int) -> Moments:
    """Mean and variance from (sum x, sum x^2), (2, C), of `count` mantissas a channel at 2^exponent."""
    first, second = (row.astype(object) for row in sums)
    spread = count * second - first * first  # n^2 times the variance
    mean = _scaled(first, exponent) / count
    variance = _scaled(spread, 2 * exponent) / count / count
    return Moments(count, sums[0], exponent, mean, variance)


def forward_affine(mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float) -> Affine:
    """y = A * x + B."""
    scale = gamma / np.sqrt(variance + epsilon)
    return Affine(scale.reshape(1, -1, 1, 1), beta - mean * scale)


def backward_part(kept: Moments, sums: IntArray, exponent: int, gamma: Array, epsilon: float) -> BackwardPart:
    """dx = A * dy + B * x + C and the gradients of the parameters.

    Args:
        kept: of the forward pass.
        sums: (sum dy, sum dy * x), (2, C).
        exponent: that of dy; that of x is in `kept`.
        gamma: the values that the forward pass multiplied by.
        epsilon: of the layer.
    """
    gradient_sum, product_sum = (row.astype(object) for row in sums)
    n = kept.count
    centred = n * product_sum - kept.sums.astype(object) * gradient_sum  # n * sum dy * (x - m)
    along = _scaled(centred, exponent + kept.exponent) / n
    beta_gradient = _scaled(gradient_sum, exponent)
    deviation = np.sqrt(kept.variance + epsilon)
    scale = gamma / deviation
    slope = -scale * along / (deviation * deviation) / n
    constants = -scale * beta_gradient / n - slope * kept.mean
    affine = Affine(np.stack([scale, slope]).reshape(2, -1, 1, 1), constants)
    return BackwardPart(affine, along / deviation, beta_gradient)


def _scaled(integers: NDArray[np.object_], exponent: int) -> Array:
    """Python integers times 2^exponent, each rounded once."""
    return np.ldexp(np.array([float(integer) for integer in integers], np.float64), exponent)

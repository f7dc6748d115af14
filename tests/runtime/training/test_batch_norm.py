from __future__ import annotations

import numpy as np
import pytest

from binpoint.runtime.conversion import dequantize, quantize
from binpoint.runtime.training.batch_norm import Affine, backward_part, forward_affine, moments
from binpoint.runtime.training.host_tensors import fitting_exponent

EPSILON = 1e-5
RANDOM = np.random.default_rng(0)
X = RANDOM.integers(-100, 100, (6, 3, 4, 4))
DY = RANDOM.integers(-100, 100, (6, 3, 4, 4))
GAMMA, BETA = np.array([1.5, 0.5, -2.0]), np.array([0.25, 0.0, 1.0])
EX, EDY = -5, -9


def channel_sums(*factors: np.ndarray) -> np.ndarray:
    return np.prod(factors, axis=0).sum(axis=(0, 2, 3))


def normalise(x: np.ndarray) -> np.ndarray:
    """Batch normalisation as it is defined, in float64."""
    mean, variance = x.mean(axis=(0, 2, 3), keepdims=True), x.var(axis=(0, 2, 3), keepdims=True)
    shape = (1, 3, 1, 1)
    return GAMMA.reshape(shape) * (x - mean) / np.sqrt(variance + EPSILON) + BETA.reshape(shape)


def kept() -> object:
    return moments(np.stack([channel_sums(X), channel_sums(X, X)]), X[:, 0].size, EX)


def test_moments_are_those_of_the_numbers() -> None:
    found, numbers = kept(), X * 2.0**EX
    assert found.mean == pytest.approx(numbers.mean(axis=(0, 2, 3)), rel=1e-14)
    assert found.variance == pytest.approx(numbers.var(axis=(0, 2, 3)), rel=1e-14)
    assert found.unbiased_variance == pytest.approx(numbers.var(axis=(0, 2, 3), ddof=1), rel=1e-14)


def test_no_digit_is_lost_where_the_mean_is_large_and_the_variance_small() -> None:
    x = np.array([30001, 30000, 30000, 30000], np.int64)
    found = moments(np.array([[x.sum()], [(x * x).sum()]]), 4, 0)
    assert found.variance[0] == 3 / 16


def test_sums_near_the_end_of_int64_do_not_wrap() -> None:
    found = moments(np.array([[2**62], [2**62]]), 2**32, 0)
    assert found.mean[0] == 2**30
    assert found.variance[0] == pytest.approx(2**30 - 2**60)


def test_a_single_value_has_the_same_unbiased_variance() -> None:
    assert moments(np.array([[3], [9]]), 1, 0).unbiased_variance[0] == 0


def test_the_forward_kernel_normalises() -> None:
    found = kept()
    affine = forward_affine(found.mean, found.variance, GAMMA, BETA, EPSILON)
    y = X * 2.0**EX * affine.coefficients + affine.constants.reshape(1, 3, 1, 1)
    assert y == pytest.approx(normalise(X * 2.0**EX), abs=1e-12)


def test_the_backward_part_is_the_derivative() -> None:
    x, dy, step = X * 2.0**EX, DY * 2.0**EDY, 1e-6
    part = backward_part(kept(), np.stack([channel_sums(DY), channel_sums(DY, X)]), EDY, GAMMA, EPSILON)
    scale, slope = part.affine.coefficients
    dx = dy * scale + x * slope + part.affine.constants.reshape(1, 3, 1, 1)
    for index in [(0, 0, 0, 0), (3, 1, 2, 1), (5, 2, 3, 3)]:
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        assert dx[index] == pytest.approx((dy * (normalise(up) - normalise(down))).sum() / (2 * step), rel=1e-5)
    normal = (normalise(x) - BETA.reshape(1, 3, 1, 1)) / GAMMA.reshape(1, 3, 1, 1)
    assert part.gamma == pytest.approx((dy * normal).sum(axis=(0, 2, 3)), rel=1e-10)
    assert part.beta == pytest.approx(dy.sum(axis=(0, 2, 3)), rel=1e-12)


def test_coefficients_of_x_keep_their_digits_where_dy_is_tiny() -> None:
    """Those of dy and of x share an exponent; x is 2^20 times as large as dy."""
    x, dy = X * 2.0**EX, DY * 2.0**-30
    part = backward_part(kept(), np.stack([channel_sums(DY), channel_sums(DY, X)]), -30, GAMMA, EPSILON)
    shift = part.affine.raised()
    raised = part.affine.raise_last(shift)
    mantissas, _ = quantize(raised.coefficients, fitting_exponent(raised.coefficients, 16), 16)
    scale, slope = dequantize(mantissas, fitting_exponent(raised.coefficients, 16))
    exact = dy * part.affine.coefficients[0] + x * part.affine.coefficients[1]
    rounded = dy * scale + np.ldexp(x, -shift) * slope
    assert shift > 15
    assert np.abs(rounded - exact).max() < 1e-3 * np.abs(exact).max()


def test_nothing_is_raised_where_there_is_nothing() -> None:
    assert Affine(np.array([1.0, 0.0]).reshape(2, 1, 1, 1), np.zeros(1)).raised() == 0

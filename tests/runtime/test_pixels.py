from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from binpoint.backends.kernel import TensorSpec
from binpoint.backends.program import ProgramInput
from binpoint.runtime.pixels import PixelConverter, to_feature_maps
from binpoint.support.diagnostics import UserError
from tests.programs import PIXELS

COLOURS = ProgramInput(
    "image",
    TensorSpec(3, 2, 2, 8),
    Fraction(1, 255),
    (Fraction("0.485"), Fraction("0.456"), Fraction("0.406")),
    (Fraction("0.229"), Fraction("0.224"), Fraction("0.225")),
)


def test_pixels_are_scaled_centred_and_spread_by_channel() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 2, 2)).astype(np.uint8)
    values = PixelConverter(COLOURS)(pixels)
    assert values.dtype == np.float32
    for (n, c, h, w), pixel in np.ndenumerate(pixels):
        exact = (Fraction(int(pixel), 255) - COLOURS.mean[c]) / COLOURS.deviation[c]
        assert values[n, c, h, w] == np.float32(float(exact))


def test_one_mean_and_deviation_hold_for_all_channels() -> None:
    shared = replace(COLOURS, mean=(Fraction(1, 2),), deviation=(Fraction(2),))
    pixels = np.array([0, 51, 255], np.uint8).reshape(1, 3, 1, 1)
    np.testing.assert_array_equal(PixelConverter(shared)(pixels).ravel(), np.float32([-0.25, -0.15, 0.25]))


def test_sixteen_bit_pixels_convert_like_bytes() -> None:
    wide = np.array([[[[65535, 256], [0, 1]]]], np.uint16)
    np.testing.assert_array_equal(
        PixelConverter(PIXELS)(wide)[0, 0, 1], PixelConverter(PIXELS)(wide.astype(np.uint8))[0, 0, 1]
    )
    assert PixelConverter(PIXELS)(wide)[0, 0, 0, 0] == np.float32((65535 / 255 - 0.5) * 2)


@pytest.mark.parametrize("shape", [(4, 1, 6, 6), (4, 6, 6), (1, 6, 6), (6, 6)])
def test_missing_axes_of_size_one_are_added(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape) % 256
    maps = to_feature_maps(array, PIXELS, "x.npy", "array")
    assert maps.shape == (4 if shape[0] == 4 else 1, 1, 6, 6)
    assert maps.dtype == np.uint8
    np.testing.assert_array_equal(maps.ravel(), array.ravel())


@pytest.mark.parametrize("shape", [(4, 5), (5,), (4, 5, 1, 1)])
def test_vectors_need_no_height_and_width(shape: tuple[int, ...]) -> None:
    vector = ProgramInput("features", TensorSpec(5, 1, 1, 8))
    assert to_feature_maps(np.zeros(shape), vector, "x.npy", "array").shape == (4 if shape[0] == 4 else 1, 5, 1, 1)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(np.float16, np.float32), (np.float32, np.float32), (">f4", np.float32), (np.float64, np.float64)],
)
def test_floats_enter_as_they_are(dtype: str, expected: type) -> None:
    maps = to_feature_maps(np.full((2, 6, 6), 0.5, dtype), PIXELS, "x.npy", "array")
    assert maps.dtype == np.dtype(expected)
    assert (maps == 0.5).all()


@pytest.mark.parametrize(
    ("array", "code", "text"),
    [
        (np.zeros((2, 7, 6)), "wrong-shape", "N x 1 x 6 x 6"),
        (np.zeros((2, 6, 6, 1)), "wrong-shape", "transpose"),
        (np.zeros((2, 36)), "wrong-shape", "reshape"),
        (np.array(1.0), "wrong-shape", "a single number"),
        (np.zeros((0, 6, 6)), "empty-data", "no samples"),
        (np.full((1, 6, 6), -1), "not-pixels", "-1 to -1"),
        (np.full((1, 6, 6), 1 << 16), "not-pixels", "65536"),
        (np.where(np.arange(36).reshape(1, 6, 6) == 8, np.nan, 0), "not-finite", "(0, 0, 1, 2)"),
        (np.full((1, 6, 6), -np.inf), "not-finite", "-inf"),
        pytest.param(
            np.full((1, 6, 6), np.finfo(np.longdouble).max),
            *("not-finite", "inf"),
            marks=pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(float).max, reason="no wider floats"),
        ),
    ],
)
def test_says_what_is_wrong_with_an_array(array: np.ndarray, code: str, text: str) -> None:
    with pytest.raises(UserError) as caught:
        to_feature_maps(array, PIXELS, "x.npy", "array")
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == [code]
    assert text in str(caught.value)

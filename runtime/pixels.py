"""How pixels and arrays become the numbers of a network input."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.program import ProgramInput
from binpoint.runtime.arrays import Array, check_finite
from binpoint.support.diagnostics import Location, user_error

FloatArray = NDArray[np.floating[Any]]

_BYTE_LEVELS, _WORD_LEVELS = 1 << 8, 1 << 16


class PixelConverter:
    """Pixels of one network input as numbers: (p * scale - mean[c]) / deviation[c], to the nearest float32.

    Every pixel value is converted once, from exact fractions, so that no order of float operations matters.
    """

    def __init__(self, declared: ProgramInput) -> None:
        self._input = declared

    def __call__(self, pixels: Array) -> NDArray[np.float32]:
        """Unsigned 8- or 16-bit pixels (N, C, H, W) as float32 of the same shape."""
        table = self._bytes if pixels.dtype == np.uint8 else self._words
        if len(table) == 1:
            return np.take(table[0], pixels)
        values = np.empty(pixels.shape, np.float32)
        for channel, row in enumerate(table):
            np.take(row, pixels[:, channel], out=values[:, channel])
        return values

    @cached_property
    def _bytes(self) -> NDArray[np.float32]:
        return self._table(_BYTE_LEVELS)

    @cached_property
    def _words(self) -> NDArray[np.float32]:
        return self._table(_WORD_LEVELS)

    def _table(self, levels: int) -> NDArray[np.float32]:
        """(channels or 1, levels): the number of each pixel value."""
        mean, deviation = self._input.mean, self._input.deviation
        rows = max(len(mean), len(deviation))
        means, deviations = (
            mean * rows if len(mean) == 1 else mean,
            deviation * rows if len(deviation) == 1 else deviation,
        )
        return np.array(
            [
                [float((Fraction(level) * self._input.scale - center) / spread) for level in range(levels)]
                for center, spread in zip(means, deviations, strict=True)
            ],
            np.float32,
        )


def to_feature_maps(array: Array, declared: ProgramInput, place: str, what: str) -> Array:
    """An array as (N, C, H, W) of pixels (uint8, uint16) or of finite floats (float32, float64).

    A missing axis is added where it has size 1: one sample without N, grey images without C, vectors without
    H and W. `place` is the file, `what` names the array in errors.

    Raises:
        UserError: for another shape, no samples, NaN or infinity, or integers that are no pixels.
    """
    shaped = _with_all_axes(array, declared, place, what)
    if shaped.dtype.kind == "f":
        with np.errstate(over="ignore"):  # wider numbers may become infinite, which is found below
            numbers = shaped.astype(np.float64 if shaped.dtype.itemsize > 4 else np.float32, copy=False)
        check_finite(numbers, place, what)
        return numbers
    low, high = int(shaped.min()), int(shaped.max())
    if low < 0 or high >= _WORD_LEVELS:
        raise user_error(
            "not-pixels",
            f"the {what} holds integers that are no pixels",
            location=Location(place),
            found=f"values from {low} to {high}",
            expected=f"0 to {_BYTE_LEVELS - 1}, or 0 to {_WORD_LEVELS - 1} for 16-bit pixels",
            hint="save numbers that need no conversion as float32",
        )
    return shaped.astype(np.uint8 if high < _BYTE_LEVELS else np.uint16, copy=False)


def _with_all_axes(array: Array, declared: ProgramInput, place: str, what: str) -> Array:
    channels, height, width = declared.tensor.shape
    shape = array.shape
    if shape[1:] == (channels, height, width):
        shaped = array
    elif shape == (channels, height, width):
        shaped = array[np.newaxis]
    elif channels == 1 and shape[1:] == (height, width):
        shaped = array[:, np.newaxis]
    elif channels == 1 and shape == (height, width):
        shaped = array[np.newaxis, np.newaxis]
    elif (height, width) == (1, 1) and shape[1:] == (channels,):
        shaped = array[:, :, np.newaxis, np.newaxis]
    elif (height, width) == (1, 1) and shape == (channels,):
        shaped = array[np.newaxis, :, np.newaxis, np.newaxis]
    else:
        raise user_error(
            "wrong-shape",
            f'the {what} does not fit the network input "{declared.name}"',
            location=Location(place),
            found=" x ".join(map(str, shape)) or "a single number",
            expected=f"N x {channels} x {height} x {width}",
            hint=_shape_hint(shape, (channels, height, width)),
        )
    if not len(shaped):
        raise user_error("empty-data", f"the {what} holds no samples", location=Location(place))
    return shaped


def _shape_hint(shape: tuple[int, ...], wanted: tuple[int, int, int]) -> str | None:
    channels, height, width = wanted
    if shape[-3:] == (height, width, channels):
        return "channels come before rows and columns: transpose to N, C, H, W"
    if shape and np.prod(shape[1:], dtype=np.int64) == channels * height * width:
        return f"reshape the array to N x {channels} x {height} x {width}"
    return None

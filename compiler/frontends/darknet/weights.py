"""Darknet's .weights files: a header, then float32 numbers, section by section.

A convolution has its biases; with batch norm also scales, means and variances; then weights (K, C / groups, R, S). A
connected layer has its biases, then weights (outputs, inputs), then scales, means and variances.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.frontends.darknet.builder import DARKNET_EPSILON, Stored
from binpoint.support.diagnostics import Location, UserError, user_error
from binpoint.support.files import read_bytes

FloatArray = NDArray[np.floating[Any]]

_WORD = 4
_FIRST_WIDE_VERSION = 2
"""From version 0.2 on the count of images seen has 64 bits."""

_TRANSPOSED = 1000
"""A version beyond says that connected layers are stored transposed."""


def read_weights(path: Path, stored: Sequence[Stored]) -> dict[str, NDArray[np.float32]]:
    """The parameters of all sections by full name (`conv0.weight`).

    Raises:
        UserError: where the file is too short or too long for these sections, or holds numbers that are not finite.
    """
    numbers, transposed = _open(path)
    _check_length(path, len(numbers), stored)
    reader = _Reader(path, numbers, transposed)
    parameters: dict[str, NDArray[np.float32]] = {}
    for section in stored:
        parameters |= {name: _as_float32(path, section, values) for name, values in reader.section(section).items()}
    return parameters


class _Reader:
    """Takes arrays from the file, in order."""

    def __init__(self, path: Path, numbers: NDArray[np.float32], transposed: bool) -> None:
        self._path, self._numbers, self._transposed = path, numbers, transposed
        self._next = 0

    def section(self, stored: Stored) -> dict[str, FloatArray]:
        """The parameters of one section, as the language has them."""
        channels = stored.shape[0]
        normed = stored.norm is not None or stored.folded
        beta = self._take((channels,))
        if len(stored.shape) == 2:
            weight = self._connected(stored.shape)
            norm = [self._take((channels,)) for _ in range(3 * normed)]
        else:
            norm = [self._take((channels,)) for _ in range(3 * normed)]
            weight = self._take(stored.shape)
        if not normed:
            return {f"{stored.layer}.weight": weight, f"{stored.layer}.bias": beta}
        return self._normalised(stored, weight, beta, *norm)

    def _normalised(
        self,
        stored: Stored,
        weight: FloatArray,
        beta: FloatArray,
        gamma: FloatArray,
        mean: FloatArray,
        variance: FloatArray,
    ) -> dict[str, FloatArray]:
        """The parameters with a batch norm, or with it folded into them, computed in float64."""
        if (variance < 0).any():
            raise _fault(self._path, stored, "has negative variances", str(variance.min()))
        if stored.folded:
            factor = gamma.astype(np.float64) / (np.sqrt(variance, dtype=np.float64) + DARKNET_EPSILON)
            spread = factor.reshape(-1, *(1,) * (weight.ndim - 1))
            return {f"{stored.layer}.weight": weight * spread, f"{stored.layer}.bias": beta - mean * factor}
        widened = variance + 2 * DARKNET_EPSILON * np.sqrt(variance, dtype=np.float64)
        named: dict[str, FloatArray] = {"gamma": gamma, "beta": beta, "mean": mean, "variance": widened}
        return {f"{stored.layer}.weight": weight, **{f"{stored.norm}.{short}": each for short, each in named.items()}}

    def _connected(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Weights of a connected layer; old files hold them as (inputs, outputs)."""
        return self._take(shape[::-1]).T if self._transposed else self._take(shape)

    def _take(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        start, self._next = self._next, self._next + prod(shape)
        return self._numbers[start : self._next].reshape(shape)


def _open(path: Path) -> tuple[NDArray[np.float32], bool]:
    """The numbers behind the header, and whether connected layers are transposed."""
    data = read_bytes(path, "weights file")
    header = np.frombuffer(data[: 3 * _WORD], "<i4") if len(data) >= 3 * _WORD else None
    if header is None or header.min() < 0:
        found = f"{len(data)} bytes" if header is None else f"version {header[0]}.{header[1]}.{header[2]}"
        raise user_error(
            "wrong-file",
            "this is no Darknet weights file",
            location=Location(str(path)),
            found=found,
            expected="a header of 16 or 20 bytes, then float32 numbers",
        )
    major, minor = int(header[0]), int(header[1])
    transposed = major > _TRANSPOSED or minor > _TRANSPOSED
    wide = 10 * major + minor >= _FIRST_WIDE_VERSION and major < _TRANSPOSED and minor < _TRANSPOSED
    length = (5 if wide else 4) * _WORD
    whole = len(data) - (len(data) - length) % _WORD
    if whole != len(data) or len(data) < length:
        raise user_error(
            "truncated-weights",
            "the weights file ends inside a number",
            location=Location(str(path)),
            found=f"{len(data)} bytes",
            expected=f"{length} bytes and a multiple of {_WORD}",
        )
    return np.frombuffer(data[length:], "<f4"), transposed


def _check_length(path: Path, found: int, stored: Sequence[Stored]) -> None:
    """Refuse a file that does not hold exactly the numbers of these sections."""
    expected = 0
    for section in stored:
        expected += _count(section)
        if found < expected:
            total = sum(map(_count, stored))
            raise user_error(
                "truncated-weights",
                f"the weights file ends inside {section.section}",
                location=Location(str(path)),
                found=f"{found:,} numbers",
                expected=f"{total:,} numbers",
                hint="a file of the first layers alone, such as name.conv.15, cannot be imported",
            )
    if found > expected:
        raise user_error(
            "wrong-weights",
            "the weights file goes on after the last layer",
            location=Location(str(path)),
            found=f"{found:,} numbers",
            expected=f"{expected:,} numbers",
            hint="is it the weights file of another network?",
        )


def _count(stored: Stored) -> int:
    """Numbers of one section."""
    normed = stored.norm is not None or stored.folded
    return prod(stored.shape) + stored.shape[0] * (4 if normed else 1)


def _as_float32(path: Path, stored: Stored, values: FloatArray) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values, np.float32)
    finite = np.isfinite(single)
    if not finite.all():
        raise _fault(path, stored, "has numbers that are not finite", str(single[~finite][0]))
    return single


def _fault(path: Path, stored: Stored, what: str, found: str) -> UserError:
    return user_error("wrong-weights", f"{stored.section} {what}", location=Location(str(path)), found=found)

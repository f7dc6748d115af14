"""Memory that generated code can use in place."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import DTypeLike, NDArray

from binpoint.backends.kernel import IntArray

ALIGNMENT = 64
"""Bytes. Generated code uses aligned vector loads and stores; memory that is less aligned crashes it."""


def aligned_empty(shape: tuple[int, ...], dtype: DTypeLike) -> IntArray:
    """An uninitialised array whose memory starts at a multiple of ALIGNMENT."""
    element = np.dtype(dtype)
    size = prod(shape) * element.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    return np.ndarray(shape, element, memory, -address(memory) % ALIGNMENT)


def aligned_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> IntArray:
    """An array of zeros whose memory starts at a multiple of ALIGNMENT."""
    array = aligned_empty(shape, dtype)
    array[...] = 0
    return array


def aligned_copy(array: IntArray) -> IntArray:
    """A contiguous copy whose memory starts at a multiple of ALIGNMENT."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def is_aligned(array: IntArray) -> bool:
    """Whether code can use the array's own memory: it is contiguous, writable and starts at a multiple of ALIGNMENT."""
    flags = array.flags
    return bool(flags.c_contiguous and flags.writeable) and address(array) % ALIGNMENT == 0


def address(array: NDArray[np.generic]) -> int:
    """Where an array's first element lies; several times faster than `array.ctypes.data`."""
    data: int = array.__array_interface__["data"][0]
    return data

"""How many windows fit: the arithmetic of shapes that the language, the IR and the kernels share."""

from __future__ import annotations

MAXIMUM_ELEMENTS = 2**31
"""The most elements that a feature map of one image, or a parameter, may have."""


def window_output(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """How many windows fit along one axis; 0 or less where none does."""
    return (size + before + after - dilation * (kernel - 1) - 1) // stride + 1


def window_elements(size: int, kernel: int, stride: int, before: int, after: int) -> frozenset[int]:
    """How many elements of the map the windows along one axis hold, padding left out: {2, 3} where padding is 1.

    Takes as many steps as there are windows that reach into the padding.
    """
    count = window_output(size, kernel, stride, before, after)
    inside = range(-(-before // stride), min(count, (size - kernel + before) // stride + 1))
    counts = {kernel} if inside else set()
    for index in (*range(min(inside.start, count)), *range(max(inside.stop, inside.start), count)):
        first = index * stride - before
        counts.add(min(first + kernel, size) - max(first, 0))
    return frozenset(counts)

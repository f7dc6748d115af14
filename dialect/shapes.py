"""Shape rules that the verifiers of both dialects share. Feature maps are (C, H, W) here, without the batch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.attributes import join_sizes
from binpoint.support.shapes import MAXIMUM_ELEMENTS, window_elements, window_output

Shape = tuple[int, int, int]
Padding = tuple[int, int, int, int]
Pair = tuple[int, int]

MAXIMUM_WINDOW = 2**16
"""The largest window, along either axis, of an average pool whose border windows have divisors of their own."""


def window_shape(shape: Shape, kernel: Pair, stride: Pair, padding: Padding, dilation: Pair = (1, 1)) -> Pair:
    """(H, W) of the result of sliding a window over a feature map. Raises VerifyException where none fits."""
    top, left, bottom, right = padding
    height = window_output(shape[1], kernel[0], stride[0], top, bottom, dilation[0])
    width = window_output(shape[2], kernel[1], stride[1], left, right, dilation[1])
    if height < 1 or width < 1:
        raise VerifyException(f"no {join_sizes(kernel)} window fits into {join_sizes(shape)}")
    return height, width


def pool_shape(shape: Shape, kernel: Pair, stride: Pair, padding: Padding) -> Shape:
    """(C, H, W) of the result of a pool; every window must hold at least one element of the map."""
    top, left, bottom, right = padding
    if max(top, bottom) >= kernel[0] or max(left, right) >= kernel[1]:
        raise VerifyException(f"the padding {list(padding)} is not smaller than the {join_sizes(kernel)} window")
    return (shape[0], *window_shape(shape, kernel, stride, padding))


def window_divisors(shape: Shape, kernel: Pair, stride: Pair, padding: Padding, include_padding: bool) -> list[int]:
    """What the windows of an average pool divide by, ascending; with `include_padding` all by their full size."""
    if include_padding:
        return [kernel[0] * kernel[1]]
    if max(kernel) > MAXIMUM_WINDOW:
        raise VerifyException(f"a {join_sizes(kernel)} window is larger than {MAXIMUM_WINDOW} along an axis")
    top, left, bottom, right = padding
    heights = window_elements(shape[1], kernel[0], stride[0], top, bottom)
    widths = window_elements(shape[2], kernel[1], stride[1], left, right)
    return sorted({height * width for height in heights for width in widths})


def filter_shape(shape: Shape, weight: Sequence[int], groups: int) -> int:
    """The number of output channels K of filters (K, C / groups, R, S) over a feature map of C channels."""
    if len(weight) != 4:
        raise VerifyException(f"filters have 4 dimensions, not {len(weight)}")
    if shape[0] % groups or weight[0] % groups:
        raise VerifyException(f"{groups} groups do not divide {shape[0]} input and {weight[0]} output channels")
    if weight[1] != shape[0] // groups:
        raise VerifyException(
            f"filters over {weight[1]} channels read a feature map of {shape[0]} channels in {groups} group(s)"
        )
    return weight[0]


def concat_shape(shapes: Sequence[Shape]) -> Shape:
    """The feature maps one after the other by channel."""
    if len({shape[1:] for shape in shapes}) != 1:
        raise VerifyException(f"concat of unlike heights or widths: {', '.join(join_sizes(shape) for shape in shapes)}")
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def same_shape(shapes: Sequence[Shape]) -> Shape:
    """The one shape that all have."""
    if len(set(shapes)) != 1:
        raise VerifyException(f"feature maps of unlike shapes: {', '.join(join_sizes(shape) for shape in shapes)}")
    return shapes[0]


def reshaped(shape: Shape, target: Shape) -> Shape:
    """The target, if it has as many elements."""
    if prod(shape) != prod(target):
        raise VerifyException(f"{join_sizes(shape)} has not as many elements as {join_sizes(target)}")
    return target


def check_elements(sizes: Sequence[int]) -> None:
    """Raise VerifyException for a tensor that is too large."""
    if prod(sizes) > MAXIMUM_ELEMENTS:
        raise VerifyException(f"{join_sizes(sizes)} is more than {MAXIMUM_ELEMENTS} elements")


def check_shape(expected: Sequence[int], found: Sequence[int], what: str) -> None:
    """Raise VerifyException unless both are equal."""
    if tuple(expected) != tuple(found):
        raise VerifyException(f"{what} is {join_sizes(found)}, expected {join_sizes(expected)}")


def check_vector(channels: int, found: Sequence[int], what: str) -> None:
    """Raise VerifyException unless the shape is that of one number a channel."""
    check_shape((channels,), found, what)

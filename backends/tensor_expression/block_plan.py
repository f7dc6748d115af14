"""What decides the code that quantises values block by block, and the integers that it reads. No TVM here.

Rounding is monotone, so "this value overflows at that candidate" is a comparison with two integers: the greatest and
the least value that still fit. They come from the host, exactly; the code compares, counts and shifts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from binpoint.backends.blocks import block_size, grid_shape
from binpoint.backends.kernel import IntArray, TensorSpec
from binpoint.backends.memory import aligned_zeros
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.tensor_expression.layout import feature_map_layout
from binpoint.backends.tensor_expression.plan import Container
from binpoint.support.numeric import Neighbour, Rounding

NARROWEST_VECTOR = 8
"""Channels of a layout's block that are worth a vector; narrower feature maps are computed channel by channel."""


class Step(StrEnum):
    """The kernels between the values of a layer and its mantissas."""

    ANALYSE = "analyse"
    """Choose each block's exponent from its own values, and quantise: one pass over values that are near."""
    COUNT = "count"
    """Count the overflows of each block at each candidate."""
    CHOOSE = "choose"
    """Choose each block's exponent from counts: its own, or those of its neighbours."""
    QUANTISE = "quantise"
    """Quantise with exponents that are known."""


@dataclass(frozen=True)
class ValueFormat:
    """The container in which values are rounded, and the dtype in which they are stored."""

    container: Container = Container.INT32
    dtype: str = "int32"


@dataclass(frozen=True)
class BlockPlan:
    """Everything that decides the code of a step; equal plans share it.

    `lifted` says that some candidates ask for left shifts. `neighbours` matters to CHOOSE alone: None for the block
    itself.
    """

    step: Step
    output: TensorSpec
    values: ValueFormat = ValueFormat()
    rounding: Rounding = Rounding.HALF_EVEN
    lifted: bool = False
    neighbours: tuple[Neighbour, ...] | None = None

    @property
    def container(self) -> Container:
        """In which values are rounded."""
        return self.values.container

    @property
    def analysed(self) -> bool:
        """Whether the step knows how many values saturate without looking at what it has rounded."""
        return self.step is Step.ANALYSE

    @property
    def lanes(self) -> int:
        """Channels of one vector."""
        return vector_lanes(self.output)

    @property
    def vectors(self) -> int:
        """Vectors of all channels, those that only fill the last block included."""
        return channel_vectors(self.output)

    @property
    def shared(self) -> bool:
        """Whether all channels of a block share an exponent."""
        return not self.output.granularity.per_channel

    @property
    def block(self) -> tuple[int, int]:
        """(height, width) of a block."""
        return block_size(self.output)

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of blocks."""
        return grid_shape(self.output)[1:]


def vector_lanes(tensor: TensorSpec) -> int:
    """Channels that code over blocks handles at once: a block of the layout, or one."""
    block = feature_map_layout(tensor).block
    return block if block >= NARROWEST_VECTOR else 1


def channel_vectors(tensor: TensorSpec) -> int:
    """How many vectors hold a pixel of a feature map."""
    layout = feature_map_layout(tensor)
    return layout.blocks(tensor.channels) * layout.block // vector_lanes(tensor)


def stored_channels(tensor: TensorSpec) -> int:
    """Channels of a feature map in memory."""
    return channel_vectors(tensor) * vector_lanes(tensor)


@dataclass(frozen=True)
class Thresholds:
    """The integers that the steps read, for J candidates and the channels of the layout.

    Attributes:
        highs, lows: (J, channels) the greatest and least value that fit at each candidate.
        candidates: (J,) the exponents, the coarsest first.
        units: (channels,) the exponent of the values, after they were lifted: a right shift is chosen - unit >= 1.
        lifts: (channels,) left shifts before.
        lifted: whether there are any.
    """

    highs: IntArray
    lows: IntArray
    candidates: IntArray
    units: IntArray
    lifts: IntArray

    @property
    def lifted(self) -> bool:
        """Whether any channel is shifted to the left."""
        return bool(self.lifts.any())


def thresholds(
    tensor: TensorSpec, candidates: Sequence[int], exponents: Sequence[int], rounding: Rounding, container: Container
) -> Thresholds | None:
    """The integers for values of channel c at `exponents[c]`; None where a lifted value might leave the container.

    Channels that only fill the layout have thresholds that nothing passes.
    """
    channels, dtype = stored_channels(tensor), container.dtype
    # Nothing passes these, and there is room for one more.
    least, greatest = -(1 << container.narrow_bits), 1 << container.narrow_bits
    highs = aligned_zeros((len(candidates), channels), dtype)
    lows = aligned_zeros((len(candidates), channels), dtype)
    highs[...], lows[...] = greatest, least
    units, lifts = aligned_zeros((channels,), dtype), aligned_zeros((channels,), dtype)
    units[...] = candidates[-1] - 1
    columns: dict[int, tuple[list[int], list[int]]] = {}
    for exponent in sorted(set(exponents)):
        limits = [fitting(candidate - exponent, tensor.bits, rounding) for candidate in candidates]
        lift = max(0, exponent + 1 - candidates[-1])
        if lift and (max(limits[0][1], -limits[0][0]) + 1) << lift >= 1 << container.narrow_bits:
            return None
        columns[exponent] = [max(low, least) for low, _ in limits], [min(high, greatest) for _, high in limits]
    for exponent, (low, high) in columns.items():
        here = np.flatnonzero(np.asarray(exponents) == exponent)
        lows[:, here], highs[:, here] = np.array(low)[:, np.newaxis], np.array(high)[:, np.newaxis]
        lifts[here] = max(0, exponent + 1 - candidates[-1])
        units[here] = exponent - lifts[here]
    ordered = aligned_zeros((len(candidates),), "int32")
    ordered[...] = candidates
    return Thresholds(highs, lows, ordered, units, lifts)


def fitting(shift: int, bits: int, rounding: Rounding) -> tuple[int, int]:
    """The least and the greatest integer that, shifted right by `shift` and rounded, still fit `bits` bits."""
    least, greatest = mantissa_range(bits)
    if shift <= 0:
        return -(-least >> -shift), greatest >> -shift
    low, beyond, half = least << shift, (greatest + 1) << shift, 1 << (shift - 1)
    match rounding:
        case Rounding.FLOOR:
            return low, beyond - 1
        case Rounding.HALF_UP | Rounding.HALF_EVEN:
            # The least mantissa is even and the greatest odd: ties go up at both ends.
            return low - half, beyond - half - 1
        case Rounding.HALF_AWAY:
            return low - half + 1, beyond - half - 1
    raise ValueError(f"{rounding} rounding has no thresholds")

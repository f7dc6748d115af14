"""How gradients of parameters lie in memory while they are computed: [K blocks, C, R, S, block], K the output channels.

The block is a multiple of 8, and K and C are rounded up; what they hold beyond the parameter is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from binpoint.backends.kernel import BoolArray, IntArray
from binpoint.backends.memory import aligned_empty
from binpoint.backends.tensor_expression.statistics import pair_list

VECTOR, ROW_VECTORS = 8, 16
"""Elements of a vector, and vectors of a row: how `quantize_sums_kernel` cuts up a layout's array."""


@dataclass(frozen=True)
class ParameterLayout:
    """The layout of a parameter (K, C, R, S); `stored_channels` is C rounded up."""

    parameter: tuple[int, int, int, int]
    block: int
    stored_channels: int

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """[K blocks, C, R, S, block]."""
        outputs, _, *kernel = self.parameter
        return -(-outputs // self.block), self.stored_channels, kernel[0], kernel[1], self.block

    @property
    def size(self) -> int:
        """Elements, padding included."""
        return prod(self.shape)

    def unpack(self, blocked: IntArray) -> IntArray:
        """The parameter (K, C, R, S), contiguous and aligned."""
        outputs, channels = self.parameter[:2]
        mantissas = aligned_empty(self.parameter, blocked.dtype)
        filters = mantissas.reshape(outputs, -1)
        whole, rest = divmod(outputs, self.block)
        rows = blocked[:, :channels].reshape(len(blocked), filters.shape[1], self.block).transpose(0, 2, 1)
        filters[: outputs - rest].reshape(whole, self.block, filters.shape[1])[...] = rows[:whole]
        if rest:
            filters[outputs - rest :] = rows[whole, :rest]
        return mantissas

    def pairs(self, sample: BoolArray) -> IntArray:
        """Where the sampled pairs (output channel, input channel) lie, for `statistics.StatisticsCircuit`.

        The array is read as one of `len(array)` images with C * block channels.
        """
        pairs = pair_list(sample)
        outputs, channels = pairs[:, 0].copy(), pairs[:, 1].copy()
        pairs[:, 0], pairs[:, 1] = outputs // self.block, channels * self.block + outputs % self.block
        return pairs


@dataclass(frozen=True)
class ParameterMap:
    """The gradient of a parameter in a layout, as a buffer of the backend."""

    layout: ParameterLayout
    blocked: IntArray

    @property
    def batch(self) -> int:
        """K, the rows of the result."""
        return self.layout.parameter[0]

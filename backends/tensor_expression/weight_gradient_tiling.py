"""How the AVX2 weight gradient is cut up: pairs of images, register tiles, chunks. Plain integers, no TVM.

One `vpmaddwd` multiplies the mantissas of two images at once: a register holds dy of 8 output channels, a pair of
images each, and is multiplied with x of one pixel, the same pair, on every lane. Kernel, stride, padding and dilation
only decide which pixel of x that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from binpoint.backends.kernel import Convolution, TensorSpec
from binpoint.backends.tensor_expression.convolution_tiling import LANES, PackedConvolution, round_up, stored_vectors
from binpoint.backends.tensor_expression.layout import feature_map_layout
from binpoint.backends.tensor_expression.parameter_layout import ParameterLayout

REGISTERS = 16
"""AVX2 registers of a core."""

SPARE_REGISTERS = 2
"""Registers of the innermost loop besides accumulators and dy: x on every lane, and a product."""

MOST_VECTORS = 3
"""The most vectors of output channels a tile has."""

CHUNK_STEPS = 256
"""Pixels that a tile sums before it adds to memory: dy of so many fits the first cache, and is used for many tiles."""

FEWEST_STEPS = 96
"""Sums that overflow 32 bits in fewer steps are split."""

LOOP_INSTRUCTIONS = 2
"""Instructions of the innermost loop that do not grow with the tile."""

SPLIT_STEPS = 65535
"""Steps that a split accumulator sums exactly (see `tile_choice.LONGEST_SPLIT_REDUCTION`)."""

TASKS = 16
"""Tasks that are enough to keep threads busy."""


@dataclass(frozen=True)
class GradientTile:
    """Results that stay in registers: `taps` of a kernel's row x `channels` of x, for `vectors` of 8 channels of dy."""

    taps: int
    channels: int
    vectors: int

    @property
    def elements(self) -> int:
        """Elements of x, each loaded onto every lane once a step."""
        return self.taps * self.channels


@dataclass(frozen=True)
class WeightGradientTiling(PackedConvolution):
    """Sizes of one kernel. `split` says that an accumulator is two int32, as in `convolution_tiling`."""

    images: TensorSpec
    gradient: TensorSpec
    split: bool
    tile: GradientTile

    @property
    def group_channels(self) -> int:
        """Input channels of a group."""
        return self.images.channels // self.convolution.groups

    @property
    def channel_tiles(self) -> int:
        """Tiles of input channels of a group."""
        return -(-self.group_channels // self.tile.channels)

    @property
    def stored_vectors(self) -> int:
        """Vectors of 8 output channels in the layout of dy."""
        return stored_vectors(self.gradient)

    @property
    def vector_tiles(self) -> int:
        """Tiles of vectors."""
        return -(-self.stored_vectors // self.tile.vectors)

    @property
    def group_vector_tiles(self) -> int:
        """Tiles of vectors of a group."""
        return self.vector_tiles // self.convolution.groups

    @property
    def layout(self) -> ParameterLayout:
        """Of the sums."""
        parameter = self.gradient.channels, self.group_channels, *self.convolution.kernel
        return ParameterLayout(parameter, self.tile.vectors * LANES, self.channel_tiles * self.tile.channels)

    @property
    def longest_chunk(self) -> int:
        """Steps that an accumulator sums exactly."""
        return SPLIT_STEPS if self.split else exact_steps(self.images, self.gradient)

    @property
    def chunk_rows(self) -> int:
        """Rows of dy of a chunk: up to CHUNK_STEPS pixels, in chunks that fill the height best."""
        height = self.gradient.height
        most = min(height, max(1, min(CHUNK_STEPS, self.longest_chunk) // self.gradient.width))
        return min(range(most, most // 2, -1), key=lambda rows: round_up(height, rows))

    @property
    def padded_height(self) -> int:
        """Rows of dy, rounded up to whole chunks."""
        return round_up(self.gradient.height, self.chunk_rows)

    @property
    def packed_rows(self) -> int:
        """Rows of x with padding, as far as they are read."""
        return self.packed_size(0, self.padded_height)

    @property
    def packed_columns(self) -> int:
        """Columns of x with padding, as far as they are read."""
        return self.packed_size(1, self.gradient.width)

    def chunk_pairs(self, batch: int) -> int:
        """Pairs of images of a chunk, for a batch: more than one where a whole map is a small chunk."""
        pairs = -(-batch // 2)
        steps = self.chunk_rows * self.gradient.width
        if self.chunk_rows < self.gradient.height:
            return 1
        most = max(1, min(CHUNK_STEPS, self.longest_chunk) // steps)
        return -(-pairs // -(-pairs // most))

    @property
    def channel_tasks(self) -> int:
        """Parts of a group's tiles of channels that are tasks of their own: as few as give enough tasks."""
        wanted = -(-TASKS // self.vector_tiles)
        divisors = [part for part in range(1, self.channel_tiles + 1) if self.channel_tiles % part == 0]
        return next((part for part in divisors if part >= wanted), self.channel_tiles)

    @property
    def row_tasks(self) -> bool:
        """Whether each row of the kernel is a task of its own."""
        return self.vector_tiles * self.channel_tasks < TASKS // 2


def exact_steps(images: TensorSpec, gradient: TensorSpec) -> int:
    """How many sums of two products int32 holds."""
    return ((1 << 31) - 1) >> (images.bits + gradient.bits - 1)


@lru_cache(maxsize=1024)
def choose_gradient_tiling(
    convolution: Convolution, images: TensorSpec, gradient: TensorSpec
) -> WeightGradientTiling | None:
    """The cheapest tiling, None where the AVX2 design does not fit.

    It fits wherever the layout of dy has whole vectors of channels, those of one group each if there are several, and
    a row of dy is not longer than what an accumulator holds.
    """
    if feature_map_layout(gradient).block % LANES:
        return None
    if convolution.groups > 1 and gradient.channels // convolution.groups % LANES:
        return None
    steps = exact_steps(images, gradient)
    split = steps < max(FEWEST_STEPS, gradient.width)
    if split and gradient.width > SPLIT_STEPS:
        return None
    shape = replace(convolution, weight_bits=0, bias_bits=None)
    tilings = [WeightGradientTiling(shape, images, gradient, split, tile) for tile in _tiles(convolution, split)]
    fitting = [each for each in tilings if _one_group(each)]
    return min(fitting, key=instructions_per_product)


def _one_group(tiling: WeightGradientTiling) -> bool:
    groups = tiling.convolution.groups
    return groups == 1 or tiling.gradient.channels // groups // LANES % tiling.tile.vectors == 0


def _tiles(convolution: Convolution, split: bool) -> Iterator[GradientTile]:
    """The tiles that fit the registers."""
    columns = convolution.kernel[1]
    divisors = [taps for taps in range(1, columns + 1) if columns % taps == 0]
    for taps, channels, vectors in product(divisors, range(1, REGISTERS), range(1, MOST_VECTORS + 1)):
        accumulators = taps * channels * vectors * (2 if split else 1)
        if accumulators + vectors + SPARE_REGISTERS <= REGISTERS:
            yield GradientTile(taps, channels, vectors)


def instructions_per_product(tiling: WeightGradientTiling) -> float:
    """The model of a kernel's speed: instructions a useful vector of products."""
    tile = tiling.tile
    results = tile.elements * tile.vectors
    step = tile.elements + tile.vectors + (4 if tiling.split else 2) * results + LOOP_INSTRUCTIONS
    useful = tiling.group_channels * tiling.gradient.channels
    computed = tiling.layout.stored_channels * tiling.vector_tiles * tile.vectors * LANES
    return step / results * computed / useful

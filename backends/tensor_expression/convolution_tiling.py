"""How the AVX2 convolution is cut up: packed rows, register tiles, tasks, calls. Plain integers, no TVM.

An AVX2 register holds 8 int32 results: 8 output channels of one pixel. One `vpmaddwd` multiplies 16 pairs of int16 and
adds neighbours, so the reduction runs over pairs: two neighbouring input channels or, where channels are few, two
neighbouring elements of a row of (tap, channel).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from binpoint.backends.kernel import Convolution, TensorSpec
from binpoint.backends.tensor_expression.layout import feature_map_layout

LANES = 8
"""int32 lanes of an AVX2 register: output channels of one vector."""

CHANNEL_BLOCK = 16
"""Input channels that lie together in a packed row, or a small multiple of it, where there are that many: the pixels
of a tile then lie in different cache sets."""

SHORTEST_LOOP = 16
"""Pairs of the innermost loop, if it has as many: LLVM unrolls a shorter loop whole, and spills accumulators."""

WIDEST_ODD_BLOCK = 7
"""Odd channel counts up to here are packed without padding, at the price of twice the memory."""

TASK_MACS = 1 << 19
"""Multiply-accumulates that make a task worth handing to a thread: about 10 microseconds."""

WORD_BYTES = 4
"""A packed word: two int16."""

ROWS_BYTES = 1 << 24
"""Packed rows of the images of one call: they fit a usual L3 cache. A call for each image would keep them nearer, but
calls cost more than that saves."""


@dataclass(frozen=True)
class RegisterTile:
    """Results that stay in registers through the reduction: images x rows x columns, `vectors` of 8 channels each."""

    images: int
    rows: int
    columns: int
    vectors: int

    @property
    def pixels(self) -> int:
        """Pixels of the tile: each is broadcast once a step and used for every vector."""
        return self.images * self.rows * self.columns

    @property
    def results(self) -> int:
        """Vectors of results."""
        return self.pixels * self.vectors


@dataclass(frozen=True)
class PackedConvolution:
    """A convolution whose input is packed: which of its rows and pixels, and from one result to the next."""

    convolution: Convolution

    @property
    def skip(self) -> tuple[int, int]:
        """Packing takes every so many rows and columns: a kernel of one tap never reads those between."""
        vertical, horizontal = self.convolution.stride
        return vertical if self.convolution.kernel[0] == 1 else 1, horizontal if self.convolution.kernel[1] == 1 else 1

    @property
    def packed_stride(self) -> tuple[int, int]:
        """Packed rows and pixels from one result to the next."""
        return self.convolution.stride[0] // self.skip[0], self.convolution.stride[1] // self.skip[1]

    def packed_size(self, axis: int, results: int) -> int:
        """Packed rows (axis 0) or pixels of a row (axis 1) that so many results in a line read."""
        span = (self.convolution.kernel[axis] - 1) * self.convolution.dilation[axis] + 1
        return (results - 1) * self.packed_stride[axis] + span


@dataclass(frozen=True)
class ConvolutionTiling(PackedConvolution):
    """Sizes of one convolution kernel.

    Rows are packed as int32 words, two int16 each. With an even channel block word i holds elements 2i and 2i + 1;
    with an odd one word i holds elements i and i + 1, so that every element starts a pair.

    `split` says that an accumulator is two int32: the sum's low 32 bits, and the sum of the products' upper halves.
    """

    input: TensorSpec
    output: TensorSpec
    split: bool
    tile: RegisterTile

    @property
    def tile_images(self) -> int:
        """Images of a register tile."""
        return self.tile.images

    @property
    def single_pixel(self) -> bool:
        """Whether an output map is one pixel: a linear layer, or one like it."""
        return self.output.height * self.output.width == 1

    @property
    def group_channels(self) -> int:
        """Input channels of one group."""
        return self.input.channels // self.convolution.groups

    @property
    def run_taps(self) -> int:
        """Taps whose elements lie together in a packed row: the kernel's row, or one tap where dilation leaves gaps."""
        return self.convolution.kernel[1] if self.convolution.dilation[1] == 1 else 1

    @property
    def runs(self) -> int:
        """Runs of elements that a row of the kernel reads."""
        return self.convolution.kernel[1] // self.run_taps

    @property
    def channel_blocks(self) -> int:
        """Blocks of input channels of one group."""
        if self.input.height * self.input.width == 1:
            return 1
        block = CHANNEL_BLOCK * -(-2 * SHORTEST_LOOP // (CHANNEL_BLOCK * self.run_taps))
        return max(1, self.group_channels // block)

    @property
    def channel_block(self) -> int:
        """Input channels of a block, the last ones perhaps padding. Even, or odd and small."""
        size = -(-self.group_channels // self.channel_blocks)
        return size if size % 2 == 0 or size <= WIDEST_ODD_BLOCK else size + 1

    @property
    def overlapping(self) -> bool:
        """Whether neighbouring words share an element."""
        return self.channel_block % 2 == 1

    @property
    def pixel_words(self) -> int:
        """Words of a packed row from one pixel to the next."""
        return self.channel_block if self.overlapping else self.channel_block // 2

    @property
    def pair_words(self) -> int:
        """Words from one pair of the reduction to the next."""
        return 2 if self.overlapping else 1

    @property
    def contiguous_words(self) -> int:
        """Words of a packed row whose elements lie together in the input."""
        block = feature_map_layout(self.input).block
        whole_blocks = not self.overlapping and self.channel_block % block == 0 and block % 2 == 0
        return block // 2 if whole_blocks else self.pixel_words

    @property
    def run(self) -> int:
        """Elements of a run."""
        return self.channel_block * self.run_taps

    @property
    def pairs(self) -> int:
        """Pairs of a run; the last may have one element."""
        return -(-self.run // 2)

    @property
    def reduction_pairs(self) -> int:
        """Pairs that one result sums."""
        return self.channel_blocks * self.convolution.kernel[0] * self.runs * self.pairs

    @property
    def padded_height(self) -> int:
        """Output rows, rounded up to whole tiles."""
        return round_up(self.output.height, self.tile.rows)

    @property
    def padded_width(self) -> int:
        """Output columns, rounded up to whole tiles."""
        return round_up(self.output.width, self.tile.columns)

    @property
    def stored_vectors(self) -> int:
        """Vectors of 8 output channels in the output's layout."""
        return stored_vectors(self.output)

    @property
    def padded_vectors(self) -> int:
        """Vectors of 8 output channels, rounded up to whole tiles."""
        return round_up(self.stored_vectors, self.tile.vectors)

    @property
    def packed_rows(self) -> int:
        """Input rows with padding, as far as the tiles read them."""
        return self.packed_size(0, self.padded_height)

    @property
    def row_words(self) -> int:
        """Words of a packed row, as far as the tiles read it."""
        return self.packed_size(1, self.padded_width) * self.pixel_words

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Packed weights as vectors of 8 output channels x 2 elements."""
        return (
            self.padded_vectors // self.tile.vectors,
            self.channel_blocks,
            self.convolution.kernel[0],
            self.runs,
            self.pairs,
            self.tile.vectors,
        )

    @property
    def rows_per_task(self) -> int:
        """Output rows that one task computes: whole tiles that divide the padded height."""
        tiles = self.padded_height // self.tile.rows
        results = prod((self.tile.images, self.tile.rows, self.padded_width, self.tile.vectors, LANES))
        macs = results * 2 * self.reduction_pairs
        divisors = (n for n in range(1, tiles + 1) if tiles % n == 0)
        return self.tile.rows * next(n for n in divisors if n * macs >= TASK_MACS or n == tiles)

    @property
    def images_per_call(self) -> int:
        """Images of a batch that one call should compute, so that their packed rows stay in the cache."""
        blocks = self.convolution.groups * self.channel_blocks
        return max(1, ROWS_BYTES // (WORD_BYTES * blocks * self.packed_rows * self.row_words))


def stored_vectors(tensor: TensorSpec) -> int:
    """Vectors of 8 channels in a feature map's layout."""
    layout = feature_map_layout(tensor)
    return layout.blocks(tensor.channels) * layout.block // LANES


def round_up(value: int, multiple: int) -> int:
    """The least multiple that is not below the value."""
    return -(-value // multiple) * multiple

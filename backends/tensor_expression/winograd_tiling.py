"""How Winograd's convolution is cut up: strips of tiles, register tiles, groups of channels. Plain integers, no TVM.

A strip is some rows of tiles of a map. Its tiles are numbered from left to right and from top to bottom; products of
one point of the tiles are a matrix product, (tiles x channels) by (channels x outputs), whose register tile has
`tiles` tiles and `vectors` of 8 outputs. The products of a group of vectors, at all points, are kept until the results
of the group are computed from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from binpoint.backends.kernel import Convolution, TensorSpec
from binpoint.backends.tensor_expression.convolution_tiling import LANES, ROWS_BYTES, WORD_BYTES, round_up
from binpoint.backends.tensor_expression.layout import feature_map_layout
from binpoint.backends.tensor_expression.winograd_transforms import Transform

BLOCK_WORDS = 8
"""Words of int16 pairs of a channel block of the input's layout."""


@dataclass(frozen=True)
class WinogradTiling:
    """Sizes of one kernel.

    `strip_rows` are the rows of tiles of a strip. `whole` says that a map is one strip, transformed before its groups
    of channels become tasks: for maps that are smaller than the weights. Otherwise strips are tasks.
    """

    transform: Transform
    convolution: Convolution
    input: TensorSpec
    output: TensorSpec
    strip_rows: int
    whole: bool
    tiles: int
    vectors: int
    group_vectors: int

    @property
    def tile_images(self) -> int:
        """Images of a register tile."""
        return 1

    @property
    def tile_columns(self) -> int:
        """Tiles of a row."""
        return -(-self.output.width // self.transform.results)

    @property
    def strips(self) -> int:
        """Strips of a map; the last one may reach past it."""
        return -(-self.output.height // (self.strip_rows * self.transform.results))

    @property
    def strip_tiles(self) -> int:
        """Tiles of a strip."""
        return self.strip_rows * self.tile_columns

    @property
    def padded_tiles(self) -> int:
        """Tiles of a strip, rounded up to whole register tiles."""
        return round_up(self.strip_tiles, self.tiles)

    @property
    def padded_height(self) -> int:
        """Output rows, rounded up to whole strips."""
        return self.strips * self.strip_rows * self.transform.results

    @property
    def padded_width(self) -> int:
        """Output columns, rounded up to whole tiles."""
        return self.tile_columns * self.transform.results

    @property
    def input_blocks(self) -> int:
        """Channel blocks of the input's layout."""
        return feature_map_layout(self.input).blocks(self.input.channels)

    @property
    def joined_blocks(self) -> int:
        """How many of them lie together in a transformed tile: a cache line's two, if that divides them."""
        return 2 if self.input_blocks % 2 == 0 else 1

    @property
    def pairs(self) -> int:
        """Words of a transformed tile that lie together."""
        return self.joined_blocks * BLOCK_WORDS

    @property
    def channel_blocks(self) -> int:
        """Blocks of so many pairs of channels."""
        return self.input_blocks // self.joined_blocks

    @property
    def stored_vectors(self) -> int:
        """Vectors of 8 output channels in the output's layout."""
        layout = feature_map_layout(self.output)
        return layout.blocks(self.output.channels) * layout.block // LANES

    @property
    def padded_vectors(self) -> int:
        """Vectors of 8 output channels, rounded up to whole groups."""
        return round_up(self.stored_vectors, self.group_vectors)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Packed weights as vectors of 8 output channels x 2 input channels."""
        points = self.transform.points
        return (
            self.padded_vectors // self.vectors,
            points,
            points,
            self.channel_blocks,
            self.pairs,
            self.vectors,
        )

    @property
    def strip_bytes(self) -> int:
        """Bytes of a strip's transformed inputs."""
        words = self.transform.points**2 * self.padded_tiles * self.channel_blocks * self.pairs
        return WORD_BYTES * words

    @property
    def product_bytes(self) -> int:
        """Bytes of the products of a group."""
        return WORD_BYTES * LANES * self.transform.points**2 * self.padded_tiles * self.group_vectors

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights."""
        return WORD_BYTES * LANES * prod(self.weight_shape)

    @property
    def images_per_call(self) -> int | None:
        """Images of a batch that one call should compute, so that what is transformed before stays in the cache."""
        return max(1, ROWS_BYTES // self.strip_bytes) if self.whole else None

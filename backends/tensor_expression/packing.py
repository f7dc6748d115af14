"""The weights of the AVX2 convolution in the order in which it reads them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import IntArray
from binpoint.backends.tensor_expression.convolution_tiling import LANES, ConvolutionTiling, round_up

INT16_LEAST = -(1 << 15)


def pack_weights(tiling: ConvolutionTiling, weight: IntArray) -> IntArray:
    """Weights (K, C / groups, R, S) as `weight_shape`, each vector 8 output channels x 2 elements, in one last axis.

    K is rounded up to whole tiles.
    """
    convolution, tile = tiling.convolution, tiling.tile
    channels = tiling.channel_blocks * tiling.channel_block
    outputs = round_up(weight.shape[0], tile.vectors * LANES)
    padded = np.zeros((outputs, channels, *convolution.kernel), weight.dtype)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    kernel_rows = padded.reshape(
        -1, tile.vectors, LANES, tiling.channel_blocks, tiling.channel_block, *convolution.kernel
    ).transpose(0, 3, 5, 6, 4, 1, 2)
    tiles, inner = kernel_rows.shape[0], tiling.weight_shape[1:4]
    runs = kernel_rows.reshape(tiles, *inner, tiling.run, tile.vectors, LANES)
    whole_pairs = np.zeros((tiles, *inner, 2 * tiling.pairs, tile.vectors, LANES), padded.dtype)
    whole_pairs[..., : tiling.run, :, :] = runs
    pairs = whole_pairs.reshape(tiles, *inner, tiling.pairs, 2, tile.vectors, LANES)
    packed = np.moveaxis(pairs, -3, -1)
    return np.ascontiguousarray(packed).reshape(tiles, *tiling.weight_shape[1:-1], tile.vectors * 2 * LANES)


def may_wrap(tiling: ConvolutionTiling, weight: IntArray) -> bool:
    """Whether some input makes `vpmaddwd` wrap: where two weights of a pair and their inputs are all -2^15."""
    pairs: NDArray[np.bool_] = pack_weights(tiling, weight).reshape(-1, 2) == INT16_LEAST
    return bool(pairs.all(axis=1).any())

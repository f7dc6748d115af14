"""The weights of the AVX2 convolution in the order in which it reads them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import IntArray
from binpoint.backends.tensor_expression.convolution_tiling import LANES, ConvolutionTiling
from binpoint.backends.tensor_expression.layout import storage_dtype

INT16_LEAST = -(1 << 15)


def pack_weights(tiling: ConvolutionTiling, weight: IntArray) -> IntArray:
    """Weights (K, C / groups, R, S) as `weight_shape`, each vector 8 output channels x 2 elements, in one last axis."""
    convolution, tile = tiling.convolution, tiling.tile
    channels = tiling.channel_blocks * tiling.channel_block
    padded = np.zeros(
        (tiling.padded_vectors * LANES, channels, *convolution.kernel), storage_dtype(convolution.weight_bits)
    )
    padded[: weight.shape[0], : weight.shape[1]] = weight
    kernel_rows = padded.reshape(
        -1, tile.vectors, LANES, tiling.channel_blocks, tiling.channel_block, *convolution.kernel
    ).transpose(0, 3, 5, 6, 4, 1, 2)
    runs = kernel_rows.reshape(*tiling.weight_shape[:4], tiling.run, tile.vectors, LANES)
    whole_pairs = np.zeros((*tiling.weight_shape[:4], 2 * tiling.pairs, tile.vectors, LANES), padded.dtype)
    whole_pairs[..., : tiling.run, :, :] = runs
    pairs = whole_pairs.reshape(*tiling.weight_shape[:5], 2, tile.vectors, LANES)
    packed = np.moveaxis(pairs, -3, -1)
    return np.ascontiguousarray(packed).reshape(*tiling.weight_shape[:-1], tile.vectors * 2 * LANES)


def may_wrap(tiling: ConvolutionTiling, weight: IntArray) -> bool:
    """Whether some input makes `vpmaddwd` wrap: where two weights of a pair and their inputs are all -2^15."""
    if not (weight == INT16_LEAST).any():
        return False
    pairs: NDArray[np.bool_] = pack_weights(tiling, weight).reshape(-1, 2) == INT16_LEAST
    return bool(pairs.all(axis=1).any())

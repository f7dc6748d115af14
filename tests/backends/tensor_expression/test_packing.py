"""Packed weights hold each weight once, where the reduction meets the mantissa it belongs to."""

from __future__ import annotations

import numpy as np
import pytest

from binpoint.backends.kernel import Convolution, KernelSpec, TensorSpec
from binpoint.backends.tensor_expression.convolution_tiling import LANES, ConvolutionTiling
from binpoint.backends.tensor_expression.packing import may_wrap, pack_weights
from binpoint.backends.tensor_expression.plan import Container, KernelPlan
from binpoint.backends.tensor_expression.tile_choice import choose_tiling


def tiling_of(
    channels: int, outputs: int, kernel: tuple[int, int], dilation: int = 1, bits: int = 16
) -> ConvolutionTiling:
    convolution = Convolution(kernel, dilation=(dilation, dilation), weight_bits=bits)
    spec = KernelSpec("layer", convolution, (TensorSpec(channels, 9, 9, 8),), TensorSpec(outputs, 5, 5, 8))
    tiling = choose_tiling(KernelPlan(spec, Container.INT32, "int32", values=False))
    assert tiling is not None
    return tiling


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize(("channels", "outputs", "kernel"), [(3, 9, (3, 3)), (16, 16, (1, 2)), (37, 40, (2, 3))])
def test_each_weight_lies_at_its_pair(channels: int, outputs: int, kernel: tuple[int, int], dilation: int) -> None:
    tiling = tiling_of(channels, outputs, kernel, dilation)
    weight = np.arange(1, outputs * channels * kernel[0] * kernel[1] + 1).reshape(outputs, channels, *kernel)
    packed = pack_weights(tiling, weight)
    assert packed.dtype == weight.dtype
    assert packed.shape == (*tiling.weight_shape[:-1], tiling.tile.vectors * 2 * LANES)
    vectors = packed.reshape(*tiling.weight_shape, LANES, 2)
    for (k, c, r, s), value in np.ndenumerate(weight):
        vector, lane = divmod(k, LANES)
        block, within = divmod(c, tiling.channel_block)
        run, tap = (0, s) if tiling.runs == 1 else (s, 0)
        pair, half = divmod(tap * tiling.channel_block + within, 2)
        tile, place = divmod(vector, tiling.tile.vectors)
        assert vectors[tile, block, r, run, pair, place, lane, half] == value
    assert np.count_nonzero(packed) == weight.size


def test_only_a_whole_pair_of_least_weights_may_wrap() -> None:
    tiling = tiling_of(16, 8, (1, 1))
    weight = np.zeros((8, 16, 1, 1), np.int64)
    assert not may_wrap(tiling, weight)
    weight[3, 5] = weight[3, 6] = -(2**15)  # neighbours, in two pairs
    assert not may_wrap(tiling, weight)
    weight[3, 7] = -(2**15)
    assert may_wrap(tiling, weight)

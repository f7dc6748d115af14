"""Numbers to blocks and back."""

import numpy as np
import pytest

from binpoint.backends.blocks import block_size, grid_shape
from binpoint.backends.kernel import TensorSpec
from binpoint.runtime.blocks.conversion import choose_exponents, count_overflows, dequantize_blocks, quantize_blocks
from binpoint.runtime.conversion import quantize
from binpoint.support.numeric import Granularity, Measure

CANDIDATES = (-2, -3, -4, -5, -6)


def loss(values, exponent, bits, measure):
    mantissas, events = quantize(values, exponent, bits)
    if measure is Measure.OVERFLOWS:
        return events.saturated
    errors = np.abs(values - mantissas * 2.0**exponent)
    return errors.sum() if measure is Measure.ABSOLUTE_ERROR else (errors**2).sum()


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("block", [None, (1, 1), (3, 2), (4, 4), (9, 9)])
def test_each_block_takes_the_candidate_that_loses_least(measure, per_channel, block):
    tensor = TensorSpec(3, 7, 5, 6, Granularity(block, per_channel))
    random = np.random.default_rng(3)
    # Dyadic numbers, whose errors are summed exactly in any order.
    values = np.round(random.normal(scale=2, size=(2, 3, 7, 5)) * 256) / 256
    grid = choose_exponents(values, tensor, CANDIDATES, measure)
    assert grid.shape == (2, *grid_shape(tensor))
    height, width = block_size(tensor)
    for image, group, row, column in np.ndindex(grid.shape):
        channels = slice(group, group + 1) if per_channel else slice(None)
        part = values[image, channels, row * height : (row + 1) * height, column * width : (column + 1) * width]
        losses = {each: loss(part, each, 6, measure) for each in CANDIDATES}
        assert grid[image, group, row, column] == min(CANDIDATES, key=lambda each: (losses[each], each))


def test_mantissas_at_the_exponents_of_their_blocks():
    tensor = TensorSpec(1, 2, 4, 8, Granularity((2, 2)))
    values = np.array([[[[1.0, 0.5, 100.0, -200.0], [0.25, 0.001, 0.0, 3.0]]]])
    grid = np.array([[[[-6, 0]]]], np.int32)
    mantissas, events = quantize_blocks(values, grid, tensor)
    assert mantissas.tolist() == [[[[64, 32, 100, -128], [16, 0, 0, 3]]]]
    assert (events.results, events.saturated, events.underflowed) == (8, 1, 1)
    assert dequantize_blocks(mantissas, grid, tensor)[0, 0, 0].tolist() == [1.0, 0.5, 100.0, -128.0]
    assert count_overflows(values, (0, -6), 8).tolist() == [[1, 3]]

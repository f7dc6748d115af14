"""Tilings cover the layer, read inside the packed rows and fit the registers, for any convolution."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from binpoint.backends.kernel import Convolution, KernelSpec, TensorSpec
from binpoint.backends.tensor_expression.convolution_tiling import LANES
from binpoint.backends.tensor_expression.plan import Container, KernelPlan
from binpoint.backends.tensor_expression.tile_choice import REGISTERS, choose_tiling
from binpoint.compiler.layers import window_output

SMALL = st.integers(1, 3)


@st.composite
def plans(draw: st.DrawFn) -> KernelPlan:
    """Any convolution that has a window, with 1 to 40 input channels and 5 to 70 output channels."""
    kernel, stride, dilation = (draw(st.tuples(SMALL, SMALL)) for _ in range(3))
    padding = tuple(draw(st.integers(0, 2)) for _ in range(4))
    size = [
        draw(st.integers(dilation[axis] * (kernel[axis] - 1) + 1, dilation[axis] * (kernel[axis] - 1) + 30))
        for axis in range(2)
    ]
    output = [
        window_output(size[axis], kernel[axis], stride[axis], padding[axis], padding[axis + 2], dilation[axis])
        for axis in range(2)
    ]
    spec = KernelSpec(
        "layer",
        Convolution(kernel, stride, padding, dilation),
        (TensorSpec(draw(st.integers(1, 40)), *size, 8),),
        TensorSpec(draw(st.integers(5, 70)), *output, 8),
    )
    reduction, container = draw(
        st.sampled_from([("int32", Container.INT32), ("int32", Container.INT64), ("int64", Container.INT64)])
    )
    return KernelPlan(spec, container, reduction, values=False)


@given(plans())
def test_tiles_cover_the_layer_and_fit_the_registers(plan: KernelPlan) -> None:
    tiling = choose_tiling(plan)
    assert tiling is not None
    tile, output = tiling.tile, plan.spec.output
    assert tile.results * (2 if tiling.split else 1) + tile.vectors < REGISTERS
    assert output.channels <= tiling.stored_vectors * LANES <= tiling.padded_vectors * LANES
    assert tiling.padded_height % tile.rows == tiling.padded_width % tile.columns == 0
    assert output.height <= tiling.padded_height < output.height + tile.rows
    assert output.width <= tiling.padded_width < output.width + tile.columns
    assert tiling.padded_height % tiling.rows_per_task == tiling.rows_per_task % tile.rows == 0
    assert tiling.images_per_call >= 1


@given(plans())
def test_the_reduction_reads_every_channel_of_every_tap_inside_the_rows(plan: KernelPlan) -> None:
    tiling = choose_tiling(plan)
    assert tiling is not None
    convolution = tiling.convolution
    assert tiling.channel_blocks * tiling.channel_block >= tiling.group_channels
    assert tiling.runs * tiling.run == convolution.kernel[1] * tiling.channel_block
    last_row = (tiling.padded_height - 1) * tiling.packed_stride[0] + (
        convolution.kernel[0] - 1
    ) * convolution.dilation[0]
    last_pixel = (tiling.padded_width - 1) * tiling.packed_stride[1] + (tiling.runs - 1) * convolution.dilation[1]
    last_word = last_pixel * tiling.pixel_words + (tiling.pairs - 1) * tiling.pair_words
    assert last_row == tiling.packed_rows - 1
    assert last_word < tiling.row_words

"""Chooses the register tile of the AVX2 convolution by counting the instructions that one useful result costs.

The counts were fitted to measurements on a Zen 3 core (see `bench/convolution.py`); the choice changes speed alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from binpoint.backends.kernel import Convolution, TensorSpec
from binpoint.backends.tensor_expression.convolution_tiling import LANES, ConvolutionTiling, RegisterTile
from binpoint.backends.tensor_expression.layout import feature_map_layout
from binpoint.backends.tensor_expression.plan import Container, KernelPlan

REGISTERS = 16
"""AVX2 registers of a core."""

MOST_VECTORS = 4
"""The most vectors of channels a tile has."""

SINGLE_PIXEL_IMAGES = 2
"""Images a tile takes where a map is one pixel: weights are read once for both. More would waste a batch of one."""

LOOP_INSTRUCTIONS = 2
"""Instructions of the innermost loop that do not grow with the tile."""

WEIGHT_LOAD = 2
"""What loading a vector of weights costs: weights come from the second cache."""

FINISH = {Container.INT32: 30, Container.INT64: 110, Container.WIDE: 300}
"""Instructions from a sum to a mantissa and its events."""

PARTIAL_BLOCK = 8
"""What it costs to store a block of channels in two parts."""

ROOMY_PIXELS = 4
"""Pixels of a tile up to which split sums, and values of 64 bits, which take two registers each, leave room."""

SPILL = 10
"""Instructions that each pixel past that costs a vector of 64-bit values."""

CROWDED = 0.04
"""The share of a step that each pixel past that adds to split sums: LLVM unrolls the loop less, or spills."""

LONGEST_SPLIT_REDUCTION = 65535
"""Pairs that a split accumulator sums exactly: each adds at most 2^16 - 1 to the part below 2^16, which has 32 bits,
and at most 2^15 in magnitude to the part above."""


@lru_cache(maxsize=1024)
def choose_tiling(plan: KernelPlan) -> ConvolutionTiling | None:
    """The cheapest tiling of a kernel, None where the AVX2 design does not fit.

    It fits every convolution and linear layer whose output layout has whole vectors of channels, whose groups, if
    there are several, are whole blocks of that layout, and whose split sums, if need be, are exact.
    """
    convolution, output = plan.spec.operation, plan.spec.output
    if not isinstance(convolution, Convolution):
        return None
    block = feature_map_layout(output).block
    if block % LANES or (convolution.groups > 1 and output.channels // convolution.groups % block):
        return None
    split = plan.reduction == "int64"
    tiles = _tiles(output, convolution.groups, split)
    tilings = (ConvolutionTiling(convolution, plan.spec.inputs[0], output, split, tile) for tile in tiles)
    best = min(tilings, key=lambda tiling: instructions_per_result(tiling, plan.container))
    return None if split and best.reduction_pairs > LONGEST_SPLIT_REDUCTION else best


def instructions_per_result(tiling: ConvolutionTiling, container: Container) -> float:
    """The model of a kernel's speed: instructions a vector of the layer's results, results that fill tiles included."""
    tile, output = tiling.tile, tiling.output
    multiply_add = 4 if tiling.split else 2
    crowding = max(0, tile.pixels - ROOMY_PIXELS)
    step: float = tile.pixels + WEIGHT_LOAD * tile.vectors + multiply_add * tile.results + LOOP_INSTRUCTIONS
    if tiling.split:
        step *= 1 + CROWDED * crowding
    finish = FINISH[container]
    if tile.vectors * LANES < feature_map_layout(output).block:
        finish += PARTIAL_BLOCK
    if container is not Container.INT32:
        finish += SPILL * crowding
    computed = tiling.padded_height * tiling.padded_width * tiling.padded_vectors
    return (
        (tiling.reduction_pairs * step / tile.results + finish)
        * computed
        / (output.height * output.width * tiling.stored_vectors)
    )


def _tiles(output: TensorSpec, groups: int, split: bool) -> Iterator[RegisterTile]:
    """The tiles that fit the registers, and whose vectors belong to one group.

    Tiles are whole channel blocks of the output or even parts of one: the schedule stores no others correctly.
    """
    group_vectors = output.channels // groups // LANES
    block_vectors = feature_map_layout(output).block // LANES
    for images, rows, columns, vectors in product(
        (1, SINGLE_PIXEL_IMAGES) if output.height * output.width == 1 else (1,),
        range(1, min(output.height, REGISTERS) + 1),
        range(1, min(output.width, REGISTERS) + 1),
        range(1, MOST_VECTORS + 1),
    ):
        tile = RegisterTile(images, rows, columns, vectors)
        one_group = groups == 1 or group_vectors % vectors == 0
        even = vectors % block_vectors == 0 or block_vectors % vectors == 0
        if one_group and even and _registers(tile, split) <= REGISTERS:
            yield tile


def _registers(tile: RegisterTile, split: bool) -> int:
    """Registers of the innermost loop: accumulators, weights, a product; two more if vectors share a broadcast pair."""
    accumulators = tile.results * (2 if split else 1)
    return accumulators + tile.vectors + (1 if tile.vectors == 1 else 3)

"""Chooses the sizes of Winograd's convolution by counting instructions, as `tile_choice` does for the direct one.

The counts were fitted to measurements on a Zen 3 core (see `bench/convolution.py`); the choice changes speed alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod

from binpoint.backends.kernel import Convolution
from binpoint.backends.tensor_expression.plan import KernelPlan
from binpoint.backends.tensor_expression.tile_choice import (
    FINISH,
    LOOP_INSTRUCTIONS,
    MOST_VECTORS,
    REGISTERS,
    WEIGHT_LOAD,
    choose_tiling,
    instructions_per_result,
)
from binpoint.backends.tensor_expression.winograd_tiling import WinogradTiling
from binpoint.backends.tensor_expression.winograd_transforms import KERNEL, Transform

WIDEST_WEIGHTS = 8
"""Bits of weights whose transforms have 16 bits."""

LEAST_CHANNELS = 16
"""Input channels of a whole block: with fewer most of the time goes to the transforms."""

STRIP_BYTES = 1 << 17
"""Of the transformed inputs of a strip: they stay in the second cache, beside weights."""

PRODUCT_BYTES = 1 << 17
"""Of the products that a group of outputs leaves for the second pass, unless one register tile takes more."""

MOST_PRODUCT_BYTES = 1 << 20
"""The most products that a task has on its stack."""

MULTIPLY_ADD = 2
"""Instructions of a step for each result."""

INPUT_POINT, OUTPUT_POINT = 12, 6
"""Instructions that transform a vector at one point."""

WEIGHT_BYTE = 1
"""Instructions that could be done while a byte of weights comes from the last cache, or from behind it."""


@lru_cache(maxsize=1024)
def choose_winograd(plan: KernelPlan, transform: Transform) -> WinogradTiling | None:
    """The cheapest tiling of a kernel, None where the design does not fit or the direct one costs less."""
    direct = choose_tiling(plan)
    if direct is None or not _fits(plan, transform):
        return None
    tilings = [tiling for tiling in _tilings(plan, transform) if tiling.product_bytes <= MOST_PRODUCT_BYTES]
    if not tilings:
        return None
    best = min(tilings, key=lambda tiling: instructions(tiling, plan))
    results = prod((plan.spec.output.height, plan.spec.output.width, direct.stored_vectors))
    return best if instructions(best, plan) < instructions_per_result(direct, plan.container) * results else None


def instructions(tiling: WinogradTiling, plan: KernelPlan) -> float:
    """The model of a kernel's speed: instructions of an image."""
    points, tiles = tiling.transform.points**2, tiling.strips * tiling.padded_tiles
    step = tiling.tiles + (WEIGHT_LOAD + MULTIPLY_ADD * tiling.tiles) * tiling.vectors + LOOP_INSTRUCTIONS
    steps = points * tiles // tiling.tiles * tiling.padded_vectors // tiling.vectors
    transformed = points * tiles * (INPUT_POINT * tiling.input_blocks + OUTPUT_POINT * tiling.padded_vectors)
    finished = tiling.padded_height * tiling.padded_width * tiling.padded_vectors * FINISH[plan.container]
    multiplied = steps * tiling.channel_blocks * tiling.pairs * step
    return multiplied + transformed + finished + WEIGHT_BYTE * tiling.weight_bytes


def _fits(plan: KernelPlan, transform: Transform) -> bool:
    """Whether a kernel, which the direct design fits, is 3 x 3 over all pixels, has channels enough and few bits."""
    convolution, source = plan.spec.operation, plan.spec.inputs[0]
    assert isinstance(convolution, Convolution)
    regular = convolution.stride == convolution.dilation == (1, 1) and convolution.groups == 1
    narrow = plan.centred or 1 << (source.bits - 1) <= transform.largest
    narrow = narrow and convolution.weight_bits <= WIDEST_WEIGHTS and plan.reduction == "int32"
    return regular and narrow and convolution.kernel == (KERNEL, KERNEL) and source.channels >= LEAST_CHANNELS


def _tilings(plan: KernelPlan, transform: Transform) -> Iterator[WinogradTiling]:
    """For each register tile the strips and groups that suit the caches."""
    convolution, source, output = plan.spec.operation, plan.spec.inputs[0], plan.spec.output
    assert isinstance(convolution, Convolution)
    rows = -(-output.height // transform.results)
    for tiles, vectors in _register_tiles():
        group = WinogradTiling(transform, convolution, source, output, rows, True, tiles, vectors, vectors)
        if group.weight_bytes < group.strip_bytes or group.product_bytes > MOST_PRODUCT_BYTES:
            strips = -(-rows // max(1, STRIP_BYTES * rows // group.strip_bytes))
            group = replace(group, strip_rows=-(-rows // strips), whole=False)
        register_tiles = group.padded_vectors // vectors
        groups = -(-register_tiles // max(1, PRODUCT_BYTES // group.product_bytes))
        yield replace(group, group_vectors=-(-register_tiles // groups) * vectors)


def _register_tiles() -> Iterator[tuple[int, int]]:
    """Tiles and vectors that fit the registers, see `tile_choice`."""
    for tiles, vectors in product(range(1, REGISTERS), range(1, MOST_VECTORS + 1)):
        if tiles * vectors + vectors + (1 if vectors == 1 else 3) <= REGISTERS:
            yield tiles, vectors

"""The allocation flows of JP7367595B2 (figs. 11, 13 and 15), for any number of images, channels and PEs.

One formula covers the three flows. The image tiles of a batch are taken X at a time (group j, place k), the
channel tiles Y at a time (block l, place m), and every pair gets a *place on a line*:

    place = j * X*C  +  l * X'*Y  +  k * Y'  +  m        j = n // X, k = n % X, l = c' // Y, m = c' % Y

    mechanical        c' = c                             fig. 11
    rotated           c' = (c - shift*n) mod C, X=Y=1    fig. 13
    thinned-rotated   c' = (c - shift*j) mod C           fig. 15

X' and Y' are X and Y, or what is left of them in the last group and the last block. The line is then folded at
P: round = place // P, PE = place % P. Where the figures' conditions hold (C a multiple of Y, P a multiple of C,
N_L = P / C a multiple of X) this is the figures' allocation; elsewhere it stays without holes, so that a layer
always takes the fewest rounds, ceil(N*C / P). docs/scheduling.md derives it.

With `rotation = "continuous"` each mini-batch begins one PE further: PE = (place + b mod s) % P, where b numbers the
mini-batches and s is the spacing of the statistics PEs. Of s mini-batches in a row each pair is sampled in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from binpoint.scheduling.schedule import LayerSchedule, Schedule, Tiling, ceiling
from binpoint.scheduling.workload import Workload
from binpoint.support.diagnostics import user_error
from binpoint.support.target import Allocation, RotationCount, Strategy, Target

MAXIMUM_TILES = 2**26
"""The largest schedule of one layer: a few gigabytes of memory while it is made."""


def schedule_layer(layer: str, images: int, channels: int, target: Target, mini_batch: int = 0) -> LayerSchedule:
    """Allocate a layer of N images x C output channels to the PEs of a target.

    Args:
        layer: the layer's name, carried along.
        images: N, at least 1.
        channels: C, the output channels, at least 1.
        target: the array, its tile and its allocation strategy.
        mini_batch: the number of the mini-batch, from 0. It matters to `rotation = "continuous"` alone.

    Raises:
        UserError: for more than MAXIMUM_TILES tiles.
    """
    if images < 1 or channels < 1 or mini_batch < 0:
        raise ValueError(f"{images} images x {channels} channels in mini-batch {mini_batch}")
    rows, columns = Tiling(images, channels, target.tile).counts
    if rows * columns > MAXIMUM_TILES:
        message = f"{layer} has too many (image, channel) pairs for one schedule"
        found, expected = f"{images} images x {channels} channels", f"at most {MAXIMUM_TILES} tiles"
        raise user_error("too-many-pairs", message, found=found, expected=expected, hint="use a smaller batch")
    places = line_places(rows, columns, target.allocation, rotation_steps(rows, columns, target))
    rounds, pe = np.divmod(places, target.pes)
    first = LayerSchedule(
        layer=layer,
        images=images,
        channels=channels,
        pes=target.pes,
        tile=target.tile,
        pe=pe.astype(np.int32),
        round=rounds.astype(np.int32),
        sampled=target.statistics_mask[pe],
    )
    return in_mini_batch(first, target, mini_batch)


def in_mini_batch(first: LayerSchedule, target: Target, mini_batch: int) -> LayerSchedule:
    """A layer's schedule in a later mini-batch, from that in the first one."""
    distance = mini_batch % mini_batches_per_cycle(target)
    if distance == 0:
        return first
    pe = first.pe + np.int32(distance)
    np.subtract(pe, target.pes, out=pe, where=pe >= target.pes)
    return replace(first, pe=pe, sampled=target.statistics_mask.take(pe))


def schedule_network(
    network: str,
    workloads: Sequence[Workload],
    images: int,
    target: Target,
    edited: Schedule | None = None,
    mini_batch: int = 0,
) -> Schedule:
    """Schedule all layers of a network for a mini-batch of so many images.

    Layers that an edited schedule holds are taken from it, the others follow the target's allocation.
    """
    kept = {} if edited is None else {layer.layer: layer for layer in edited.layers}
    layers = tuple(
        kept.get(workload.layer)
        or schedule_layer(workload.layer, workload.rows or images, workload.channels, target, mini_batch)
        for workload in workloads
    )
    return Schedule(network, target.name, images, layers)


def mini_batches_per_cycle(target: Target) -> int:
    """After so many mini-batches allocations repeat: 1, or the spacing s of the statistics PEs where rotation goes on.

    Statistics PEs without a spacing take the whole array, P.
    """
    if target.allocation.rotation is not RotationCount.CONTINUOUS:
        return 1
    return target.statistics_spacing or target.pes


def rotation_steps(rows: int, columns: int, target: Target) -> NDArray[np.int64]:
    """(image tiles,): how many steps the channels of each image tile are rotated.

    A step is one image tile for rotated and a group of X for thinned-rotated. Counted "global" or "continuous",
    steps go on through the batch; counted "round", they start anew after the N_L = ceil(P / C) image tiles of a
    round, as the figures print it. mechanical never rotates.
    """
    allocation = target.allocation
    if allocation.strategy is Strategy.MECHANICAL:
        return np.zeros(rows, np.int64)
    per_step = allocation.images_per_step
    step: NDArray[np.int64] = np.arange(rows) // per_step
    if allocation.rotation is not RotationCount.ROUND:
        return step
    rows_per_round = ceiling(target.pes, columns)
    return step % ceiling(rows_per_round, per_step)


def line_places(rows: int, columns: int, allocation: Allocation, steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """(image tiles, channel tiles): the place of each pair on the unfolded line, a permutation of 0 .. size-1."""
    row, column = np.arange(rows), np.arange(columns)
    group, k = np.divmod(row, allocation.x)
    block, m = np.divmod(column, allocation.y)
    rows_of_group = np.minimum(allocation.x, rows - group * allocation.x)
    columns_of_block = np.minimum(allocation.y, columns - block * allocation.y)

    rotated = (column - (allocation.shift * steps % columns)[:, None]) % columns
    within_group = rows_of_group[:, None] * (block * allocation.y)[rotated]
    within_block = k[:, None] * columns_of_block[rotated] + m[rotated]
    places: NDArray[np.int64] = (group * allocation.x * columns)[:, None] + within_group + within_block
    return places

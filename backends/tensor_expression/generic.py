"""The portable design: correct on any CPU, for every operation, without intrinsics.

A layer runs one task for each row of a channel block, (n, block, h), in parallel; the stages of a row stay in small
buffers of the task, and the lanes of a block are one vector. A PE program is serial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from binpoint.backends.gradients import ChannelAffine, ClipGradient, LeakyReluGradient, ReluGradient
from binpoint.backends.kernel import Add, IntArray, Widen
from binpoint.backends.tensor_expression.layout import feature_map_layout
from binpoint.backends.tensor_expression.plan import Form, KernelPlan
from binpoint.backends.tensor_expression.weights import Weight

EVENTS = ("saturated", "underflowed", "overflowed")
"""The stages that count events, in the order of `Design.event_shapes`."""

SUMS = ("window_sum", "total")
"""The stages of exact results, which the code generator vectorises where they sum nothing."""

LANEWISE = (Add, Widen, ReluGradient, ClipGradient, LeakyReluGradient, ChannelAffine)
"""Operations whose result at a pixel and channel reads nothing but that pixel and channel."""

SMALLEST_VECTOR = 8
"""Lanes that are worth a vector; the blocks of narrower feature maps are left to the code generator."""


class GenericDesign:
    """See `binpoint.backends.tensor_expression.design.Design`. Events are counted for each row of a channel block.

    Without `vectors` all loops are scalar, as the C generator wants them.
    """

    name = "generic"
    weight_transform = None
    picks = False
    lanes: Mapping[str, int] = {}

    def __init__(self, *, vectors: bool = True) -> None:
        self._smallest_vector: float = SMALLEST_VECTOR if vectors else inf

    def always_exact(self, plan: KernelPlan) -> bool:
        """Always: products and sums fit the plan's dtypes."""
        return True

    def exact_with(self, plan: KernelPlan, weight: Weight) -> bool:
        """Always."""
        return True

    def build(self, plan: KernelPlan) -> Any:
        """The scheduled IRModule of a layer or of a PE program."""
        from tvm import IRModule, s_tir, te

        from binpoint.backends.tensor_expression.definition import define

        schedule = s_tir.Schedule(IRModule({"main": te.create_prim_func(define(plan))}))
        if plan.form is Form.TILE:
            return _schedule_tile(schedule)
        return schedule_layer(schedule, self._smallest_vector, lanewise=isinstance(plan.spec.operation, LANEWISE))

    def pack_weight(self, plan: KernelPlan, weight: IntArray) -> IntArray:
        """[K blocks, C / groups, R, S, block]."""
        rows = self.weight_rows(plan)
        padded = np.zeros((-(-weight.shape[0] // rows) * rows, *weight.shape[1:]), weight.dtype)
        padded[: weight.shape[0]] = weight
        return np.moveaxis(padded.reshape(-1, rows, *weight.shape[1:]), 1, -1)

    def weight_rows(self, plan: KernelPlan) -> int:
        """The channels of a block."""
        return feature_map_layout(plan.spec.output).block if plan.form is Form.LAYER else 1

    def bias_length(self, plan: KernelPlan) -> int:
        """Output channels, rounded up to whole blocks."""
        block = self.weight_rows(plan)
        return -(-plan.spec.output.channels // block) * block

    def images_per_call(self, plan: KernelPlan) -> int | None:
        """Rows are small: any number."""
        return None

    def event_shapes(self, plan: KernelPlan, batch: int) -> Sequence[tuple[int, ...]]:
        """[N, C blocks, H, block] for each kind of event; [1] in a PE program."""
        spec = plan.spec.output
        *outer, _, block = feature_map_layout(spec).shape(spec, batch)
        shape = (*outer, block) if plan.form is Form.LAYER else (1,)
        return [shape] * (3 if plan.checked else 2)


def schedule_layer(schedule: Any, smallest_vector: float = SMALLEST_VECTOR, *, lanewise: bool = False) -> Any:
    """Parallel rows, and in them pixel by pixel all stages that follow a result; gives the scheduled module.

    What comes before the exact results (padding, softmax, keys) is a pass of its own. `lanewise` says that the exact
    results of a pixel are vectors too; else they are computed for a whole row first.
    """

    def vectorize(lane: Any) -> None:
        if int(schedule.get(lane).extent) >= smallest_vector:
            schedule.vectorize(lane)

    def rows(stage: Any) -> tuple[Any, Any, list[Any]]:
        """Put reductions outside of pixels; gives the loops over rows, of all channel blocks, and the inner ones."""
        n, block, h, w, lane, *reduction = schedule.get_loops(stage)
        schedule.reorder(n, block, h, *reduction, w, lane)
        return schedule.fuse(n, block, h), w, reduction

    def finish(stage: Any, row: Any, reduction: list[Any]) -> None:
        # Before the reduction loses its first step: after that a row is no longer a single nest.
        schedule.parallel(row)
        if reduction or lanewise:
            vectorize(_innermost(schedule, stage))
        if reduction:
            vectorize(_innermost(schedule, schedule.decompose_reduction(stage, reduction[0])))

    names = _block_names(schedule)
    first = next(names.index(name) for name in SUMS if name in names)
    for name in names[:first]:
        stage = schedule.get_sblock(name)
        if name == "keys":
            row, _, reduction = rows(stage)
            finish(stage, row, reduction)
        else:
            schedule.parallel(schedule.get_loops(stage)[0])
    exact, *stages = (schedule.get_sblock(name) for name in names[first:])
    row, pixel, reduction = rows(exact)
    if stages and not lanewise:
        host, *stages = stages
        schedule.reverse_compute_at(host, row, preserve_unit_loops=True)
        *_, pixel, lane = schedule.get_loops(host)
        vectorize(lane)
    for stage in stages:
        schedule.reverse_compute_at(stage, pixel, preserve_unit_loops=True)
    finish(exact, row, reduction)
    for stage in stages:
        *_, outer, inner = schedule.get_loops(stage)
        if schedule.get(stage).name_hint in EVENTS:
            # The innermost loop is the one pixel that a step counts.
            vectorize(outer)
            vectorize(_innermost(schedule, schedule.decompose_reduction(stage, pixel)))
        else:
            vectorize(inner)
    return schedule.mod


def _schedule_tile(schedule: Any) -> Any:
    """Padding is read in place, so that a PE touches nothing outside its tile; columns are innermost.

    Gives the scheduled module.
    """
    names = _block_names(schedule)
    if "padded" in names:
        schedule.compute_inline(schedule.get_sblock("padded"))
    for name in ("keys", *SUMS):
        if name in names:
            _, _, _, w, lane, *reduction = schedule.get_loops(schedule.get_sblock(name))
            schedule.reorder(*reduction, w, lane)
    return schedule.mod


def _innermost(schedule: Any, block: Any) -> Any:
    return schedule.get_loops(block)[-1]


def _block_names(schedule: Any) -> list[str]:
    root = schedule.get_sblock("root")
    return [schedule.get(block).name_hint for block in schedule.get_child_blocks(root)]

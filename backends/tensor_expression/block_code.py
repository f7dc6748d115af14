"""The steps between values and mantissas as code (see `block_plan`), on vectors of channels.

A task is a row of blocks: of one vector of channels, or of all of them where they share an exponent. The exponents of
a map lie channels last, [N, rows, columns, channels or 1], so that those of a block are vectors too.

Choosing needs no counts as long as the coarsest candidate holds every value of a block: then the finest one that holds
the greatest and the least has no overflows. Other blocks are counted.
"""

# TVMScript reads the functions below, so they follow its grammar: `T.inline` makes a loop of several uses, arrays of
# vectors in local memory stand for variables.

from dataclasses import dataclass
from typing import Any

from tvm import IRModule
from tvm.script import tirx as T  # noqa: N812 (TVMScript's name)

from binpoint.backends.tensor_expression.arithmetic import (
    cast,
    saturated,
    underflowed,
    where,
)
from binpoint.backends.tensor_expression.block_arithmetic import (
    any_lane,
    lane_maximum,
    lane_sum,
    lift,
    outside,
)
from binpoint.backends.tensor_expression.block_plan import BlockPlan, Step
from binpoint.backends.tensor_expression.block_sizes import OFFSETS, BlockSizes

GREATEST, LEAST, EXPONENT, SHIFT, SATURATED, UNDERFLOWED, COUNT, FEWEST = range(8)
"""The variables of a task: vectors."""

VARIABLES = 8


def build(plan: BlockPlan) -> Any:
    """The module of a step; its function is `main`.

    Values and output come as [N, C blocks, H, W, vectors of a block], thresholds as in `block_plan.Thresholds`,
    exponents and counts channels last, events as one vector a task.
    """
    sizes = BlockSizes(plan)
    match plan.step:
        case Step.ANALYSE:
            main = _analyse_shared(sizes) if plan.shared else _analyse(sizes)
        case Step.COUNT:
            main = _count(sizes)
        case Step.CHOOSE:
            main = _choose(sizes)
        case Step.QUANTISE:
            main = _quantise(sizes)
    return IRModule({"main": main})


@dataclass(frozen=True)
class _Loops:
    """Loops over the elements of one block and one vector of channels, for use in the functions below."""

    extremes: Any
    """Widen GREATEST and LEAST by the block's values."""
    outside: Any
    """Add to COUNT which values are outside two thresholds."""
    quantise: Any
    """Round to the exponents EXPONENT, store, and count what became zero."""


def _loops(sizes: BlockSizes) -> _Loops:
    plan, block, inner = sizes.plan, sizes.plan.block, sizes.map[-1]

    @T.inline
    def extremes(values, state, n, v, row, column):
        for i, j in T.grid(sizes.height(row), sizes.width(column)):
            value = sizes.computed(values[n, v // inner, row * block[0] + i, column * block[1] + j, v % inner])
            state[GREATEST] = T.max(state[GREATEST], value)
            state[LEAST] = T.min(state[LEAST], value)

    @T.inline
    def count_outside(values, state, low, high, n, v, row, column):
        for i, j in T.grid(sizes.height(row), sizes.width(column)):
            value = sizes.computed(values[n, v // inner, row * block[0] + i, column * block[1] + j, v % inner])
            state[COUNT] = state[COUNT] + outside(value, low, high)

    @T.inline
    def quantise(values, output, state, units, lifts, lows, highs, n, v, row, column):
        state[SHIFT] = sizes.shift(state[EXPONENT], units[v])
        for i, j in T.grid(sizes.height(row), sizes.width(column)):
            h = row * block[0] + i
            w = column * block[1] + j
            value = sizes.computed(values[n, v // inner, h, w, v % inner])
            lifted = lift(value, lows[0, v], highs[0, v], lifts[v]) if plan.lifted else value
            rounded = sizes.rounded(lifted, state[SHIFT])
            state[UNDERFLOWED] = state[UNDERFLOWED] + underflowed(value, rounded)
            if not plan.analysed:
                state[SATURATED] = state[SATURATED] + saturated(rounded, plan.output.bits)
            output[n, v // inner, h, w, v % inner] = sizes.mantissa(rounded)

    return _Loops(extremes, count_outside, quantise)


def _analyse(sizes: BlockSizes) -> Any:
    """Exponents of blocks of one channel."""
    loops = _loops(sizes)
    rows, columns, vectors = sizes.grid

    @T.prim_func(s_tir=True)
    def main(
        values_argument: T.handle,
        highs_argument: T.handle,
        lows_argument: T.handle,
        candidates_argument: T.handle,
        units_argument: T.handle,
        lifts_argument: T.handle,
        exponents_argument: T.handle,
        output_argument: T.handle,
        saturated_argument: T.handle,
        underflowed_argument: T.handle,
    ):
        T.func_attr({"tirx.noalias": True})
        batch, count = T.int64(), T.int64()
        values = T.match_buffer(values_argument, (batch, *sizes.map), sizes.values)
        highs = T.match_buffer(highs_argument, (count, vectors), sizes.container)
        lows = T.match_buffer(lows_argument, (count, vectors), sizes.container)
        candidates = T.match_buffer(candidates_argument, (count,), "int32")
        units = T.match_buffer(units_argument, (vectors,), sizes.container)
        lifts = T.match_buffer(lifts_argument, (vectors,), sizes.container)
        exponents = T.match_buffer(exponents_argument, (batch, *sizes.grid), sizes.exponent)
        output = T.match_buffer(output_argument, (batch, *sizes.map), sizes.output)
        saturations = T.match_buffer(saturated_argument, (batch * vectors * rows, 1), sizes.events)
        underflows = T.match_buffer(underflowed_argument, (batch * vectors * rows, 1), sizes.events)
        for task in T.parallel(batch * vectors * rows):
            n = task // (vectors * rows)
            v = task // rows % vectors
            row = task % rows
            state = T.alloc_local((VARIABLES,), sizes.container)
            state[SATURATED] = sizes.broadcast(0)
            state[UNDERFLOWED] = sizes.broadcast(0)
            for column in range(columns):
                state[GREATEST] = sizes.broadcast(0)
                state[LEAST] = sizes.broadcast(0)
                loops.extremes(values, state, n, v, row, column)
                state[EXPONENT] = sizes.broadcast(candidates[count - 1])
                for finer in range(1, count):
                    past = (state[GREATEST] > highs[finer, v]) | (state[LEAST] < lows[finer, v])
                    step = sizes.broadcast(candidates[finer - 1] - candidates[finer])
                    state[EXPONENT] = state[EXPONENT] + where(past, step)
                if any_lane((state[GREATEST] > highs[0, v]) | (state[LEAST] < lows[0, v])):
                    state[COUNT] = sizes.broadcast(0)
                    loops.outside(values, state, lows[0, v], highs[0, v], n, v, row, column)
                    state[FEWEST] = state[COUNT]
                    state[SATURATED] = state[SATURATED] + state[COUNT]
                    state[EXPONENT] = sizes.broadcast(candidates[count - 1])
                    for finer in range(1, count):
                        state[COUNT] = sizes.broadcast(0)
                        loops.outside(values, state, lows[finer, v], highs[finer, v], n, v, row, column)
                        step = sizes.broadcast(candidates[finer - 1] - candidates[finer])
                        state[EXPONENT] = state[EXPONENT] + where(state[COUNT] > state[FEWEST], step)
                exponents[n, row, column, v] = cast(state[EXPONENT], "int32")
                loops.quantise(values, output, state, units, lifts, lows, highs, n, v, row, column)
            saturations[task, 0] = cast(state[SATURATED], "int32")
            underflows[task, 0] = cast(state[UNDERFLOWED], "int32")

    return main


def _analyse_shared(sizes: BlockSizes) -> Any:
    """Exponents of blocks of all channels.

    What the channels choose for themselves is gathered first, for a whole row of blocks: the coarsest holds for all.
    A channel that the coarsest candidate does not hold asks for one past it, and the block is counted.
    """
    loops = _loops(sizes)
    rows, columns = sizes.plan.grid
    vectors = sizes.plan.vectors

    @T.prim_func(s_tir=True)
    def main(
        values_argument: T.handle,
        highs_argument: T.handle,
        lows_argument: T.handle,
        candidates_argument: T.handle,
        units_argument: T.handle,
        lifts_argument: T.handle,
        exponents_argument: T.handle,
        output_argument: T.handle,
        saturated_argument: T.handle,
        underflowed_argument: T.handle,
    ):
        T.func_attr({"tirx.noalias": True})
        batch, count = T.int64(), T.int64()
        values = T.match_buffer(values_argument, (batch, *sizes.map), sizes.values)
        highs = T.match_buffer(highs_argument, (count, vectors), sizes.container)
        lows = T.match_buffer(lows_argument, (count, vectors), sizes.container)
        candidates = T.match_buffer(candidates_argument, (count,), "int32")
        units = T.match_buffer(units_argument, (vectors,), sizes.container)
        lifts = T.match_buffer(lifts_argument, (vectors,), sizes.container)
        exponents = T.match_buffer(exponents_argument, (batch, *sizes.grid), "int32")
        output = T.match_buffer(output_argument, (batch, *sizes.map), sizes.output)
        saturations = T.match_buffer(saturated_argument, (batch * rows, 1), sizes.events)
        underflows = T.match_buffer(underflowed_argument, (batch * rows, 1), sizes.events)
        for task in T.parallel(batch * rows):
            n = task // rows
            row = task % rows
            state = T.alloc_local((VARIABLES,), sizes.container)
            wanted = T.alloc_local((columns,), sizes.container)
            fewest = T.alloc_local((1,), sizes.plan.container.dtype)
            state[SATURATED] = sizes.broadcast(0)
            state[UNDERFLOWED] = sizes.broadcast(0)
            for column in range(columns):
                wanted[column] = sizes.broadcast(candidates[count - 1])
            for v, column in T.grid(vectors, columns):
                state[GREATEST] = sizes.broadcast(0)
                state[LEAST] = sizes.broadcast(0)
                loops.extremes(values, state, n, v, row, column)
                state[EXPONENT] = sizes.broadcast(candidates[count - 1])
                for finer in range(1, count):
                    past = (state[GREATEST] > highs[finer, v]) | (state[LEAST] < lows[finer, v])
                    step = sizes.broadcast(candidates[finer - 1] - candidates[finer])
                    state[EXPONENT] = state[EXPONENT] + where(past, step)
                past_all = (state[GREATEST] > highs[0, v]) | (state[LEAST] < lows[0, v])
                state[EXPONENT] = state[EXPONENT] + where(past_all, sizes.broadcast(1))
                wanted[column] = T.max(wanted[column], state[EXPONENT])
            for column in range(columns):
                exponents[n, row, column, 0] = cast(lane_maximum(wanted[column]), "int32")
                if exponents[n, row, column, 0] > candidates[0]:
                    state[COUNT] = sizes.broadcast(0)
                    for v in range(vectors):
                        loops.outside(values, state, lows[0, v], highs[0, v], n, v, row, column)
                    state[SATURATED] = state[SATURATED] + state[COUNT]
                    fewest[0] = lane_sum(state[COUNT])
                    exponents[n, row, column, 0] = candidates[count - 1]
                    for finer in range(1, count):
                        state[COUNT] = sizes.broadcast(0)
                        for v in range(vectors):
                            loops.outside(values, state, lows[finer, v], highs[finer, v], n, v, row, column)
                        if lane_sum(state[COUNT]) > fewest[0]:
                            step = candidates[finer - 1] - candidates[finer]
                            exponents[n, row, column, 0] = exponents[n, row, column, 0] + step
            for v, column in T.grid(vectors, columns):
                state[EXPONENT] = sizes.broadcast(exponents[n, row, column, 0])
                loops.quantise(values, output, state, units, lifts, lows, highs, n, v, row, column)
            saturations[task, 0] = cast(state[SATURATED], "int32")
            underflows[task, 0] = cast(state[UNDERFLOWED], "int32")

    return main


def _quantise(sizes: BlockSizes) -> Any:
    """With exponents that are given."""
    loops = _loops(sizes)
    rows, columns = sizes.plan.grid
    vectors, shared = sizes.plan.vectors, sizes.plan.shared

    @T.prim_func(s_tir=True)
    def main(
        values_argument: T.handle,
        highs_argument: T.handle,
        lows_argument: T.handle,
        units_argument: T.handle,
        lifts_argument: T.handle,
        exponents_argument: T.handle,
        output_argument: T.handle,
        saturated_argument: T.handle,
        underflowed_argument: T.handle,
    ):
        T.func_attr({"tirx.noalias": True})
        batch, count = T.int64(), T.int64()
        values = T.match_buffer(values_argument, (batch, *sizes.map), sizes.values)
        highs = T.match_buffer(highs_argument, (count, vectors), sizes.container)
        lows = T.match_buffer(lows_argument, (count, vectors), sizes.container)
        units = T.match_buffer(units_argument, (vectors,), sizes.container)
        lifts = T.match_buffer(lifts_argument, (vectors,), sizes.container)
        exponents = T.match_buffer(exponents_argument, (batch, *sizes.grid), sizes.exponent)
        output = T.match_buffer(output_argument, (batch, *sizes.map), sizes.output)
        saturations = T.match_buffer(saturated_argument, (batch * vectors * rows, 1), sizes.events)
        underflows = T.match_buffer(underflowed_argument, (batch * vectors * rows, 1), sizes.events)
        for task in T.parallel(batch * vectors * rows):
            n = task // (vectors * rows)
            v = task // rows % vectors
            row = task % rows
            state = T.alloc_local((VARIABLES,), sizes.container)
            state[SATURATED] = sizes.broadcast(0)
            state[UNDERFLOWED] = sizes.broadcast(0)
            for column in range(columns):
                if shared:
                    state[EXPONENT] = sizes.broadcast(exponents[n, row, column, 0])
                else:
                    state[EXPONENT] = sizes.computed(exponents[n, row, column, v])
                loops.quantise(values, output, state, units, lifts, lows, highs, n, v, row, column)
            saturations[task, 0] = cast(state[SATURATED], "int32")
            underflows[task, 0] = cast(state[UNDERFLOWED], "int32")

    return main


def _count(sizes: BlockSizes) -> Any:
    """The overflows of each block at each candidate, [N, rows, columns, candidates, channels or 1]."""
    loops = _loops(sizes)
    rows, columns = sizes.plan.grid
    vectors, shared = sizes.plan.vectors, sizes.plan.shared
    tasks = 1 if shared else vectors
    together = vectors if shared else 1

    @T.prim_func(s_tir=True)
    def main(
        values_argument: T.handle,
        highs_argument: T.handle,
        lows_argument: T.handle,
        counts_argument: T.handle,
    ):
        T.func_attr({"tirx.noalias": True})
        batch, count = T.int64(), T.int64()
        values = T.match_buffer(values_argument, (batch, *sizes.map), sizes.values)
        highs = T.match_buffer(highs_argument, (count, vectors), sizes.container)
        lows = T.match_buffer(lows_argument, (count, vectors), sizes.container)
        counts = T.match_buffer(counts_argument, (batch, rows, columns, count, tasks), sizes.exponent)
        for task in T.parallel(batch * tasks * rows):
            n = task // (tasks * rows)
            first = task // rows % tasks
            row = task % rows
            state = T.alloc_local((VARIABLES,), sizes.container)
            for column, candidate in T.grid(columns, count):
                state[COUNT] = sizes.broadcast(0)
                for other in range(together):
                    v = first + other
                    loops.outside(values, state, lows[candidate, v], highs[candidate, v], n, v, row, column)
                if shared:
                    counts[n, row, column, candidate, 0] = cast(lane_sum(state[COUNT]), "int32")
                else:
                    counts[n, row, column, candidate, first] = cast(state[COUNT], "int32")

    return main


def _choose(sizes: BlockSizes) -> Any:
    """The finest candidate whose overflows, added up over some blocks, are within limits, or the fewest there are.

    The blocks are those of `BlockPlan.neighbours`. `limits` has one entry for each number of them that there can be;
    a block without any takes `default`.
    """
    plan = sizes.plan
    rows, columns = plan.grid
    vectors = sizes.grid[-1]
    offsets = [(0, 0)] if plan.neighbours is None else [OFFSETS[each] for each in plan.neighbours]

    @T.prim_func(s_tir=True)
    def main(
        counts_argument: T.handle,
        candidates_argument: T.handle,
        limits_argument: T.handle,
        exponents_argument: T.handle,
        default: T.int32,
    ):
        T.func_attr({"tirx.noalias": True})
        batch, count = T.int64(), T.int64()
        counts = T.match_buffer(counts_argument, (batch, rows, columns, count, vectors), sizes.exponent)
        candidates = T.match_buffer(candidates_argument, (count,), "int32")
        limits = T.match_buffer(limits_argument, (len(offsets) + 1,), "int32")
        exponents = T.match_buffer(exponents_argument, (batch, rows, columns, vectors), sizes.exponent)
        for task in T.parallel(batch * rows):
            n = task // rows
            row = task % rows
            state = T.alloc_local((VARIABLES,), sizes.exponent)
            for column, v in T.grid(columns, vectors):
                known = sizes.known(offsets, row, column)
                state[EXPONENT] = sizes.exponents_of(default)
                if known > 0:
                    state[FEWEST] = T.max(
                        sizes.exponents_of(limits[known]), sizes.total(counts, offsets, n, row, column, 0, v)
                    )
                    state[EXPONENT] = sizes.exponents_of(candidates[count - 1])
                    for finer in range(1, count):
                        state[COUNT] = sizes.total(counts, offsets, n, row, column, finer, v)
                        step = sizes.exponents_of(candidates[finer - 1] - candidates[finer])
                        state[EXPONENT] = state[EXPONENT] + where(state[COUNT] > state[FEWEST], step)
                exponents[n, row, column, v] = state[EXPONENT]

    return main

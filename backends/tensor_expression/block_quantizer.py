"""From the values of a layer to mantissas and exponents of blocks: prepares and calls the steps of `block_plan`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from binpoint.backends.blocks import BlockExponents, grid_shape
from binpoint.backends.kernel import IntArray, KernelSpec
from binpoint.backends.memory import aligned_copy
from binpoint.backends.tensor_expression.block_plan import (
    BlockPlan,
    Step,
    Thresholds,
    ValueFormat,
    channel_vectors,
    thresholds,
    vector_lanes,
)
from binpoint.backends.tensor_expression.buffers import Workspace, argument
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.library import Function
from binpoint.support.numeric import BlockMethod, BlockPolicy

Key = tuple[tuple[int, ...], tuple[int, ...], ValueFormat]
"""Candidates, exponents of values, how these are stored."""

REMEMBERED_TABLES = 16
"""How many sets of thresholds a quantiser keeps prepared."""

EVENTS = "block_saturated", "block_underflowed"
"""Scratch memory of the two, a vector a task."""

LARGEST_LIMIT = (1 << 31) - 1

WHATEVER = ValueFormat()
"""For a step that reads no values."""


@dataclass(frozen=True)
class Tables:
    """The thresholds of a call, as arguments."""

    lifted: bool
    highs: Any
    lows: Any
    candidates: Any
    units: Any
    lifts: Any


@dataclass(frozen=True)
class Quantized:
    """What quantising some images leaves beside them.

    Attributes:
        saturated, underflowed: how many results did.
        bounds: the finest and the coarsest exponent.
        overflows: (N, candidates), where they were counted.
    """

    saturated: int
    underflowed: int
    bounds: tuple[int, int]
    overflows: IntArray | None


class BlockQuantizer:
    """Quantises values of one layer's output."""

    def __init__(self, spec: KernelSpec, policy: BlockPolicy, compiler: Compiler, workspace: Workspace) -> None:
        self._spec = spec
        self._policy = policy
        self._compiler = compiler
        self._workspace = workspace
        self._tables: dict[Key, Tables | None] = {}
        self._functions: dict[tuple[Step, ValueFormat, bool], Function] = {}
        self._lanes, self._vectors = vector_lanes(spec.output), channel_vectors(spec.output)
        _, self._rows, self._columns = grid_shape(spec.output)
        self._shared = not spec.output.granularity.per_channel
        steps = [int(policy.threshold * known) for known in range(len(policy.neighbours) + 1)]
        self._limits = argument(aligned_copy(np.array([min(each, LARGEST_LIMIT) for each in steps], np.int32)))
        self._no_limits = argument(aligned_copy(np.zeros(2, np.int32)))

    def tables(self, exponents: BlockExponents, units: tuple[int, ...], values: ValueFormat) -> Tables | None:
        """The thresholds for values at `units`, an exponent a channel; None where their container is too narrow."""
        key = exponents.candidates, units, values
        if key not in self._tables:
            if len(self._tables) >= REMEMBERED_TABLES:
                del self._tables[next(iter(self._tables))]
            spec = self._spec
            found = thresholds(spec.output, exponents.candidates, units, spec.rounding, values.container)
            self._tables[key] = None if found is None else self._arguments(found)
        return self._tables[key]

    def _arguments(self, found: Thresholds) -> Tables:
        highs, lows, units, lifts = (
            argument(each, self._lanes) for each in (found.highs, found.lows, found.units, found.lifts)
        )
        return Tables(found.lifted, highs, lows, argument(found.candidates), units, lifts)

    def run(
        self,
        values: Any,
        batch: int,
        stored_as: ValueFormat,
        tables: Tables,
        exponents: BlockExponents,
        grid: IntArray,
        output: Any,
        *,
        overflows: bool,
    ) -> Quantized:
        """Quantise `batch` images into `output`, exponents into `grid`.

        `values` and `output` are arguments as vectors of channels. Overflows are counted where asked for.
        """
        stored = argument(grid, 1 if self._shared else self._lanes)
        counts, step = None, Step.QUANTISE
        if len(exponents.candidates) == 1 and not overflows:
            grid[...] = exponents.candidates[0]
        elif self._policy.method is BlockMethod.ANALYSE and not overflows:
            step = Step.ANALYSE
        else:
            counts = self._choose(values, batch, stored_as, tables, exponents, stored)
        tasks = batch * self._rows * (1 if self._shared and step is Step.ANALYSE else self._vectors)
        events = [self._workspace.take(name, (tasks, self._lanes), "int32", self._lanes)[1] for name in EVENTS]
        candidates = (tables.candidates,) if step is Step.ANALYSE else ()
        self._function(step, stored_as, tables.lifted)(
            values,
            tables.highs,
            tables.lows,
            *candidates,
            tables.units,
            tables.lifts,
            stored,
            output,
            *events,
        )
        summary, flat_summary = self._workspace.take("block_summary", (4,), "int64")
        size = tasks * self._lanes
        self._summarise(
            *(self._workspace.take(name, (size,), "int32")[1] for name in EVENTS),
            argument(grid.reshape(-1)),
            flat_summary,
        )
        saturated, underflowed, finest, coarsest = summary.tolist()
        return Quantized(saturated, underflowed, (finest, coarsest), counts)

    def _choose(
        self,
        values: Any,
        batch: int,
        stored_as: ValueFormat,
        tables: Tables,
        exponents: BlockExponents,
        stored: Any,
    ) -> IntArray:
        """Count, choose from counts, and give the counts of each image."""
        width = 1 if self._shared else self._vectors * self._lanes
        shape = (batch, self._rows, self._columns, len(exponents.candidates), width)
        counts, flat = self._workspace.take("block_counts", shape, "int32", 1 if self._shared else self._lanes)
        self._function(Step.COUNT, stored_as)(values, tables.highs, tables.lows, flat)
        predicted = self._policy.method is BlockMethod.PREDICT
        limits = self._limits if predicted else self._no_limits
        self._function(Step.CHOOSE)(flat, tables.candidates, limits, stored, exponents.default)
        images: IntArray = counts.sum(axis=(1, 2, 4), dtype=np.int64)
        return images

    @cached_property
    def _summarise(self) -> Function:
        def build() -> Any:
            from binpoint.backends.tensor_expression import block_summary_code

            return block_summary_code.build()

        return self._compiler.function("block summary", build)

    def _function(self, step: Step, values: ValueFormat = WHATEVER, lifted: bool = False) -> Function:
        key = step, values, lifted
        function = self._functions.get(key)
        if function is None:
            predicted = step is Step.CHOOSE and self._policy.method is BlockMethod.PREDICT
            neighbours = self._policy.neighbours if predicted else None
            plan = BlockPlan(step, self._spec.output, values, self._spec.rounding, lifted, neighbours)

            def build() -> Any:
                from binpoint.backends.tensor_expression import block_code

                return block_code.build(plan)

            function = self._functions[key] = self._compiler.function(f"block {plan!r}", build)
        return function

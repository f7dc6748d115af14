"""Updates at run time: whole rows in place, what is left over in a row of its own, statistics of the sampled pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from binpoint.backends.gradients import UpdateSpec
from binpoint.backends.kernel import EMPTY_RECORD, BoolArray, Draw, Events, IntArray, StatisticsRecord
from binpoint.backends.memory import aligned_copy, aligned_empty, aligned_zeros, is_aligned
from binpoint.backends.oracle.fixed_point import container
from binpoint.backends.tensor_expression.buffers import Workspace, argument
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.library import Function
from binpoint.backends.tensor_expression.parameter_layout import ROW_VECTORS, VECTOR
from binpoint.backends.tensor_expression.plan import Form
from binpoint.backends.tensor_expression.statistics import Remembered, StatisticsCircuits, pair_list
from binpoint.backends.tensor_expression.update_plan import CONTAINER, UpdatePlan
from binpoint.backends.training_backend import Updated, UpdateExponents, UpdateResult
from binpoint.support.numeric import FixedConstant, Rounding

ROW = ROW_VECTORS * VECTOR
"""Elements of a row of the code."""


class UpdateKernel:
    """See `binpoint.backends.training_backend.Update`."""

    def __init__(self, spec: UpdateSpec, rounding: Rounding, compiler: Compiler, workspace: Workspace) -> None:
        self._name = spec.name
        self._plan = UpdatePlan(replace(spec, name=""), rounding)
        self._compiler = compiler
        self._workspace = workspace
        self._circuits = StatisticsCircuits(Form.LAYER, compiler)
        self._pairs = Remembered(_sampled_pairs)

    def __call__(
        self,
        master: IntArray,
        velocity: IntArray | None,
        gradient: IntArray,
        exponents: UpdateExponents,
        rate: FixedConstant,
        *,
        sample: BoolArray | None = None,
        draw: Draw | None = None,
    ) -> UpdateResult:
        """One step; `velocity` is None exactly where the spec has no momentum."""
        spec = self._plan.spec
        if (velocity is None) != (spec.momentum is None) or (spec.momentum is None) != (spec.velocity_bits is None):
            raise ValueError(f"{self._name}: momentum and a velocity belong together")
        widths = spec.master_bits, spec.velocity_bits, spec.gradient_bits
        inputs = [
            _ready(array, width)
            for array, width in zip((master, velocity, gradient), widths, strict=True)
            if array is not None and width is not None
        ]
        scalars = self._plan.scalars(exponents, rate, draw)
        outputs = [aligned_empty(master.shape, container(result.bits)) for result in self._plan.results]
        events = self._run(inputs, outputs, scalars)
        records: Sequence[StatisticsRecord | None] = [None] * len(outputs)
        if sample is not None:
            positions = self._plan.value_exponents(exponents, rate)
            records = self._acquire(inputs, master.shape, sample, scalars, positions)
        updated = [Updated(*each) for each in zip(outputs, records, events, strict=True)]
        return UpdateResult(updated[-2], updated[0] if len(updated) == 3 else None, updated[-1])

    def _run(self, inputs: Sequence[IntArray], outputs: Sequence[IntArray], scalars: Sequence[int]) -> list[Events]:
        """All elements: rows in the arrays' own memory, and what does not fill a row in a copy."""
        size = outputs[0].size
        whole = size // ROW * ROW
        counts = np.zeros((len(outputs), 2), np.int64)
        if whole:
            shape = whole // ROW, ROW_VECTORS, VECTOR
            arguments = [argument(array.reshape(-1)[:whole].reshape(shape)) for array in (*inputs, *outputs)]
            counts += self._rows(arguments, shape[0], scalars, 0)
        if whole < size:
            shape = 1, ROW_VECTORS, VECTOR
            rest = [
                self._workspace.take(f"update_rest{index}", shape, array.dtype.name)
                for index, array in enumerate((*inputs, *outputs))
            ]
            for (padded, _), array in zip(rest, inputs, strict=False):
                padded.reshape(-1)[: size - whole] = array.reshape(-1)[whole:]
                # Zeros count neither as saturated nor as underflowed.
                padded.reshape(-1)[size - whole :] = 0
            counts += self._rows([each for _, each in rest], 1, scalars, whole)
            for (padded, _), array in zip(rest[len(inputs) :], outputs, strict=True):
                array.reshape(-1)[whole:] = padded.reshape(-1)[: size - whole]
        return [Events(size, saturated, underflowed) for saturated, underflowed in counts.tolist()]

    def _rows(self, arrays: Sequence[Any], rows: int, scalars: Sequence[int], first: int) -> IntArray:
        """(results, 2) saturated and underflowed results of rows of inputs and outputs, the arguments given."""
        count = len(self._plan.results)
        taken = [self._workspace.take(f"update_events{index}", (rows, VECTOR), "int32") for index in range(2 * count)]
        events = [each for _, each in taken]
        results: list[Any] = []
        for index, output in enumerate(arrays[-count:]):
            results += [output, *events[2 * index : 2 * index + 2]]
        self._function(*arrays[:-count], *results, *scalars, first)
        return np.array([int(array.sum()) for array, _ in taken]).reshape(count, 2)

    def _acquire(
        self,
        inputs: Sequence[IntArray],
        shape: tuple[int, ...],
        sample: BoolArray,
        scalars: Sequence[int],
        exponents: Sequence[int],
    ) -> list[StatisticsRecord]:
        """The statistics of each result over the sampled pairs."""
        pairs, rows = self._pairs(sample)
        if not len(pairs):
            return [EMPTY_RECORD] * len(exponents)
        taps = prod(shape[2:])
        values = [
            self._workspace.take(f"update_values{index}", (len(pairs), 1, 1, taps, 1), CONTAINER.dtype)
            for index in range(len(exponents))
        ]
        flat = [argument(array.reshape(-1)) for array in inputs]
        tables = [argument(array.reshape(len(pairs), taps)) for array, _ in values]
        self._sampled(*flat, argument(pairs), *tables, *scalars, shape[1])
        return [
            self._circuits.acquire(CONTAINER, [each], rows, exponent)
            for (_, each), exponent in zip(values, exponents, strict=True)
        ]

    @cached_property
    def _function(self) -> Function:
        def build() -> Any:
            from binpoint.backends.tensor_expression import update_kernel

            return update_kernel.build(self._plan)

        return self._compiler.function(f"update {self._plan!r}", build)

    @cached_property
    def _sampled(self) -> Function:
        def build() -> Any:
            from binpoint.backends.tensor_expression import update_kernel

            return update_kernel.build_sampled(self._plan)

        return self._compiler.function(f"sampled update {self._plan!r}", build)


def _sampled_pairs(sample: BoolArray) -> tuple[IntArray, IntArray]:
    """The sampled pairs, and where their values lie in a table of one row each: (row, 0)."""
    pairs = pair_list(sample)
    rows = aligned_zeros(pairs.shape, "int32")
    rows[:, 0] = np.arange(len(pairs))
    return pairs, rows


def _ready(array: IntArray, bits: int) -> IntArray:
    """The array itself where code can read it, else a copy."""
    dtype = container(bits)
    return array if array.dtype == dtype and is_aligned(array) else aligned_copy(array.astype(dtype, copy=False))

"""The PE program at run time: the kernel of one tile, called once for each tile of a layer.

A literal run makes hundreds of thousands of calls, so a call does little: arguments are made once for each size of
tile and each batch, and the host reads three counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np

from binpoint.backends.kernel import (
    Draw,
    Events,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    StatisticsRecord,
    TensorSpec,
    Tile,
    TileResult,
)
from binpoint.backends.memory import aligned_copy, aligned_empty, is_aligned
from binpoint.backends.tensor_expression.binding import Binding, Request, Setting
from binpoint.backends.tensor_expression.buffers import argument
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.layout import storage_dtype
from binpoint.backends.tensor_expression.plan import Container, Form
from binpoint.backends.tensor_expression.runtime_scalars import call_scalars
from binpoint.backends.tensor_expression.statistics import StatisticsCircuits, pair_list


@dataclass(frozen=True)
class _TileMemory:
    """What the code writes for tiles of one size: the output and the event counters, and all of it as arguments."""

    output: IntArray
    counts: tuple[IntArray, ...]
    outputs: tuple[Any, ...]
    values: tuple[Any, ...]
    pairs: Any


class TileProgram:
    """See `binpoint.backends.kernel.PeProgram`.

    Inputs that are contiguous, aligned to 64 bytes and of the storage dtype, as `download` returns them, are read in
    place; others are copied at each call.
    """

    def __init__(self, spec: KernelSpec, parameters: KernelParameters, compiler: Compiler) -> None:
        self.spec = spec
        self._binding = Binding(spec, parameters, Form.TILE, compiler)
        self._in_place: tuple[tuple[IntArray, ...], tuple[Any, ...]] = (), ()
        self._memories: dict[tuple[Container, int, int], _TileMemory] = {}
        self._circuits = StatisticsCircuits(Form.TILE, compiler)

    def __call__(
        self,
        inputs: Sequence[IntArray],
        tile: Tile,
        exponents: KernelExponents,
        *,
        sampled: bool = False,
        draw: Draw | None = None,
    ) -> TileResult:
        """Compute one tile."""
        spec = self.spec
        setting = self._binding.setting(exponents, Request(values=not spec.exact, batch=len(inputs[0])))
        plan = setting.plan
        memory = self._memories.get((plan.container, tile.images, tile.channels))
        if memory is None:
            memory = self._allocate(setting, tile)
        setting.function(
            *self._arguments(inputs),
            *setting.operands,
            *memory.outputs,
            *memory.values,
            *setting.scalars,
            *call_scalars(plan, draw, tile=(tile.first_image, tile.first_channel)),
        )
        record = self._acquire(setting, memory) if sampled and spec.statistics and not spec.exact else None
        # Each counter is an array of one element (see `generic.GenericDesign.event_shapes`).
        events = Events(memory.output.size, *[count.item() for count in memory.counts])
        return TileResult(memory.output.copy(), record, events)

    def _arguments(self, inputs: Sequence[IntArray]) -> tuple[Any, ...]:
        """The batch's mantissas as arguments; the ones read in place are kept for the next call."""
        known, arguments = self._in_place
        if len(known) == len(inputs) and all(map(is_, inputs, known)):
            return arguments
        usable = [self._ready(array, spec) for array, spec in zip(inputs, self.spec.inputs, strict=True)]
        arguments = tuple(argument(array[..., np.newaxis]) for array in usable)
        if all(map(is_, inputs, usable)):
            self._in_place = tuple(inputs), arguments
        return arguments

    @staticmethod
    def _ready(array: IntArray, spec: TensorSpec) -> IntArray:
        dtype = storage_dtype(spec.bits)
        if array.shape[1:] != spec.shape:
            raise ValueError(f"mantissas of shape {array.shape[1:]} for a feature map {spec.shape}")
        if array.dtype == dtype and is_aligned(array):
            return array
        return aligned_copy(array.astype(dtype, copy=False))

    def _allocate(self, setting: Setting, tile: Tile) -> _TileMemory:
        spec, plan = self.spec.output, setting.plan
        shape = tile.images, tile.channels, spec.height, spec.width
        output = aligned_empty(shape, storage_dtype(spec.bits))
        counts = (
            ()
            if plan.spec.exact
            else tuple(aligned_empty(each, "int32") for each in setting.design.event_shapes(plan, tile.images))
        )
        values = [aligned_empty((*shape, 1), plan.container.dtype) for _ in range(plan.value_tensors)]
        memory = self._memories[plan.container, tile.images, tile.channels] = _TileMemory(
            output,
            counts,
            (argument(output[..., np.newaxis]), *map(argument, counts)),
            tuple(map(argument, values)),
            argument(pair_list(np.ones(shape[:2], np.bool_))),
        )
        return memory

    def _acquire(self, setting: Setting, memory: _TileMemory) -> StatisticsRecord:
        circuit = self._circuits.circuit(setting.plan.container)
        return circuit.acquire(memory.values, memory.pairs, setting.value_exponent)

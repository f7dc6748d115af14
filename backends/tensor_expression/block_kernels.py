"""Kernels over blocks at run time: align the inputs, compute values, quantise block by block.

What is not proved exact here (see `block_values`) is computed in the order of the PE, by the oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import sub
from typing import Any

import numpy as np

from binpoint.backends.blocks import BlockExponents, BlockKernel, BlockMap, BlockResult
from binpoint.backends.kernel import (
    Concat,
    Convolution,
    Draw,
    Events,
    IntArray,
    KernelParameters,
    KernelSpec,
    Sigmoid,
    Softmax,
)
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.tensor_expression.block_alignment import Alignment
from binpoint.backends.tensor_expression.block_buffers import GridLayout
from binpoint.backends.tensor_expression.block_plan import vector_lanes
from binpoint.backends.tensor_expression.block_quantizer import BlockQuantizer, Quantized, Tables
from binpoint.backends.tensor_expression.block_values import Operands, Values, ValuesBinding, plain_spec
from binpoint.backends.tensor_expression.buffers import FeatureMap, Workspace, argument, empty_feature_map
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.kernels import VALUES_BYTES, aligned_slices
from binpoint.backends.tensor_expression.layout import WIDEST_BITS, feature_map_layout, pack, unpack
from binpoint.support.numeric import BlockPolicy, Measure, Rounding, Selection

Span = tuple[int, int]
"""The finest and the coarsest exponent of a map."""

REMEMBERED_CALLS = 16
"""How many kinds of calls a kernel keeps prepared."""


@dataclass(frozen=True)
class Call:
    """All that a call needs besides its inputs.

    Attributes:
        operands: what the exponents of the inputs come to.
        values: the code that leaves values.
        arguments: its operands.
        tables: what the quantiser reads.
        aligned: all of the first input, aligned, where it was looked at.
    """

    operands: Operands
    values: Values
    arguments: tuple[Any, ...]
    tables: Tables
    aligned: Any = None


@dataclass(frozen=True)
class Undecided:
    """A call whose code depends on the mantissas themselves."""

    operands: Operands


class BlockLayerKernel:
    """See `binpoint.backends.blocks.BlockKernel`."""

    def __init__(
        self, spec: KernelSpec, parameters: KernelParameters, compiler: Compiler, workspace: Workspace
    ) -> None:
        self.spec = spec
        self._policy = spec.blocks or BlockPolicy()
        self._compiler = compiler
        self._workspace = workspace
        self._parameters = parameters
        self._lanes = vector_lanes(spec.output)
        self._shape = feature_map_layout(spec.output).shape(spec.output, 1)
        self._results = prod(spec.output.shape)
        self._alignments = [Alignment(index, tensor, compiler, workspace) for index, tensor in enumerate(spec.inputs)]
        self._grid, self._grids = GridLayout(spec.output), [GridLayout(tensor) for tensor in spec.inputs]
        self._quantizer = BlockQuantizer(spec, self._policy, compiler, workspace)
        self._bindings: dict[bool, ValuesBinding] = {}
        self._calls: dict[tuple[tuple[Span, ...], BlockExponents], Call | Undecided | None] = {}
        self._faithful: BlockKernel = OracleBackend().prepare_blocks(spec, parameters)

    def __call__(
        self,
        inputs: Sequence[BlockMap],
        exponents: BlockExponents,
        *,
        overflows: bool = False,
        draw: Draw | None = None,
        first_image: int = 0,
    ) -> BlockResult:
        """Compute all images of the batch."""
        call = self._prepared(inputs, exponents)
        if call is None:
            return self._compute_faithfully(inputs, exponents, overflows, draw, first_image)
        return self._compute(inputs, exponents, call, overflows)

    def design(self, inputs: Sequence[BlockMap], exponents: BlockExponents) -> str | None:
        """The design of the code that computes the values of a call; None where the oracle does."""
        call = self._prepared(inputs, exponents)
        return None if call is None else call.values.setting.design.name

    def _prepared(self, inputs: Sequence[BlockMap], exponents: BlockExponents) -> Call | None:
        """The code of a call, None where nothing proves that it does what the PE does."""
        if not inputs[0].batch:
            return None
        key = tuple(each.span for each in inputs), exponents
        if key not in self._calls:
            if len(self._calls) >= REMEMBERED_CALLS:
                del self._calls[next(iter(self._calls))]
            self._calls[key] = self._without_a_look(*key)
        call = self._calls[key]
        return self._after_a_look(inputs, exponents, call.operands) if isinstance(call, Undecided) else call

    def _without_a_look(self, spans: tuple[Span, ...], exponents: BlockExponents) -> Call | Undecided | None:
        """What exponents and widths alone decide."""
        operands = self._operands(spans, exponents)
        if operands is None:
            return None
        values = self._binding(operands).values(operands, exponents)
        if operands.mixed and isinstance(self.spec.operation, Convolution) and (values is None or values.faster):
            return Undecided(operands)
        return None if values is None else self._call(operands, values, values.setting.operands, exponents)

    def _after_a_look(self, inputs: Sequence[BlockMap], exponents: BlockExponents, operands: Operands) -> Call | None:
        """What the mantissas of each channel of a convolution's input decide; they are aligned then, too."""
        binding, source, alignment = self._binding(operands), inputs[0], self._alignments[0]
        grid, whole = self._grids[0].stored(source.exponents), slice(0, source.batch)
        aligned = self._align(0, source.buffer, grid, whole, operands)
        ranges = alignment.ranges(source.batch)
        values = binding.values(replace(operands, seen=binding.look(ranges)), exponents)
        if values is None:
            return None
        return self._call(operands, values, binding.about_centres(values, ranges), exponents, aligned)

    def _call(
        self,
        operands: Operands,
        values: Values,
        arguments: tuple[Any, ...],
        exponents: BlockExponents,
        aligned: Any = None,
    ) -> Call | None:
        tables = self._quantizer.tables(exponents, values.exponents, values.format)
        return None if tables is None else Call(operands, values, arguments, tables, aligned)

    def _binding(self, operands: Operands) -> ValuesBinding:
        binding = self._bindings.get(operands.mixed)
        if binding is None:
            plain = plain_spec(self.spec, aligned=operands.mixed)
            binding = self._bindings[operands.mixed] = ValuesBinding(plain, self._parameters, self._compiler)
        return binding

    def _operands(self, spans: tuple[Span, ...], exponents: BlockExponents) -> Operands | None:
        """What the inputs' exponents come to; None where the order of the PE matters, or 16 bits do not hold them."""
        policy, spec = self._policy, self.spec
        chooses = len(exponents.candidates) > 1
        if spec.rounding is Rounding.STOCHASTIC or (chooses and policy.measure is not Measure.OVERFLOWS):
            return None
        finest, coarsest = tuple(zip(*spans, strict=True))
        spreads = map(sub, coarsest, finest)
        bits = tuple(tensor.bits + spread for tensor, spread in zip(spec.inputs, spreads, strict=True))
        operands = Operands(finest, coarsest, bits)
        several = operands.mixed or (operands.spread and not isinstance(spec.operation, Concat))
        if several and policy.selection is Selection.INTEGER:
            return None
        if operands.mixed and isinstance(spec.operation, Sigmoid | Softmax):
            return None
        return operands if max(bits) <= WIDEST_BITS else None

    def _align(self, index: int, source: FeatureMap, grid: IntArray, images: slice, operands: Operands) -> Any:
        """Some images of an input, aligned, as an argument."""
        alignment = self._alignments[index]
        shape = (images.stop - images.start, *source.blocked.shape[1:])
        return alignment(_whole(source, images, alignment.lanes), grid[images], shape, operands.finest[index])

    def _compute(
        self, inputs: Sequence[BlockMap], exponents: BlockExponents, call: Call, overflows: bool
    ) -> BlockResult:
        spec, batch, values = self.spec, inputs[0].batch, call.values
        output, grid = empty_feature_map(spec.output, batch), self._grid.empty(batch)
        maps: list[FeatureMap] = [each.buffer for each in inputs]
        grids: list[IntArray] = []
        if call.operands.mixed:
            grids = [layout.stored(each.exponents) for each, layout in zip(inputs, self._grids, strict=True)]
        found: list[Quantized] = []
        for images in self._chunks(values, [output.blocked, grid, *(each.blocked for each in maps), *grids]):
            size = images.stop - images.start
            ready = [call.aligned] if call.aligned is not None and size == batch else None
            stored = self._run(call, ready or self._arguments(maps, grids, images, call), size)
            target = _whole(output, images, self._lanes)
            found.append(
                self._quantizer.run(
                    stored, size, values.format, call.tables, exponents, grid[images], target, overflows=overflows
                )
            )
        saturated, underflowed = sum(each.saturated for each in found), sum(each.underflowed for each in found)
        bounds = min(each.bounds[0] for each in found), max(each.bounds[1] for each in found)
        counts = [each.overflows for each in found if each.overflows is not None]
        return BlockResult(
            BlockMap(output, self._grid.view(grid), bounds),
            Events(batch * self._results, saturated, underflowed),
            np.concatenate(counts) if overflows else None,
        )

    def _arguments(self, maps: Sequence[FeatureMap], grids: Sequence[IntArray], images: slice, call: Call) -> list[Any]:
        """Some images of the inputs, aligned where they are mixed, as arguments of the kernel of values."""
        if call.operands.mixed:
            pairs = enumerate(zip(maps, grids, strict=True))
            return [self._align(index, each, grid, images, call.operands) for index, (each, grid) in pairs]
        lanes = call.values.setting.design.lanes.get("input", 1)
        return [_whole(each, images, lanes) for each in maps]

    def _run(self, call: Call, inputs: Sequence[Any], batch: int) -> Any:
        """The values of some images, as vectors of channels."""
        values, setting = call.values, call.values.setting
        shape = (batch, *self._shape[1:])
        width = setting.design.lanes.get("output" if self.spec.operation.exact else "values", 1)
        _, target = self._workspace.take("block_values", shape, values.format.dtype, width)
        setting.function(*inputs, *call.arguments, target, *setting.scalars)
        return self._workspace.take("block_values", shape, values.format.dtype, self._lanes)[1]

    def _chunks(self, values: Values, arrays: Sequence[IntArray]) -> Sequence[slice]:
        """The batch in slices whose values stay in the cache."""
        batch = len(arrays[0])
        if batch == 1:
            return [slice(0, 1)]
        image = prod(self._shape[1:]) * values.format.container.bits // 8
        fitting = min(values.setting.design.images_per_call(values.setting.plan) or batch, VALUES_BYTES // image)
        return [slice(0, batch)] if batch <= max(1, fitting) else list(aligned_slices(max(1, fitting), arrays))

    def _compute_faithfully(
        self,
        inputs: Sequence[BlockMap],
        exponents: BlockExponents,
        overflows: bool,
        draw: Draw | None,
        first_image: int,
    ) -> BlockResult:
        oracle = OracleBackend()
        maps = [
            BlockMap(oracle.upload(unpack(each.buffer.blocked, tensor), tensor), each.exponents)
            for each, tensor in zip(inputs, self.spec.inputs, strict=True)
        ]
        result = self._faithful(maps, exponents, overflows=overflows, draw=draw, first_image=first_image)
        output = empty_feature_map(self.spec.output, inputs[0].batch)
        pack(oracle.download(result.output.buffer), self.spec.output, output.blocked)
        return replace(result, output=BlockMap(output, result.output.exponents))


def _whole(feature_map: FeatureMap, images: slice, lanes: int) -> Any:
    """Some images of a feature map as an argument."""
    if images.stop - images.start == feature_map.batch:
        return feature_map.argument(lanes)
    return argument(feature_map.blocked[images], lanes)

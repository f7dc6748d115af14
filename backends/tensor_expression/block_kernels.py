"""Kernels over blocks at run time: align the inputs, compute values, quantise block by block.

What is not proved exact here (see `block_values`) is computed in the order of the PE, by the oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
from binpoint.backends.tensor_expression.block_buffers import empty_grid, grid_view, stored_grid
from binpoint.backends.tensor_expression.block_plan import vector_lanes
from binpoint.backends.tensor_expression.block_quantizer import BlockQuantizer, Tables
from binpoint.backends.tensor_expression.block_values import Operands, Values, ValuesBinding, plain_spec
from binpoint.backends.tensor_expression.buffers import FeatureMap, Workspace, argument, empty_feature_map
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.kernels import VALUES_BYTES, aligned_slices
from binpoint.backends.tensor_expression.layout import WIDEST_BITS, feature_map_layout, pack, unpack
from binpoint.support.numeric import BlockPolicy, Measure, Rounding, Selection


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
        self._quantizer = BlockQuantizer(spec, self._policy, compiler, workspace)
        self._bindings: dict[bool, ValuesBinding] = {}
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
        operands = self._operands(inputs, exponents)
        values, aligned = (None, None) if operands is None else self._values(inputs, operands, exponents)
        tables = None if values is None else self._tables(values, exponents)
        if operands is None or values is None or tables is None:
            return self._compute_faithfully(inputs, exponents, overflows, draw, first_image)
        return self._compute(inputs, exponents, operands, values, tables, overflows, aligned)

    def design(self, inputs: Sequence[BlockMap], exponents: BlockExponents) -> str | None:
        """The design of the code that computes the values of a call; None where the oracle does."""
        operands = self._operands(inputs, exponents)
        values, _ = (None, None) if operands is None else self._values(inputs, operands, exponents)
        if values is None or self._tables(values, exponents) is None:
            return None
        return values.setting.design.name

    def _operands(self, inputs: Sequence[BlockMap], exponents: BlockExponents) -> Operands | None:
        """What the inputs' exponents come to; None where the order of the PE matters, or 16 bits do not hold them."""
        policy, spec = self._policy, self.spec
        chooses = len(exponents.candidates) > 1
        if not inputs[0].batch or spec.rounding is Rounding.STOCHASTIC:
            return None
        if chooses and policy.measure is not Measure.OVERFLOWS:
            return None
        finest = tuple(int(each.exponents.min()) for each in inputs)
        coarsest = tuple(int(each.exponents.max()) for each in inputs)
        spreads = map(sub, coarsest, finest)
        bits = tuple(tensor.bits + spread for tensor, spread in zip(spec.inputs, spreads, strict=True))
        operands = Operands(finest, coarsest, bits)
        several = operands.mixed or (operands.spread and not isinstance(spec.operation, Concat))
        if several and policy.selection is Selection.INTEGER:
            return None
        if operands.mixed and isinstance(spec.operation, Sigmoid | Softmax):
            return None
        return operands if max(bits) <= WIDEST_BITS else None

    def _values(
        self, inputs: Sequence[BlockMap], operands: Operands, exponents: BlockExponents
    ) -> tuple[Values | None, Any]:
        """The code of the values, and the aligned first input where that was looked at."""
        binding = self._bindings.get(operands.mixed)
        if binding is None:
            plain = plain_spec(self.spec, aligned=operands.mixed)
            binding = self._bindings[operands.mixed] = ValuesBinding(plain, self._parameters, self._compiler)
        values = binding.values(operands, exponents)
        wanting = values is None or values.faster
        if not (wanting and operands.mixed and isinstance(self.spec.operation, Convolution)):
            return values, None
        # Widths are not enough for what is fast; the mantissas of each channel may be.
        source = inputs[0]
        grid, whole = stored_grid(source.exponents, self.spec.inputs[0]), slice(0, source.batch)
        aligned = self._align(0, source.buffer, grid, whole, operands)
        ranges = self._alignments[0].ranges(source.batch)
        values = binding.values(replace(operands, seen=binding.look(ranges)), exponents)
        return None if values is None else binding.about_centres(values, ranges), aligned

    def _align(self, index: int, source: FeatureMap, grid: IntArray, images: slice, operands: Operands) -> Any:
        """Some images of an input, aligned, as an argument."""
        alignment = self._alignments[index]
        shape = (images.stop - images.start, *source.blocked.shape[1:])
        return alignment(_whole(source, images, alignment.lanes), grid[images], shape, operands.finest[index])

    def _tables(self, values: Values, exponents: BlockExponents) -> Tables | None:
        return self._quantizer.tables(exponents, values.exponents, values.format)

    def _compute(
        self,
        inputs: Sequence[BlockMap],
        exponents: BlockExponents,
        operands: Operands,
        values: Values,
        tables: Tables,
        overflows: bool,
        aligned: Any,
    ) -> BlockResult:
        """Compute a call that is proved; `aligned` is the first input of the whole batch, if that is at hand."""
        spec, batch = self.spec, inputs[0].batch
        output, grid = empty_feature_map(spec.output, batch), empty_grid(spec.output, batch)
        maps: list[FeatureMap] = [each.buffer for each in inputs]
        grids: list[IntArray] = []
        if operands.mixed:
            grids = [stored_grid(each.exponents, tensor) for each, tensor in zip(inputs, spec.inputs, strict=True)]
        saturated, underflowed = 0, 0
        counts: list[IntArray] = []
        for images in self._chunks(values, [output.blocked, grid, *(each.blocked for each in maps), *grids]):
            size = images.stop - images.start
            ready = [aligned] if aligned is not None and size == batch else None
            found = self._run(values, ready or self._arguments(maps, grids, operands, images, values), size)
            target = _whole(output, images, self._lanes)
            quantized = self._quantizer.run(
                found, size, values.format, tables, exponents, grid[images], target, overflows=overflows
            )
            saturated, underflowed = saturated + quantized.saturated, underflowed + quantized.underflowed
            if quantized.overflows is not None:
                counts.append(quantized.overflows)
        return BlockResult(
            BlockMap(output, grid_view(grid, spec.output)),
            Events(batch * self._results, saturated, underflowed),
            np.concatenate(counts) if overflows else None,
        )

    def _arguments(
        self,
        maps: Sequence[FeatureMap],
        grids: Sequence[IntArray],
        operands: Operands,
        images: slice,
        values: Values,
    ) -> list[Any]:
        """Some images of the inputs, aligned where they are mixed, as arguments of the kernel of values."""
        if operands.mixed:
            pairs = enumerate(zip(maps, grids, strict=True))
            return [self._align(index, each, grid, images, operands) for index, (each, grid) in pairs]
        lanes = values.setting.design.lanes.get("input", 1)
        return [_whole(each, images, lanes) for each in maps]

    def _run(self, values: Values, inputs: Sequence[Any], batch: int) -> Any:
        """The values of some images, as vectors of channels."""
        setting = values.setting
        shape = (batch, *self._shape[1:])
        width = setting.design.lanes.get("output" if self.spec.operation.exact else "values", 1)
        _, target = self._workspace.take("block_values", shape, values.format.dtype, width)
        setting.function(*inputs, *setting.operands, target, *setting.scalars)
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

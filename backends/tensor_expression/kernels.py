"""Kernels of layers at run time: chunks of images, output, statistics, events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, lcm, prod
from typing import Any

import numpy as np

from binpoint.backends.kernel import (
    EMPTY_RECORD,
    BoolArray,
    Draw,
    Events,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelResult,
    KernelSpec,
)
from binpoint.backends.memory import ALIGNMENT
from binpoint.backends.tensor_expression.binding import Binding, Request, Setting
from binpoint.backends.tensor_expression.buffers import FeatureMap, Workspace, argument, empty_feature_map
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.layout import GROUP, feature_map_layout
from binpoint.backends.tensor_expression.plan import Form
from binpoint.backends.tensor_expression.runtime_scalars import call_scalars
from binpoint.backends.tensor_expression.statistics import Remembered, Selection, StatisticsCircuits, select
from binpoint.backends.tensor_expression.weights import Filters

VALUES_BYTES = 1 << 24
"""Values before quantisation that one chunk of images may take: they are read again while they are in the cache."""


class LayerKernel:
    """See `binpoint.backends.training_backend.TrainableKernel`. Computes a batch in chunks of images.

    `filters` says how the kernel reads its weight, see `binding.Binding`.
    """

    def __init__(
        self,
        spec: KernelSpec,
        parameters: KernelParameters,
        compiler: Compiler,
        workspace: Workspace,
        filters: Filters | None = None,
    ) -> None:
        self.spec = spec
        self._binding = Binding(spec, parameters, Form.LAYER, compiler, filters)
        self._workspace = workspace
        self._circuits = StatisticsCircuits(Form.LAYER, compiler)
        self._layout = feature_map_layout(spec.output)
        self._select = Remembered(lambda sample: select(sample, self._layout))

    def bind(self, parameters: KernelParameters) -> None:
        """Take new mantissas of the same shapes and widths; nothing is compiled again."""
        self._binding.bind(parameters)

    def design(self, exponents: KernelExponents, *, sampled: bool = False) -> str:
        """The name of the design that computes the layer with these exponents, and statistics where `sampled`."""
        return self._binding.setting(exponents, Request(values=sampled)).design.name

    def __call__(
        self,
        inputs: Sequence[FeatureMap],
        exponents: KernelExponents,
        *,
        sample: BoolArray | None = None,
        draw: Draw | None = None,
        first_image: int = 0,
    ) -> KernelResult:
        """Compute all images of the batch."""
        spec, batch = self.spec, inputs[0].batch
        selection = None
        if sample is not None and spec.statistics and not spec.exact:
            selection = self._select(sample)
        picked = selection is not None and selection.picks is not None
        setting = self._binding.setting(exponents, Request(selection is not None, picked))
        output = empty_feature_map(spec.output, batch)
        events = Events(results=batch * prod(spec.output.shape))
        record = None if selection is None else EMPTY_RECORD
        for images in self._chunks(setting, [*inputs, output]):
            part = selection if selection is None or images is None else selection.of(images)
            values, counted = self._run(setting, inputs, output, images, part, draw, first_image)
            events = events.merge(counted)
            if record is not None and part is not None:
                pairs = part.groups if setting.plan.picked else part.pairs
                found = self._circuits.acquire(setting.plan.container, values, pairs, setting.value_exponent)
                record = record.merge(found)
        return KernelResult(output, record, events)

    def _run(
        self,
        setting: Setting,
        inputs: Sequence[FeatureMap],
        output: FeatureMap,
        images: slice | None,
        selection: Selection | None,
        draw: Draw | None,
        first_image: int,
    ) -> tuple[list[Any], Events]:
        """One call of the code for some images, None for all: the values, where the plan has them, and the events."""
        plan, design = setting.plan, setting.design
        lanes = design.lanes.get

        def of(feature_map: FeatureMap, name: str) -> Any:
            if images is None:
                return feature_map.argument(lanes(name, 1))
            return argument(feature_map.blocked[images], lanes(name, 1))

        count = output.batch if images is None else images.stop - images.start
        counts = [
            self._workspace.take(f"events{index}", shape, "int32", lanes("events", 1))
            for index, shape in enumerate(() if plan.spec.exact else design.event_shapes(plan, count))
        ]
        shape = self._values_shape(setting, count)
        names = [f"values{index}" for index in range(plan.value_tensors)]
        dtype, width = plan.container.dtype, 1 if plan.picked else lanes("values", 1)
        picks = [argument(selection.picks)] if plan.picked and selection and selection.picks is not None else []
        first = first_image if images is None else first_image + images.start
        setting.function(
            *(of(each, "input") for each in inputs),
            *setting.operands,
            *picks,
            of(output, "output"),
            *(each for _, each in counts),
            *(self._workspace.take(name, shape, dtype, width)[1] for name in names),
            *setting.scalars,
            *call_scalars(plan, draw, first),
        )
        values = [self._workspace.take(name, shape, dtype)[1] for name in names]
        return values, Events(0, *(_total(array, count * prod(self.spec.output.shape)) for array, _ in counts))

    def _chunks(self, setting: Setting, maps: Sequence[FeatureMap]) -> Iterator[slice | None]:
        """The batch in slices that suit the design and the caches, each aligned in every array; None for all of it."""
        batch = maps[0].batch
        if not batch:
            return
        wanted = setting.design.images_per_call(setting.plan) or batch
        if setting.plan.values:
            image = prod(self._values_shape(setting, 1)) * np.dtype(setting.plan.container.dtype).itemsize
            wanted = min(wanted, max(1, VALUES_BYTES // image))
        if wanted >= batch:
            yield None
            return
        yield from aligned_slices(wanted, [each.blocked for each in maps])

    def _values_shape(self, setting: Setting, batch: int) -> tuple[int, ...]:
        shape = self._layout.shape(self.spec.output, batch)
        return (*shape[:-1], self._layout.block // GROUP) if setting.plan.picked else shape


def aligned_slices(wanted: int, arrays: Sequence[IntArray]) -> Iterator[slice]:
    """The images of some arrays, about `wanted` at a time, so that each slice of each array is aligned."""
    aligned = lcm(*(ALIGNMENT // gcd(ALIGNMENT, each[0].nbytes) for each in arrays))
    step, batch = -(-wanted // aligned) * aligned, len(arrays[0])
    for start in range(0, batch, step):
        yield slice(start, min(start + step, batch))


def _total(counts: IntArray, results: int) -> int:
    """The sum of counts of results; adding without widening is several times faster."""
    return int(counts.sum(dtype=np.int32 if results < 1 << 31 else np.int64))

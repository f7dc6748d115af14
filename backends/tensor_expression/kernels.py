"""Kernels of layers at run time: chunks of images, output, statistics, events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, lcm, prod

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
    StatisticsRecord,
)
from binpoint.backends.memory import ALIGNMENT, aligned_empty
from binpoint.backends.tensor_expression.binding import Binding, Setting
from binpoint.backends.tensor_expression.buffers import FeatureMap, Workspace, argument
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.layout import feature_map_layout, storage_dtype
from binpoint.backends.tensor_expression.plan import Container, Form
from binpoint.backends.tensor_expression.runtime_scalars import call_scalars
from binpoint.backends.tensor_expression.statistics import StatisticsCircuit, pair_list

VALUES_BYTES = 8 << 20
"""Values before quantisation that one chunk of images may take: they are read again while they are in the cache."""


class LayerKernel:
    """See `binpoint.backends.kernel.Kernel`. Computes a batch in chunks of images."""

    def __init__(
        self, spec: KernelSpec, parameters: KernelParameters, compiler: Compiler, workspace: Workspace
    ) -> None:
        self.spec = spec
        self._compiler = compiler
        self._binding = Binding(spec, parameters, Form.LAYER, compiler)
        self._workspace = workspace
        self._circuits: dict[Container, StatisticsCircuit] = {}

    def design(self, exponents: KernelExponents, *, sampled: bool = False) -> str:
        """The name of the design that computes the layer with these exponents, and statistics where `sampled`."""
        return self._binding.setting(exponents, values=sampled).design.name

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
        acquires = sample is not None and spec.statistics and not spec.exact
        setting = self._binding.setting(exponents, values=acquires)
        shape = feature_map_layout(spec.output).shape(spec.output, batch)
        output = aligned_empty(shape, storage_dtype(spec.output.bits))
        events = Events(results=batch * prod(spec.output.shape))
        record = EMPTY_RECORD if acquires else None
        for images in self._chunks(setting, [*(each.blocked for each in inputs), output]):
            values, counted = self._run(setting, inputs, output, images, draw, first_image)
            events = events.merge(counted)
            if record is not None and sample is not None:
                record = record.merge(self._acquire(setting, values, sample[images]))
        return KernelResult(FeatureMap(spec.output, output), record, events)

    def _acquire(self, setting: Setting, values: Sequence[IntArray], sample: BoolArray) -> StatisticsRecord:
        """The statistics of the sampled pairs of a chunk."""
        pairs = pair_list(sample)
        if not len(pairs):
            return EMPTY_RECORD
        container = setting.plan.container
        if container not in self._circuits:
            self._circuits[container] = StatisticsCircuit(container, Form.LAYER, self._compiler)
        arguments = [argument(each) for each in values]
        return self._circuits[container].acquire(arguments, argument(pairs), setting.value_exponent)

    def _run(
        self,
        setting: Setting,
        inputs: Sequence[FeatureMap],
        output: IntArray,
        images: slice,
        draw: Draw | None,
        first_image: int,
    ) -> tuple[list[IntArray], Events]:
        """One call of the code: the values, where the plan has them, and the events."""
        plan, design = setting.plan, setting.design
        count = images.stop - images.start
        lanes = design.lanes.get
        counts = (
            []
            if plan.spec.exact
            else [
                self._workspace.take(f"events{index}", shape, "int32")
                for index, shape in enumerate(design.event_shapes(plan, count))
            ]
        )
        values = [
            self._workspace.take(f"values{index}", output[images].shape, plan.container.dtype)
            for index in range(plan.value_tensors)
        ]
        setting.function(
            *(argument(each.blocked[images], lanes("input", 1)) for each in inputs),
            *setting.operands,
            argument(output[images], lanes("output", 1)),
            *(argument(each, lanes("events", 1)) for each in counts),
            *(argument(each, lanes("values", 1)) for each in values),
            *setting.scalars,
            *call_scalars(plan, draw, first_image + images.start),
        )
        if plan.spec.exact:
            return values, Events(0)
        counted = design.count_events(plan, counts)
        return values, Events(0, counted.saturated, counted.underflowed, counted.accumulator_overflows)

    def _chunks(self, setting: Setting, arrays: Sequence[IntArray]) -> Iterator[slice]:
        """The batch in slices that suit the design and the caches, each aligned in every array."""
        batch = len(arrays[0])
        if not batch:
            return
        wanted = setting.design.images_per_call(setting.plan) or batch
        if setting.plan.values:
            image_bytes = arrays[-1][0].size * np.dtype(setting.plan.container.dtype).itemsize
            wanted = min(wanted, max(1, VALUES_BYTES // image_bytes))
        aligned = lcm(*(ALIGNMENT // gcd(ALIGNMENT, array[0].nbytes) for array in arrays))
        step = -(-wanted // aligned) * aligned
        for start in range(0, batch, step):
            yield slice(start, min(start + step, batch))

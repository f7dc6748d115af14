"""Gradients of weights and biases at run time: exact sums over the batch, then what every kernel does with its sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from binpoint.backends.gradients import result_rows
from binpoint.backends.kernel import (
    Accumulator,
    BoolArray,
    Draw,
    Events,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelResult,
    KernelSpec,
    TensorSpec,
    Widen,
)
from binpoint.backends.memory import aligned_empty
from binpoint.backends.tensor_expression.bounds import choose_container, total_bound
from binpoint.backends.tensor_expression.buffers import FeatureMap, Workspace, argument
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.layout import storage_dtype
from binpoint.backends.tensor_expression.library import Function
from binpoint.backends.tensor_expression.parameter_layout import ROW_VECTORS, VECTOR, ParameterMap
from binpoint.backends.tensor_expression.parameter_sums import parameter_sums
from binpoint.backends.tensor_expression.plan import Container, Form, KernelPlan
from binpoint.backends.tensor_expression.runtime_scalars import call_scalars, exponent_scalars, value_exponent
from binpoint.backends.tensor_expression.statistics import Remembered, StatisticsCircuits

ROW = ROW_VECTORS * VECTOR
"""Elements of a row of the code."""


class ParameterGradientKernel:
    """See `binpoint.backends.training_backend.TrainableKernel`. The rows of the result are output channels."""

    def __init__(
        self, spec: KernelSpec, parameters: KernelParameters, compiler: Compiler, workspace: Workspace
    ) -> None:
        self.spec = spec
        self._compiler = compiler
        self._workspace = workspace
        self._sums = parameter_sums(spec, compiler)
        self._circuits = StatisticsCircuits(Form.LAYER, compiler)
        self._pairs = Remembered(self._sums.layout.pairs)
        self._functions: dict[tuple[Container, str, bool], Function] = {}

    def bind(self, parameters: KernelParameters) -> None:
        """There is nothing to bind: the sums depend on feature maps alone."""

    def design(self, exponents: KernelExponents, *, sampled: bool = False) -> str:
        """The name of the design that computes the sums."""
        return self._sums.name

    def __call__(
        self,
        inputs: Sequence[FeatureMap],
        exponents: KernelExponents,
        *,
        sample: BoolArray | None = None,
        draw: Draw | None = None,
        first_image: int = 0,
    ) -> KernelResult:
        """Compute the gradient; `sample` is (K, C)."""
        spec, layout = self.spec, self._sums.layout
        total = total_bound(spec, (), exponents, inputs[0].batch)
        rows = -(-layout.size // ROW)
        dtype = "int32" if total < 1 << 31 else "int64"
        sums, sums_argument = self._take("sums", rows, dtype)
        self._sums(inputs, sums.reshape(-1)[: layout.size].reshape(layout.shape))
        sums.reshape(-1)[layout.size :] = 0
        plan = self._plan(choose_container(spec, total, 0), dtype, sample is not None and spec.statistics)
        output = aligned_empty(sums.shape, storage_dtype(spec.output.bits))
        counts = [
            self._workspace.take(f"events{index}", (rows, 1, 1, VECTOR), "int32")
            for index in range(3 if plan.checked else 2)
        ]
        values = [self._take(f"values{index}", rows, plan.container.dtype) for index in range(plan.value_tensors)]
        self._function(plan)(
            sums_argument,
            argument(output),
            *(each for _, each in counts),
            *(each for _, each in values),
            *exponent_scalars(_with_spec(plan, spec), exponents),
            *call_scalars(plan, draw),
            *self._layout_scalars(plan),
        )
        results = result_rows(spec, inputs[0].batch) * prod(spec.output.shape)
        events = Events(results, *(int(array.sum(dtype=np.int64)) for array, _ in counts))
        statistics = None
        if plan.values and sample is not None:
            statistics = self._circuits.acquire(
                plan.container,
                [argument(self._blocked(array)) for array, _ in values],
                self._pairs(sample),
                value_exponent(spec, exponents),
            )
        return KernelResult(ParameterMap(layout, self._blocked(output)), statistics, events)

    def _take(self, name: str, rows: int, dtype: str) -> tuple[IntArray, Any]:
        return self._workspace.take(name, (rows, 1, 1, ROW_VECTORS, VECTOR), dtype)

    def _blocked(self, array: IntArray) -> IntArray:
        """Rows of the code as the layout's array."""
        layout = self._sums.layout
        return array.reshape(-1)[: layout.size].reshape(layout.shape)

    def _plan(self, container: Container, reduction: str, values: bool) -> KernelPlan:
        """The plan of what happens to the sums: equal for parameters of all shapes."""
        spec = self.spec
        output = TensorSpec(1, 1, 1, spec.output.bits)
        accumulator = spec.accumulator if container is Container.WIDE else Accumulator()
        nameless = KernelSpec("", Widen(), (), output, None, accumulator, spec.rounding)
        return KernelPlan(nameless, container, reduction, values)

    def _function(self, plan: KernelPlan) -> Function:
        def build() -> Any:
            from binpoint.backends.tensor_expression import quantize_sums_kernel

            return quantize_sums_kernel.build(plan)

        key = plan.container, plan.reduction, plan.values
        if key not in self._functions:
            self._functions[key] = self._compiler.function(f"quantize sums {plan!r}", build)
        return self._functions[key]

    def _layout_scalars(self, plan: KernelPlan) -> tuple[int, ...]:
        """See `quantize_sums_kernel.SIZES`."""
        if not plan.stochastic:
            return ()
        layout = self._sums.layout
        _, channels, *kernel = layout.parameter
        return layout.block // VECTOR, prod(kernel), layout.stored_channels, channels


def _with_spec(plan: KernelPlan, spec: KernelSpec) -> KernelPlan:
    """The plan of a gradient's own spec, whose exponents decide the scalars."""
    return KernelPlan(spec, plan.container, plan.reduction, plan.values)

"""The data gradient of a convolution at run time: the kernels of its phases, and their results put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
from binpoint.backends.tensor_expression.buffers import FeatureMap, Workspace, empty_feature_map
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.kernels import LayerKernel
from binpoint.backends.tensor_expression.phases import Phase, phases


class DataGradientKernel:
    """See `binpoint.backends.training_backend.TrainableKernel`. For roundings that draw no random numbers."""

    def __init__(
        self, spec: KernelSpec, parameters: KernelParameters, compiler: Compiler, workspace: Workspace
    ) -> None:
        self.spec = spec
        self._phases: list[tuple[Phase, LayerKernel | None]] = [
            (phase, LayerKernel(phase.spec, parameters, compiler, workspace, phase.filters) if phase.spec else None)
            for phase in phases(spec)
        ]

    def bind(self, parameters: KernelParameters) -> None:
        """Take new weights of the same shape and width; nothing is compiled again."""
        for _, kernel in self._phases:
            if kernel is not None:
                kernel.bind(parameters)

    def design(self, exponents: KernelExponents, *, sampled: bool = False) -> tuple[str, ...]:
        """The names of the designs that compute the phases."""
        return tuple(kernel.design(exponents, sampled=sampled) for _, kernel in self._phases if kernel is not None)

    def __call__(
        self,
        inputs: Sequence[FeatureMap],
        exponents: KernelExponents,
        *,
        sample: BoolArray | None = None,
        draw: Draw | None = None,
        first_image: int = 0,
    ) -> KernelResult:
        """Compute dx of all images of the batch."""
        if len(self._phases) == 1 and self._phases[0][1] is not None:
            return self._phases[0][1](inputs, exponents, sample=sample, draw=draw, first_image=first_image)
        output = empty_feature_map(self.spec.output, inputs[0].batch)
        events, record = Events(0), EMPTY_RECORD
        for phase, kernel in self._phases:
            places = np.s_[:, :, phase.rows.places, phase.columns.places]
            if kernel is None:
                output.blocked[places] = 0
                results = output.batch * self.spec.output.channels * phase.rows.size * phase.columns.size
                events, record = events.merge(Events(results)), record.merge(_record_of_zeros(phase, sample))
                continue
            result = kernel(inputs, exponents, sample=sample, draw=draw, first_image=first_image)
            assert isinstance(result.output, FeatureMap)
            _whole_blocks(output.blocked)[places] = _whole_blocks(result.output.blocked)
            events, record = events.merge(result.events), record.merge(result.statistics or EMPTY_RECORD)
        return KernelResult(output, record if sample is not None and self.spec.statistics else None, events)


def _whole_blocks(blocked: IntArray) -> NDArray[np.void]:
    """[N, C blocks, H, W] with a block of channels as one element: moved many times faster than its channels are."""
    return blocked.view(np.dtype((np.void, blocked[0, 0, 0, 0].nbytes)))[..., 0]


def _record_of_zeros(phase: Phase, sample: BoolArray | None) -> StatisticsRecord:
    """What statistics PEs count where dx is 0."""
    if sample is None:
        return EMPTY_RECORD
    samples = int(np.count_nonzero(sample)) * phase.rows.size * phase.columns.size
    return StatisticsRecord({}, {}, samples, samples)

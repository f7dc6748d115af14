"""How a session's kernels are executed: the border between what is computed and in which pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from binpoint.backends.kernel import (
    Backend,
    Draw,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelResult,
    TensorSpec,
)
from binpoint.backends.program import KernelCall, Program
from binpoint.scheduling.schedule import LayerSchedule


class Executor(Protocol):
    """Holds feature maps and executes the calls of one program."""

    def store(self, mantissas: IntArray, spec: TensorSpec) -> Any:
        """(N, C, H, W) mantissas as a feature map of the executor."""

    def fetch(self, feature_map: Any) -> IntArray:
        """A feature map as (N, C, H, W) mantissas."""

    def execute(
        self,
        call: KernelCall,
        inputs: Sequence[Any],
        exponents: KernelExponents,
        schedule: LayerSchedule | None,
        draw: Draw | None,
        *,
        statistics: bool,
    ) -> KernelResult:
        """Execute one call for all images of a batch.

        `schedule` says which results a statistics PE computes, None for layers that no PE computes;
        `statistics` whether they are sampled at all.
        """


class LayerExecutor:
    """The fast path: one kernel of the backend computes all images and channels of a layer.

    Args:
        backend: compiles the kernels.
        program: the network.
        mantissas: its parameters.
    """

    def __init__(self, backend: Backend, program: Program, mantissas: Mapping[str, IntArray]) -> None:
        self._backend = backend
        self._kernels = {
            call.spec.name: backend.prepare(call.spec, parameters_of(call, mantissas)) for call in program.calls
        }

    def store(self, mantissas: IntArray, spec: TensorSpec) -> Any:
        """Mantissas in a buffer of the backend."""
        return self._backend.upload(mantissas, spec)

    def fetch(self, feature_map: Any) -> IntArray:
        """The mantissas of a buffer."""
        return self._backend.download(feature_map)

    def execute(
        self,
        call: KernelCall,
        inputs: Sequence[Any],
        exponents: KernelExponents,
        schedule: LayerSchedule | None,
        draw: Draw | None,
        *,
        statistics: bool,
    ) -> KernelResult:
        """Execute one call; the schedule becomes a mask over (image, channel) pairs."""
        sample = schedule.sample_mask() if statistics and schedule is not None else None
        return self._kernels[call.spec.name](inputs, exponents, sample=sample, draw=draw)


def parameters_of(call: KernelCall, mantissas: Mapping[str, IntArray]) -> KernelParameters:
    """The mantissas of one call's parameters."""
    return KernelParameters(
        weight=None if call.weight is None else mantissas[call.weight],
        bias=None if call.bias is None else mantissas[call.bias],
    )

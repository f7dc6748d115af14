"""Where every tensor of a training program lies in the accelerator's DRAM (JP7367595B2 fig. 9, S1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from binpoint.backends.gradients import result_rows
from binpoint.backends.kernel import TensorSpec
from binpoint.backends.training_program import (
    BatchNormBackwardStep,
    BatchNormForwardStep,
    KernelStep,
    LossStep,
    SumsStep,
    TrainingProgram,
    UpdateStep,
)
from binpoint.runtime.tensors import mantissa_dtype
from binpoint.runtime.training.names import beta_of, gamma_of, gradient_of, master_of, velocity_of

ALIGNMENT = 64
"""Bytes. Every area starts at a multiple of it."""

SUM_BYTES = 8
"""An exact sum is an int64."""


@dataclass(frozen=True)
class Area:
    """One tensor's part of the DRAM.

    `tensor` is the feature map of one row, None for plain arrays: parameters, coefficients and sums. Addresses and
    sizes are bytes.
    """

    name: str
    address: int
    size: int
    tensor: TensorSpec | None


def plan_areas(program: TrainingProgram, batch: int) -> dict[str, Area]:
    """One area a tensor by name, one after the other, for mini-batches of up to `batch` images.

    No two tensors share memory: the backward pass reads what the forward pass wrote.
    """
    areas: dict[str, Area] = {}
    end = 0
    for name, size, tensor in _tensors(program, batch):
        if name not in areas:
            areas[name] = Area(name, end, size, tensor)
            end = -(-(end + size) // ALIGNMENT) * ALIGNMENT
    return areas


def total_bytes(areas: dict[str, Area]) -> int:
    """The DRAM that the areas take."""
    return max((area.address + area.size for area in areas.values()), default=0)


def _tensors(program: TrainingProgram, batch: int) -> Iterator[tuple[str, int, TensorSpec | None]]:
    """Name, bytes and, for feature maps, one row of every tensor; parameters first."""
    yield from _parameters(program)
    maps = {declared.name: declared.tensor for declared in program.inputs}
    for declared in program.inputs:
        yield declared.name, batch * _map_bytes(declared.tensor), declared.tensor
    for step in program.steps:
        match step:
            case KernelStep():
                spec = step.call.spec
                maps[spec.name] = spec.output
                yield spec.name, result_rows(spec, batch) * _map_bytes(spec.output), spec.output
            case SumsStep():
                yield step.name, len(step.spec.terms) * step.spec.inputs[0].channels * SUM_BYTES, None
            case LossStep():
                tensor = TensorSpec(*maps[step.logits].shape, step.bits)
                yield step.gradient, batch * _map_bytes(tensor), tensor
            case BatchNormForwardStep():
                channels = maps[step.source].channels
                yield step.weight, _array_bytes(channels, step.weight_bits), None
                yield step.bias, _array_bytes(channels, step.bias_bits), None
            case BatchNormBackwardStep():
                channels = maps[step.source].channels
                yield step.weight, _array_bytes(2 * channels, step.weight_bits), None
                yield step.bias, _array_bytes(channels, step.bias_bits), None
                for parameter in (gamma_of(step.layer), beta_of(step.layer)):
                    yield gradient_of(parameter), _array_bytes(channels, step.parameter_gradient_bits), None
            case UpdateStep():
                pass


def _parameters(program: TrainingProgram) -> Iterator[tuple[str, int, None]]:
    updates = {step.parameter: step.spec for step in program.steps if isinstance(step, UpdateStep)}
    for parameter in program.parameters:
        elements = prod(parameter.shape)
        yield parameter.name, _array_bytes(elements, parameter.bits), None
        yield master_of(parameter.name), _array_bytes(elements, parameter.master_bits), None
        velocity_bits = updates[parameter.name].velocity_bits if parameter.name in updates else None
        if velocity_bits is not None:
            yield velocity_of(parameter.name), _array_bytes(elements, velocity_bits), None


def _map_bytes(tensor: TensorSpec) -> int:
    return _array_bytes(prod(tensor.shape), tensor.bits)


def _array_bytes(elements: int, bits: int) -> int:
    """Bytes of so many mantissas."""
    return elements * mantissa_dtype(bits)().itemsize

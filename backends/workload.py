"""What the scheduler needs to know of a program: one workload a kernel that PEs compute."""

from __future__ import annotations

from math import prod

from binpoint.backends.kernel import (
    Add,
    AveragePool,
    Convolution,
    KernelSpec,
    MaxPool,
    Reshape,
    Softmax,
)
from binpoint.backends.program import Program
from binpoint.scheduling.workload import Workload


def layer_workloads(program: Program) -> tuple[Workload, ...]:
    """The kernels that PEs compute, in data-flow order. A reshape moves nothing and is not scheduled."""
    return tuple(
        kernel_workload(call.spec, call.fused, operations_per_result(call.spec))
        for call in program.calls
        if not isinstance(call.spec.operation, Reshape)
    )


def kernel_workload(spec: KernelSpec, fused: tuple[str, ...], operations: int) -> Workload:
    """What an image costs in a kernel, at so many operations a result."""
    return Workload(
        layer=spec.name,
        channels=spec.output.channels,
        height=spec.output.height,
        width=spec.output.width,
        operations_per_result=operations,
        input_bytes=sum(mantissa_bytes(prod(tensor.shape), tensor.bits) for tensor in spec.inputs),
        parameter_bytes=_parameter_bytes(spec),
        output_bytes=mantissa_bytes(prod(spec.output.shape), spec.output.bits),
        statistics=spec.statistics and not spec.exact,
        exact=spec.exact,
        fused=fused,
    )


def operations_per_result(spec: KernelSpec) -> int:
    """Multiply-accumulates of one result, or comparisons, additions and look-ups where a layer does not multiply.

    Bias, activation, statistics and quantisation work on a finished result, beside the next one's accumulation, and
    count nothing.
    """
    operation = spec.operation
    match operation:
        case Convolution():
            return spec.inputs[0].channels // operation.groups * prod(operation.kernel)
        case AveragePool() | MaxPool():
            return prod(operation.kernel)
        case Add():
            return len(spec.inputs)
        case Softmax():
            return spec.inputs[0].channels
        case _:
            return 1


def _parameter_bytes(spec: KernelSpec) -> int:
    operation = spec.operation
    if not isinstance(operation, Convolution):
        return 0
    channels = spec.output.channels
    weights = channels * operations_per_result(spec)
    bias = 0 if operation.bias_bits is None else mantissa_bytes(channels, operation.bias_bits)
    return mantissa_bytes(weights, operation.weight_bits) + bias


def mantissa_bytes(elements: int, bits: int) -> int:
    """Bytes of mantissas in DRAM, each in whole bytes."""
    return elements * -(-bits // 8)

"""What the scheduler needs to know of a training program: one workload a kernel, a sum and an update.

Forward kernels and gradients of data have pairs (image, channel), the latter of input channels; gradients of
parameters and updates have pairs (output channel, input channel).
"""

from __future__ import annotations

from math import prod

from binpoint.backends.gradients import (
    PARAMETER_GRADIENTS,
    AveragePoolGradient,
    ChannelAffine,
    ConvolutionDataGradient,
    MaxPoolGradient,
    ResizeGradient,
    result_rows,
)
from binpoint.backends.kernel import KernelSpec, Reshape
from binpoint.backends.program import KernelCall
from binpoint.backends.training_program import (
    KernelStep,
    ParameterFormat,
    SumsStep,
    TrainingProgram,
    UpdateStep,
)
from binpoint.backends.workload import kernel_workload, mantissa_bytes, operations_per_result
from binpoint.scheduling.workload import Workload

SUM_BYTES = 8
"""One exact sum."""


def training_workloads(program: TrainingProgram) -> tuple[Workload, ...]:
    """What PEs compute of one mini-batch, in order. A reshape moves nothing and is not scheduled."""
    parameters = {parameter.name: parameter for parameter in program.parameters}
    found: list[Workload] = []
    for step in program.steps:
        match step:
            case KernelStep(call=call) if not isinstance(call.spec.operation, Reshape):
                found.append(_kernel(call, program.batch))
            case SumsStep():
                found.append(_sums(step))
            case UpdateStep():
                found.append(_update(step, parameters[step.parameter]))
    return tuple(found)


def _kernel(call: KernelCall, batch: int) -> Workload:
    spec = call.spec
    if isinstance(spec.operation, PARAMETER_GRADIENTS):
        return _parameter_gradient(call, batch)
    return kernel_workload(spec, call.fused, _operations(spec))


def _parameter_gradient(call: KernelCall, batch: int) -> Workload:
    """Every result sums over the images and pixels of the mini-batch."""
    spec = call.spec
    gradient = spec.inputs[-1]
    images = sum(mantissa_bytes(prod(tensor.shape), tensor.bits) for tensor in spec.inputs)
    return Workload(
        layer=spec.name,
        channels=spec.output.channels,
        height=spec.output.height,
        width=spec.output.width,
        operations_per_result=batch * gradient.height * gradient.width,
        input_bytes=0,
        parameter_bytes=batch * images,
        output_bytes=mantissa_bytes(prod(spec.output.shape), spec.output.bits),
        statistics=spec.statistics,
        fused=call.fused,
        rows=result_rows(spec, batch),
    )


def _operations(spec: KernelSpec) -> int:
    """Operations of one result of a gradient of data, on average over its map where strides make them differ."""
    operation, before, after = spec.operation, spec.output, spec.inputs[-1]
    elements = before.height * before.width
    match operation:
        case ConvolutionDataGradient(convolution=convolution):
            after = spec.inputs[0]
            outputs = after.channels // convolution.groups * after.height * after.width
            return _ceiling(outputs * prod(convolution.kernel), elements)
        case MaxPoolGradient(pool=pool) | AveragePoolGradient(pool=pool):
            return _ceiling(after.height * after.width * prod(pool.kernel), elements)
        case ResizeGradient():
            return _ceiling(after.height * after.width, elements)
        case ChannelAffine():
            return len(spec.inputs)
        case _:
            return operations_per_result(spec)


def _sums(step: SumsStep) -> Workload:
    """One partial result an image and channel: a multiply-accumulate a term and pixel."""
    spec = step.spec
    channels, height, width = spec.inputs[0].shape
    return Workload(
        layer=step.name,
        channels=channels,
        height=1,
        width=1,
        operations_per_result=len(spec.terms) * height * width,
        input_bytes=sum(mantissa_bytes(prod(tensor.shape), tensor.bits) for tensor in spec.inputs),
        parameter_bytes=len(spec.terms) * channels * SUM_BYTES,
        output_bytes=0,
        statistics=False,
    )


def _update(step: UpdateStep, parameter: ParameterFormat) -> Workload:
    """Reads master, velocity and gradient, writes master, velocity and working copy; one multiplication a constant."""
    spec = step.spec
    rows, channels, height, width = (*parameter.shape, 1, 1, 1)[:4]
    elements = channels * height * width
    kept = [spec.master_bits, *([] if spec.velocity_bits is None else [spec.velocity_bits])]
    constants = 1 + (spec.momentum is not None) + (spec.decay is not None)
    return Workload(
        layer=f"{step.parameter}.update",
        channels=channels,
        height=height,
        width=width,
        operations_per_result=constants,
        input_bytes=sum(mantissa_bytes(elements, bits) for bits in (*kept, spec.gradient_bits)),
        parameter_bytes=0,
        output_bytes=sum(mantissa_bytes(elements, bits) for bits in (*kept, spec.working_bits)),
        fused=(step.parameter.rpartition(".")[0],),
        rows=rows,
    )


def _ceiling(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)

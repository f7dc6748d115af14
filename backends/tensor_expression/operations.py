"""The definition of each operation as `te.compute`, over abstract inputs and any part of the output (see `tensors`).

The result is exact, in the plan's reduction dtype, bias excluded; for exact operations it is the moved mantissas.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from tvm import te, tirx

from binpoint.backends.kernel import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    KernelSpec,
    MaxPool,
    Reshape,
    Resize,
    Sigmoid,
    Softmax,
    Widen,
)
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.tables import FRACTION_BITS
from binpoint.backends.tensor_expression import gradient_operations
from binpoint.backends.tensor_expression.arithmetic import Expression, Scalars, align, cast
from binpoint.backends.tensor_expression.layout import Layout
from binpoint.backends.tensor_expression.plan import KernelPlan
from binpoint.backends.tensor_expression.tensors import Operands, Part, Source, reduce_axis, sizes, window_axes


def define(plan: KernelPlan, part: Part, sources: Sequence[Source], operands: Operands, scalars: Scalars) -> Expression:
    """The te tensor of an operation's exact results."""
    spec, source = plan.spec, sources[0]
    match spec.operation:
        case Convolution() as operation:
            return _convolution(plan, operation, part, source, operands["weight"])
        case AveragePool() as operation:
            return _average_pool(plan, operation, part, source, operands["reciprocals"])
        case MaxPool() as operation:
            return _max_pool(operation, part, source)
        case Add():
            return _add(plan, part, sources, scalars)
        case Concat():
            return _concat(plan, part, sources, scalars)
        case Widen():
            return part.compute("total", lambda *at: cast(source.read(*at), plan.reduction))
        case Sigmoid():
            return _sigmoid(plan, part, source, operands["table"])
        case Softmax():
            return _softmax(plan, part, source, operands["table"])
        case Resize():
            return _resize(spec, part, source)
        case Reshape():
            return _reshape(spec, part, source)
        case _:
            return gradient_operations.define(plan, part, sources, operands, scalars)


def _convolution(
    plan: KernelPlan, operation: Convolution, part: Part, source: Source, weight: Expression
) -> Expression:
    """sum over c, r, s of x[n, c, h * stride + r * dilation, ...] * w[k, c, r, s].

    `weight` is [K blocks, C / groups, R, S, block].
    """
    outputs_a_group = plan.spec.output.channels // operation.groups
    inputs_a_group = plan.spec.inputs[0].channels // operation.groups
    image = source.bordered(operation.padding, fill=0)
    weights = Layout(int(weight.shape[-1]))
    c = reduce_axis(inputs_a_group, "c")
    r, s = window_axes(operation.kernel)

    def body(n: Expression, k: Expression, h: Expression, w: Expression) -> Expression:
        channel = c
        if operation.groups > 1:
            channel = part.existing(k) // outputs_a_group * inputs_a_group + c
        row = h * operation.stride[0] + r * operation.dilation[0]
        column = w * operation.stride[1] + s * operation.dilation[1]
        left = cast(image.read(n, channel, row, column), "int32")
        right = cast(weight(*weights.filter_index(k, c, r, s)), "int32")
        return te.sum(cast(left * right, plan.reduction), axis=[c, r, s])

    return part.compute("total", body)


def _average_pool(
    plan: KernelPlan, operation: AveragePool, part: Part, source: Source, reciprocals: Expression
) -> Expression:
    """The sum of each window times its reciprocal, [H_out, W_out] multipliers."""
    image = source.bordered(operation.padding, fill=0)
    r, s = window_axes(operation.kernel)
    stride = operation.stride

    def window(n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        value = image.read(n, c, h * stride[0] + r, w * stride[1] + s)
        return te.sum(cast(value, plan.reduction), axis=[r, s])

    sums = part.compute("window_sum", window)
    return te.compute(
        sizes(part.shape),
        lambda *index: sums(*index) * cast(reciprocals(*part.coordinates(*index)[2:]), plan.reduction),
        name="total",
    )


def _max_pool(operation: MaxPool, part: Part, source: Source) -> Expression:
    """The largest mantissa of each window. The border holds the least one, and no window is all border."""
    image = source.bordered(operation.padding, fill=mantissa_range(source.spec.bits)[0])
    r, s = window_axes(operation.kernel)
    stride = operation.stride
    return part.compute(
        "total", lambda n, c, h, w: te.max(image.read(n, c, h * stride[0] + r, w * stride[1] + s), axis=[r, s])
    )


def _add(plan: KernelPlan, part: Part, sources: Sequence[Source], scalars: Scalars) -> Expression:
    def body(*at: Expression) -> Expression:
        terms = [
            align(cast(source.read(*at), plan.reduction), plan.spec.rounding, scalars, prefix=f"input{index}_")
            for index, source in enumerate(sources)
        ]
        return sum(terms[1:], start=terms[0])

    return part.compute("total", body)


def _concat(plan: KernelPlan, part: Part, sources: Sequence[Source], scalars: Scalars) -> Expression:
    borders = list(pairwise(accumulate((source.spec.channels for source in sources), initial=0)))

    def body(n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        def from_source(index: int) -> Expression:
            first, end = borders[index]
            mantissa = cast(sources[index].read(n, c - first, h, w), plan.reduction)
            value = align(mantissa, plan.spec.rounding, scalars, prefix=f"input{index}_")
            return value if index == len(sources) - 1 else tirx.if_then_else(c < end, value, from_source(index + 1))

        return part.real(c, from_source(0))

    return part.compute("total", body)


def _sigmoid(plan: KernelPlan, part: Part, source: Source, table: Expression) -> Expression:
    half = 1 << (source.spec.bits - 1)

    def body(n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        entry = table(cast(source.read(n, c, h, w), "int32") + half)
        return part.real(c, cast(entry, plan.reduction))

    return part.compute("total", body)


def _softmax(plan: KernelPlan, part: Part, source: Source, table: Expression) -> Expression:
    """(E << 30) // sum(E) with E = table[max - x], over all channels of each pixel, whatever the part."""
    spec = source.spec
    pixels = sizes((part.shape[0], spec.height, spec.width))
    c, d = (reduce_axis(spec.channels, name) for name in "cd")

    def mantissa(image: Expression, channel: Expression, h: Expression, w: Expression) -> Expression:
        return cast(source.read(part.first_image + image, channel, h, w), "int32")

    largest = te.compute(pixels, lambda i, h, w: te.max(mantissa(i, c, h, w), axis=c), name="largest")

    def exponential(image: Expression, channel: Expression, h: Expression, w: Expression) -> Expression:
        return cast(table(largest(image, h, w) - mantissa(image, channel, h, w)), "int64")

    sums = te.compute(pixels, lambda i, h, w: te.sum(exponential(i, d, h, w), axis=d), name="exponential_sum")

    def body(n: Expression, channel: Expression, h: Expression, w: Expression) -> Expression:
        image = n - part.first_image
        numerator = exponential(image, channel, h, w) << tirx.const(FRACTION_BITS, "int64")
        return part.real(channel, cast(tirx.truncdiv(numerator, sums(image, h, w)), plan.reduction))

    return part.compute("total", body)


def _resize(spec: KernelSpec, part: Part, source: Source) -> Expression:
    size, output = source.spec, spec.output
    return part.compute(
        "total",
        lambda n, c, h, w: source.read(n, c, h * size.height // output.height, w * size.width // output.width),
    )


def _reshape(spec: KernelSpec, part: Part, source: Source) -> Expression:
    size, output = source.spec, spec.output

    def body(n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        element = (c * output.height + h) * output.width + w
        row, plane = element // size.width, size.height * size.width
        return part.real(c, source.read(n, element // plane, row % size.height, element % size.width))

    return part.compute("total", body)

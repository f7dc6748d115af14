"""The definitions of the gradient operations as `te.compute`; see `operations`.

A gradient is written as a gather: each result asks which products or which dy belong to it. Divisions of indices by
strides are exact only for some of them; the others add nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx

from binpoint.backends.gradients import (
    AveragePoolGradient,
    BiasGradient,
    ChannelAffine,
    ChannelSlice,
    ClipGradient,
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    LeakyReluGradient,
    MaxPoolGradient,
    ReluGradient,
    ResizeGradient,
    SigmoidGradient,
)
from binpoint.backends.kernel import AveragePool, Convolution, MaxPool, TensorSpec
from binpoint.backends.tensor_expression.arithmetic import Expression, Scalars, align, cast, constant, spread, where
from binpoint.backends.tensor_expression.layout import Layout
from binpoint.backends.tensor_expression.plan import KernelPlan
from binpoint.backends.tensor_expression.tensors import INDEX, Operands, Part, Source, reduce_axis, sizes, window_axes

WIDEST_INT32_KEY = 31 - 16
"""Bits that the number of a window's element may have beside a mantissa of 16 bits in an int32."""


def define(plan: KernelPlan, part: Part, sources: Sequence[Source], operands: Operands, scalars: Scalars) -> Expression:
    """The te tensor of a gradient operation's exact results."""
    gradient = sources[-1]
    match plan.spec.operation:
        case ConvolutionDataGradient(convolution):
            return _data_gradient(plan, convolution, part, gradient, operands["weight"])
        case ConvolutionWeightGradient(convolution):
            return part.compute("total", weight_gradient(convolution, sources[0], gradient, plan.reduction))
        case BiasGradient():
            return part.compute("total", _bias_gradient(gradient, plan.reduction))
        case MaxPoolGradient(pool):
            return _max_pool_gradient(plan, pool, part, sources[0], gradient)
        case AveragePoolGradient(pool):
            return _average_pool_gradient(plan, pool, part, gradient, operands["reciprocals"])
        case ResizeGradient():
            return _resize_gradient(plan, part, gradient)
        case ReluGradient():
            return _masked(part, sources, lambda stored: stored > constant(0, stored))
        case ClipGradient():
            return _masked(part, sources, lambda stored: _inside(stored, scalars["stored_limit"]))
        case LeakyReluGradient():
            return part.compute("total", lambda *at: cast(gradient.read(*at), plan.reduction))
        case SigmoidGradient():
            return _sigmoid_gradient(plan, part, sources, operands["table"])
        case ChannelSlice(first):
            return part.compute("total", lambda n, c, h, w: part.real(c, gradient.read(n, c + first, h, w)))
        case ChannelAffine():
            return _affine(plan, part, sources, operands["weight"], scalars)
        case _:
            raise ValueError(f"no kernel is defined for {type(plan.spec.operation).__name__}")


def _data_gradient(
    plan: KernelPlan, convolution: Convolution, part: Part, gradient: Source, weight: Expression
) -> Expression:
    """sum over k, r, s of w[c, k, r, s] * dy[n, k, (y + padding - r * dilation) / stride, ...].

    `weight` has input and output channels of each group exchanged; it is in blocks of c as the output is.
    """
    outputs_a_group = gradient.spec.channels // convolution.groups
    inputs_a_group = plan.spec.output.channels // convolution.groups
    k = reduce_axis(outputs_a_group, "k")
    r, s = window_axes(convolution.kernel)
    weights = Layout(int(weight.shape[-1]))

    def body(n: Expression, c: Expression, y: Expression, x: Expression) -> Expression:
        channel = k
        if convolution.groups > 1:
            channel = part.existing(c) // inputs_a_group * outputs_a_group + k
        row = y + convolution.padding[0] - r * convolution.dilation[0]
        column = x + convolution.padding[1] - s * convolution.dilation[1]
        value = _at_stride(gradient, convolution.stride, n, channel, row, column)
        product = value * cast(weight(*weights.filter_index(c, k, r, s)), "int32")
        return te.sum(cast(product, plan.reduction), axis=[k, r, s])

    return part.compute("total", body)


def _at_stride(
    source: Source, stride: tuple[int, int], n: Expression, c: Expression, row: Expression, column: Expression
) -> Expression:
    """The mantissa at (row / stride, column / stride) as int32; 0 where there is none."""
    h, w = row // stride[0], column // stride[1]
    inside = [h >= 0, h < source.spec.height, w >= 0, w < source.spec.width]
    if stride != (1, 1):
        none = tirx.const(0, INDEX)
        inside += [tirx.EQ(row % stride[0], none), tirx.EQ(column % stride[1], none)]
    return tirx.if_then_else(tirx.all(*inside), cast(source.read(n, c, h, w), "int32"), tirx.const(0, "int32"))


def weight_gradient(
    convolution: Convolution, images: Source, gradient: Source, reduction: str
) -> Callable[..., Expression]:
    """(k, c, r, s) -> sum over n, h, v of x[n, c, h * stride + r * dilation - padding, ...] * dy[n, k, h, v].

    It is 0 where k lies past the last output channel.
    """
    outputs_a_group = gradient.spec.channels // convolution.groups
    inputs_a_group = images.spec.channels // convolution.groups
    extents = images.tensor.shape[0], gradient.spec.height, gradient.spec.width
    n, h, v = (reduce_axis(extent, name) for extent, name in zip(extents, "nhv", strict=True))

    def body(k: Expression, c: Expression, r: Expression, s: Expression) -> Expression:
        existing = tirx.min(k, gradient.spec.channels - 1)
        channel = existing // outputs_a_group * inputs_a_group + c if convolution.groups > 1 else c
        row = h * convolution.stride[0] + r * convolution.dilation[0] - convolution.padding[0]
        column = v * convolution.stride[1] + s * convolution.dilation[1] - convolution.padding[1]
        product = images.read_inside(n, channel, row, column) * cast(gradient.read(n, existing, h, v), "int32")
        return te.sum(cast(where(k < gradient.spec.channels, product), reduction), axis=[n, h, v])

    return body


def _bias_gradient(gradient: Source, reduction: str) -> Callable[..., Expression]:
    extents = gradient.tensor.shape[0], gradient.spec.height, gradient.spec.width
    n, h, w = (reduce_axis(extent, name) for extent, name in zip(extents, "nhw", strict=True))
    return lambda k, *_: te.sum(cast(gradient.read(n, k, h, w), reduction), axis=[n, h, w])


def _covering(
    pool: MaxPool | AveragePool, gradient: TensorSpec
) -> tuple[list[Expression], Callable[[Expression, Expression], tuple[Expression, ...]]]:
    """The windows that hold an element: reduction axes, and (y, x) -> (exists, row, column, element in the window)."""
    counts = [-(-size // step) for size, step in zip(pool.kernel, pool.stride, strict=True)]
    axes = [reduce_axis(count, name) for count, name in zip(counts, "ij", strict=True)]

    def window(y: Expression, x: Expression) -> tuple[Expression, ...]:
        inside, places, elements = [], [], []
        sizes_out = gradient.height, gradient.width
        for axis, at in enumerate((y, x)):
            position = at + pool.padding[axis]
            element = position % pool.stride[axis] + axes[axis] * pool.stride[axis]
            place = position // pool.stride[axis] - axes[axis]
            inside += [element < pool.kernel[axis], place >= 0, place < sizes_out[axis]]
            places.append(place)
            elements.append(element)
        return tirx.all(*inside), *places, elements[0] * pool.kernel[1] + elements[1]

    return axes, window


def _max_pool_gradient(plan: KernelPlan, pool: MaxPool, part: Part, images: Source, gradient: Source) -> Expression:
    """dy of each window that an element has won."""
    keys, last = _keys(pool, part, images, gradient.spec)
    axes, window = _covering(pool, gradient.spec)

    def body(i: Expression, j: Expression, y: Expression, x: Expression, lane: Expression) -> Expression:
        exists, h, w, element = window(y, x)
        n, c, _, _ = part.coordinates(i, j, y, x, lane)
        value = cast(gradient.read(n, c, h, w), plan.reduction)
        winner = last - (keys(i, j, h, w, lane) & last)
        won = where(tirx.EQ(winner, cast(element, str(last.ty.dtype))), value)
        return te.sum(tirx.if_then_else(exists, won, constant(0, value)), axis=axes)

    return te.compute(sizes(part.shape), body, name="total")


def _keys(pool: MaxPool, part: Part, images: Source, gradient: TensorSpec) -> tuple[Expression, Expression]:
    """For each window the largest key, whose low bits are the mask that comes with it.

    An element's key is its mantissa, and below it its number in the window counted backwards, row by row: the first of
    the largest elements has the largest key.
    """
    bits = (pool.kernel[0] * pool.kernel[1] - 1).bit_length()
    dtype = "int32" if bits <= WIDEST_INT32_KEY else "int64"
    last = tirx.const((1 << bits) - 1, dtype)
    r, s = window_axes(pool.kernel)

    def key(i: Expression, j: Expression, h: Expression, w: Expression, lane: Expression) -> Expression:
        n, c, _, _ = part.coordinates(i, j, h, w, lane)
        row, column = h * pool.stride[0] + r - pool.padding[0], w * pool.stride[1] + s - pool.padding[1]
        inside = tirx.all(row >= 0, row < images.spec.height, column >= 0, column < images.spec.width)
        mantissa = cast(images.read(n, c, row, column), dtype) * tirx.const(1 << bits, dtype)
        number = last - cast(r * pool.kernel[1] + s, dtype)
        return te.max(tirx.if_then_else(inside, mantissa + number, tirx.min_value(dtype)), axis=[r, s])

    shape = sizes((*part.shape[:2], gradient.height, gradient.width, part.shape[-1]))
    return te.compute(shape, key, name="keys"), last


def _average_pool_gradient(
    plan: KernelPlan, pool: AveragePool, part: Part, gradient: Source, reciprocals: Expression
) -> Expression:
    """dy times the reciprocal of each window that holds an element."""
    axes, window = _covering(pool, gradient.spec)

    def body(n: Expression, c: Expression, y: Expression, x: Expression) -> Expression:
        exists, h, w, _ = window(y, x)
        value = cast(gradient.read(n, c, h, w), plan.reduction) * cast(reciprocals(h, w), plan.reduction)
        return te.sum(tirx.if_then_else(exists, value, constant(0, value)), axis=axes)

    return part.compute("total", body)


def _resize_gradient(plan: KernelPlan, part: Part, gradient: Source) -> Expression:
    """The output elements i with i * H // H_out = y: from ceil(y * H_out / H) on, as many as read one at most."""
    sizes_in = plan.spec.output.height, plan.spec.output.width
    sizes_out = gradient.spec.height, gradient.spec.width
    counts = [-(-after // before) for before, after in zip(sizes_in, sizes_out, strict=True)]
    axes = [reduce_axis(count, name) for count, name in zip(counts, "ij", strict=True)]

    def body(n: Expression, c: Expression, y: Expression, x: Expression) -> Expression:
        places, inside = [], []
        for at, before, after, axis in zip((y, x), sizes_in, sizes_out, axes, strict=True):
            place = (at * after + before - 1) // before + axis
            places.append(place)
            inside.append(place < ((at + 1) * after + before - 1) // before)
        value = cast(gradient.read(n, c, *places), plan.reduction)
        return te.sum(tirx.if_then_else(tirx.all(*inside), value, constant(0, value)), axis=axes)

    return part.compute("total", body)


def _masked(part: Part, sources: Sequence[Source], passes: Callable[[Expression], Expression]) -> Expression:
    """dy where the stored output passes, else 0."""
    stored, gradient = sources

    def body(*at: Expression) -> Expression:
        return where(passes(stored.read(*at)), gradient.read(*at))

    return part.compute("total", body)


def _inside(stored: Expression, limit: Expression) -> Expression:
    return tirx.And(stored > constant(0, stored), stored < spread(limit, stored))


def _sigmoid_gradient(plan: KernelPlan, part: Part, sources: Sequence[Source], table: Expression) -> Expression:
    stored, gradient = sources
    half = 1 << (stored.spec.bits - 1)

    def body(*at: Expression) -> Expression:
        slope = table(cast(stored.read(*at), "int32") + half)
        return cast(gradient.read(*at), plan.reduction) * cast(slope, plan.reduction)

    return part.compute("total", body)


def _affine(
    plan: KernelPlan, part: Part, sources: Sequence[Source], weight: Expression, scalars: Scalars
) -> Expression:
    """sum_i coefficient_i[c] * x_i, the products aligned; `weight` is in blocks of c, one filter a channel."""
    coefficients = Layout(int(weight.shape[-1]))

    def body(n: Expression, c: Expression, h: Expression, w: Expression) -> Expression:
        total = None
        for index, source in enumerate(sources):
            coefficient = cast(weight(*coefficients.filter_index(c, index, 0, 0)), "int32")
            product = cast(cast(source.read(n, c, h, w), "int32") * coefficient, plan.reduction)
            term = align(product, plan.spec.rounding, scalars, prefix=f"input{index}_")
            total = term if total is None else total + term
        return total

    return part.compute("total", body)

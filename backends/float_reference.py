"""The network in floating point: for the float accuracy beside the integer one, and for first exponents.

Kernels of a program are computed as the layers they stand for, in NumPy with BLAS: with the network's own constants,
not with those that stand in for them in fixed point (a leaky slope of 0.1 is 0.1, not 205 * 2^-11).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from binpoint.backends.kernel import (
    Activation,
    Add,
    AveragePool,
    Clip,
    Concat,
    Convolution,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    Relu,
    Reshape,
    Resize,
    Sigmoid,
    Softmax,
    Widen,
)
from binpoint.backends.program import KernelCall, Program
from binpoint.backends.windows import combine, nearest, window_counts, windows
from binpoint.support.numeric import FixedConstant

FloatArray = NDArray[np.floating[Any]]

CHUNK_ELEMENTS = 1 << 23
"""Images go through the network in groups whose widest array stays near this many elements."""


def run_float(
    program: Program,
    parameters: Mapping[str, FloatArray],
    inputs: Mapping[str, FloatArray],
    dtype: DTypeLike = np.float32,
    keep: Collection[str] | None = None,
) -> dict[str, FloatArray]:
    """Compute every kernel of a program for all images.

    Args:
        program: kernels in data-flow order.
        parameters: weights and biases by name. A weight may have any shape with the elements of
            (K, C / groups, R, S) in that order: a linear layer's may be (F, C) or (F, C, 1, 1).
        inputs: (N, C, H, W) arrays by input name, as the network sees them: already scaled and centred.
        dtype: the type to compute in.
        keep: names of the tensors to return; None returns all, which for large N needs their memory.

    Returns:
        The kept tensors by name, inputs included: (N, C, H, W) arrays of `dtype`, after the activation.
    """
    names = {declared.name for declared in program.inputs} | {call.spec.name for call in program.calls}
    kept = names if keep is None else set(keep)
    if not kept <= names:
        raise KeyError(f"the program has no tensor {', '.join(sorted(kept - names))}")
    typed = {name: np.asarray(values, dtype=dtype) for name, values in parameters.items()}
    images = len(next(iter(inputs.values())))
    chunks: dict[str, list[FloatArray]] = {name: [] for name in kept}
    step = max(1, CHUNK_ELEMENTS // max(_elements_an_image(call.spec) for call in program.calls))
    # Numbers past the type's range become infinite; what that means is for the caller to say.
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, max(images, 1), step):
            chunk = {name: np.asarray(values[start : start + step], dtype=dtype) for name, values in inputs.items()}
            for name, values in _run_chunk(program, typed, chunk):
                if name in kept:
                    chunks[name].append(values)
    return {name: np.concatenate(parts) for name, parts in chunks.items()}


def _run_chunk(
    program: Program, parameters: Mapping[str, FloatArray], inputs: Mapping[str, FloatArray]
) -> Iterator[tuple[str, FloatArray]]:
    """All tensors of a few images in order; each is let go after its last reader."""
    last_reader = {source: index for index, call in enumerate(program.calls) for source in call.inputs}
    tensors = {declared.name: inputs[declared.name] for declared in program.inputs}
    yield from tensors.items()
    for index, call in enumerate(program.calls):
        result = _run_call(call, parameters, [tensors[source] for source in call.inputs])
        for source in set(call.inputs):
            if last_reader[source] == index:
                del tensors[source]
        tensors[call.spec.name] = result
        yield call.spec.name, result


def _run_call(call: KernelCall, parameters: Mapping[str, FloatArray], inputs: Sequence[FloatArray]) -> FloatArray:
    weight = None if call.weight is None else parameters[call.weight]
    values = operate(call.spec, inputs, weight)
    if call.bias is not None:
        values = values + parameters[call.bias].reshape(1, -1, 1, 1)
    return activate(call.spec.activation, values)


def operate(spec: KernelSpec, inputs: Sequence[FloatArray], weight: FloatArray | None = None) -> FloatArray:
    """What a kernel of inference computes before bias and activation."""
    first = inputs[0]
    match spec.operation:
        case Convolution() as convolution:
            if weight is None:
                raise ValueError(f"kernel {spec.name}: a convolution needs weights")
            shape = (spec.output.channels, spec.inputs[0].channels // convolution.groups, *convolution.kernel)
            return _convolution(convolution, first, weight.reshape(shape))
        case AveragePool() as pool:
            return _average_pool(pool, first)
        case MaxPool(kernel, stride, padding):
            return combine(windows(first, kernel, stride, padding, fill=-np.inf), np.maximum)
        case Add():
            return np.asarray(sum(inputs[1:], start=first))
        case Concat():
            return np.concatenate(inputs, axis=1)
        case Widen():
            return first
        case Sigmoid():
            decay = np.exp(-np.abs(first))
            return np.asarray(np.where(first >= 0, 1, decay) / (1 + decay))
        case Softmax():
            exponentials = np.exp(first - first.max(axis=1, keepdims=True))
            return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
        case Resize():
            return nearest(first, (spec.output.height, spec.output.width))
        case Reshape():
            return first.reshape(len(first), *spec.output.shape)
        case _:
            raise ValueError(f"kernel {spec.name}: {type(spec.operation).__name__} is no operation of inference")


def _convolution(convolution: Convolution, images: FloatArray, weight: FloatArray) -> FloatArray:
    view = windows(images, convolution.kernel, convolution.stride, convolution.padding, convolution.dilation)
    count, channels, height, width = view.shape[:4]
    groups = convolution.groups
    # (groups, windows, C / groups * R * S) times (groups, C / groups * R * S, K / groups).
    group_inputs, group_outputs, window = channels // groups, len(weight) // groups, weight[0].size
    rows = view.reshape(count, groups, group_inputs, height, width, *convolution.kernel)
    rows = rows.transpose(1, 0, 3, 4, 2, 5, 6).reshape(groups, count * height * width, window)
    product = rows @ weight.reshape(groups, group_outputs, window).transpose(0, 2, 1)
    product = product.reshape(groups, count, height, width, group_outputs).transpose(1, 0, 4, 2, 3)
    return product.reshape(count, len(weight), height, width)


def _average_pool(pool: AveragePool, images: FloatArray) -> FloatArray:
    """The mean of each window."""
    sums = combine(windows(images, pool.kernel, pool.stride, pool.padding), np.add)
    return np.asarray(sums / divisors(pool, (images.shape[2], images.shape[3])).astype(images.dtype))


def divisors(pool: AveragePool, size: tuple[int, int]) -> NDArray[np.int64]:
    """What each window of an H x W map divides by, (H_out, W_out)."""
    counts = window_counts(size, pool.kernel, pool.stride, pool.padding)
    return np.full_like(counts, pool.kernel[0] * pool.kernel[1]) if pool.include_padding else counts


def activate(activation: Activation | None, values: FloatArray) -> FloatArray:
    """The activation of a kernel."""
    match activation:
        case None:
            return values
        case Relu():
            return np.maximum(values, 0)
        case Clip(limit):
            return np.clip(values, 0, real(limit))
        case LeakyRelu(slope):
            return np.where(values >= 0, values, values * values.dtype.type(real(slope)))


def real(constant: FixedConstant) -> float:
    """The number that a constant stands for."""
    return float(constant.value if constant.nearest_to is None else constant.nearest_to)


def _elements_an_image(spec: KernelSpec) -> int:
    """The widest array of one image: its inputs, its output or the windows of a convolution."""
    sizes = [tensor.channels * tensor.height * tensor.width for tensor in (*spec.inputs, spec.output)]
    if isinstance(spec.operation, Convolution):
        taps = spec.operation.kernel[0] * spec.operation.kernel[1]
        sizes.append(spec.inputs[0].channels * taps * spec.output.height * spec.output.width)
    return max(sizes)

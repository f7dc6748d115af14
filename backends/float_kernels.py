"""Every kernel of training in floating point, on maps (C, N, H, W): channels outermost, as `float_convolutions` wants.

Constants of activations are those of the kernels; an average pool divides exactly. Gradients of parameters are
(K, C / groups, R, S), those of biases (K, 1, 1, 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from binpoint.backends.float_convolutions import convolve, data_gradient, weight_gradient
from binpoint.backends.float_reference import FloatArray, activate, divisors, operate, real
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
from binpoint.backends.kernel import AveragePool, Concat, Convolution, KernelSpec, MaxPool, Reshape, Softmax
from binpoint.backends.windows import empty_columns, first_largest, fold, gather_nearest, windows
from binpoint.backends.workspace import Workspace


def run_kernel(
    spec: KernelSpec,
    inputs: Sequence[FloatArray],
    weight: FloatArray | None,
    bias: FloatArray | None,
    workspace: Workspace,
) -> FloatArray:
    """One kernel: operation, bias, activation. Weights have the shapes that the operation names, biases are (C,)."""
    values = _operate(spec, inputs, weight, workspace)
    if bias is not None:
        values = values + bias.reshape(-1, 1, 1, 1)
    return activate(spec.activation, values)


def _operate(
    spec: KernelSpec, inputs: Sequence[FloatArray], weight: FloatArray | None, workspace: Workspace
) -> FloatArray:
    first, gradient, size = inputs[0], inputs[-1], (spec.output.height, spec.output.width)
    match spec.operation:
        case Convolution() as convolution:
            return convolve(convolution, first, _given(spec, weight), size, workspace)
        case ConvolutionDataGradient(convolution):
            return data_gradient(convolution, gradient, _given(spec, weight), size, workspace)
        case ConvolutionWeightGradient(convolution):
            return weight_gradient(convolution, first, gradient, workspace)
        case BiasGradient():
            return np.asarray(gradient.sum(axis=(1, 2, 3))).reshape(-1, 1, 1, 1)
        case MaxPoolGradient(pool):
            return _max_pool_gradient(pool, first, gradient)
        case AveragePoolGradient(pool):
            return _average_pool_gradient(pool, gradient, size)
        case ResizeGradient():
            return gather_nearest(gradient, size)
        case ReluGradient():
            return np.asarray(gradient * (first > 0))
        case ClipGradient(limit):
            return np.asarray(gradient * ((first > 0) & (first < real(limit))))
        case LeakyReluGradient(slope):
            return np.where(first >= 0, gradient, gradient * gradient.dtype.type(real(slope)))
        case SigmoidGradient():
            return np.asarray(gradient * first * (1 - first))
        case ChannelSlice(start):
            return gradient[start : start + spec.output.channels]
        case ChannelAffine():
            products = (x * factor.reshape(-1, 1, 1, 1) for x, factor in zip(inputs, _given(spec, weight), strict=True))
            return np.asarray(sum(products))
        case Concat():
            return np.concatenate(inputs)
        case Reshape():
            return _reshape(first, spec.output.shape)
        case Softmax():
            exponentials = np.exp(first - first.max(axis=0))
            return np.asarray(exponentials / exponentials.sum(axis=0))
        case _:  # the others do not mind which of the outer axes is which
            return operate(spec, inputs)


def _given(spec: KernelSpec, weight: FloatArray | None) -> FloatArray:
    if weight is None:
        raise ValueError(f"kernel {spec.name}: {type(spec.operation).__name__} needs weights")
    return weight


def _reshape(maps: FloatArray, shape: tuple[int, int, int]) -> FloatArray:
    """The same elements of each image in another shape (C, H, W)."""
    images = np.ascontiguousarray(maps.transpose(1, 0, 2, 3)).reshape(maps.shape[1], *shape)
    return np.ascontiguousarray(images.transpose(1, 0, 2, 3))


def _max_pool_gradient(pool: MaxPool, maps: FloatArray, gradient: FloatArray) -> FloatArray:
    columns = empty_columns(gradient.shape, pool.kernel, gradient.dtype)
    for tap, first in first_largest(windows(maps, pool.kernel, pool.stride, pool.padding, fill=-np.inf)):
        np.multiply(gradient, first, out=columns[..., *tap])
    return fold(columns, (maps.shape[2], maps.shape[3]), pool.stride, pool.padding)


def _average_pool_gradient(pool: AveragePool, gradient: FloatArray, size: tuple[int, int]) -> FloatArray:
    shares = gradient / divisors(pool, size).astype(gradient.dtype)
    columns = np.broadcast_to(shares[..., np.newaxis, np.newaxis], (*shares.shape, *pool.kernel))
    return fold(columns, size, pool.stride, pool.padding)

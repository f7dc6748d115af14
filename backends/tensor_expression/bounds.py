"""Bounds on a kernel's values, and the container that they prove sufficient."""

from __future__ import annotations

import numpy as np

from binpoint.backends.kernel import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    IntArray,
    KernelExponents,
    KernelSpec,
    LeakyRelu,
    Sigmoid,
    Softmax,
    TensorSpec,
)
from binpoint.backends.oracle.accumulate import reciprocals
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.tables import FRACTION_BITS
from binpoint.backends.tensor_expression.plan import Container
from binpoint.backends.tensor_expression.runtime_scalars import alignment_shifts, slope_integers


def weight_magnitude(weight: IntArray) -> int:
    """The largest sum of |w| over the weights of one output channel."""
    return int(np.abs(weight.reshape(weight.shape[0], -1).astype(np.int64)).sum(axis=1).max(initial=0))


def total_bound(spec: KernelSpec, magnitude: int, exponents: KernelExponents) -> int:
    """A bound on the magnitude of every exact result and of every partial sum, bias excluded.

    `magnitude` is the `weight_magnitude` of a convolution.
    """
    widest = max(_largest(tensor) for tensor in spec.inputs)
    match spec.operation:
        case Convolution():
            return magnitude * widest
        case AveragePool() as pool:
            window = pool.kernel[0] * pool.kernel[1]
            return window * widest * int(reciprocals(pool, spec.inputs[0])[0].max())
        case Add() | Concat():
            shifts = alignment_shifts(spec, exponents)
            aligned = [
                _largest(tensor) << shift if shift >= 0 else (_largest(tensor) >> -shift) + 1
                for tensor, shift in zip(spec.inputs, shifts, strict=True)
            ]
            return sum(aligned) if isinstance(spec.operation, Add) else max(aligned)
        case Sigmoid() | Softmax():
            return 1 << FRACTION_BITS
        case _:
            return widest


def choose_container(spec: KernelSpec, total: int, bias: int) -> Container:
    """The narrowest container that holds every value.

    `total` bounds the exact results, `bias` the aligned biases. A result that may leave the accumulator needs WIDE.
    """
    value = total + bias
    if value > mantissa_range(spec.accumulator.bits)[1]:
        return Container.WIDE
    if isinstance(spec.activation, LeakyRelu):
        multiplier, fraction_bits = slope_integers(spec.activation.slope)
        value *= max(abs(multiplier), 1 << fraction_bits)
    for container in (Container.INT32, Container.INT64):
        if value < 1 << container.narrow_bits:
            return container
    return Container.WIDE


def choose_reduction(spec: KernelSpec, container: Container, total: int) -> str:
    """The dtype of the sum. Aligned operands are shifted by scalars of the container, so they have its dtype."""
    if isinstance(spec.operation, Convolution | AveragePool):
        return "int32" if total < 1 << 31 else "int64"
    return container.dtype


def _largest(tensor: TensorSpec) -> int:
    return 1 << (tensor.bits - 1)

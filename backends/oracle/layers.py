"""One kernel, step by step: accumulate, bias, activation, statistics, quantise.

This file and the ones it names (`accumulate`, `activation`, `fixed_point`, `statistics`) are the specification in
code. They favour being read over being fast.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.generator import draw_key, draws
from binpoint.backends.gradients import LeakyReluGradient
from binpoint.backends.kernel import (
    BoolArray,
    Draw,
    Events,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    MaxPool,
    Reshape,
    Resize,
    TileResult,
)
from binpoint.backends.oracle.accumulate import accumulator_exponent, exact_sum
from binpoint.backends.oracle.activation import activate, leak
from binpoint.backends.oracle.exact import Integers, add
from binpoint.backends.oracle.fixed_point import deterministic, quantize
from binpoint.backends.oracle.gradients import move_gradient
from binpoint.backends.oracle.part import Part as Part
from binpoint.backends.oracle.pools import max_pool
from binpoint.backends.oracle.positions import fit
from binpoint.backends.oracle.statistics import record
from binpoint.backends.windows import nearest
from binpoint.support.numeric import Rounding


def run_layer(
    spec: KernelSpec,
    parameters: KernelParameters,
    inputs: Sequence[Integers],
    exponents: KernelExponents,
    part: Part,
    sample: BoolArray | None = None,
    draw: Draw | None = None,
) -> TileResult:
    """Compute one part of a layer from int64 (N, C, H, W) mantissas.

    `sample` is (rows, channels) of the part, True where a statistics PE computes the pair. The output is int64.
    """
    if spec.exact:
        moved = _move(spec, inputs, exponents, part)
        return TileResult(moved, None, Events(moved.size))
    accumulated, overflowed = _accumulate(spec, parameters, inputs, exponents, part)
    exponent = accumulator_exponent(spec, exponents)
    if isinstance(spec.operation, LeakyReluGradient):
        passes = inputs[0][:, part.channels[0] : part.channels[1]] >= 0
        values, exponent = leak(spec.operation.slope, accumulated, exponent, passes)
    else:
        values, exponent = activate(spec.activation, accumulated, exponent, spec.accumulator)
    sampled = None if sample is None or not spec.statistics else record(values[sample], exponent)
    random = None
    if spec.rounding is Rounding.STOCHASTIC:
        random = _random(values.shape, spec, part, draw)
    output, saturated = quantize(values, exponents.output - exponent, spec.output.bits, spec.rounding, random)
    events = Events(
        results=output.size,
        saturated=int(np.count_nonzero(saturated)),
        underflowed=int(np.count_nonzero((values != 0) & (output == 0))),
        accumulator_overflows=int(np.count_nonzero(overflowed)),
    )
    return TileResult(output, sampled, events)


def _accumulate(
    spec: KernelSpec,
    parameters: KernelParameters,
    inputs: Sequence[Integers],
    exponents: KernelExponents,
    part: Part,
) -> tuple[Integers, BoolArray]:
    """The accumulator after the bias, and where the exact sum or the sum with bias did not fit."""
    exact = exact_sum(spec, parameters, inputs, exponents, part.channels, part.rows)
    total, overflowed = fit(exact, spec.accumulator)
    if parameters.bias is None:
        return total, overflowed
    shift = accumulator_exponent(spec, exponents) - exponents.bias
    bias = parameters.bias[part.channels[0] : part.channels[1]].astype(np.int64)
    aligned, _ = quantize(bias, shift, spec.accumulator.bits, deterministic(spec.rounding))
    total, overflowed_again = fit(add(total, aligned.reshape(1, -1, 1, 1)), spec.accumulator)
    return total, overflowed | overflowed_again


def _random(shape: tuple[int, ...], spec: KernelSpec, part: Part, draw: Draw | None) -> NDArray[np.uint64]:
    """The random number of each result, by its index within the layer's output of the whole step."""
    if draw is None:
        raise ValueError(f"kernel {spec.name}: stochastic rounding needs a draw")
    image, channel, row, column = np.ogrid[tuple(slice(size) for size in shape)]
    index = (part.first_image + image) * spec.output.channels + part.channels[0] + channel
    index = (index * spec.output.height + row) * spec.output.width + column
    return draws(draw_key(draw), index)


def _move(spec: KernelSpec, inputs: Sequence[Integers], exponents: KernelExponents, part: Part) -> Integers:
    """The operations that select or move mantissas and keep the exponent."""
    first, last = part.channels
    match spec.operation:
        case MaxPool() as pool:
            return max_pool(pool, inputs[0][:, first:last])
        case Resize():
            return nearest(inputs[0][:, first:last], (spec.output.height, spec.output.width))
        case Reshape():
            return inputs[0].reshape(len(inputs[0]), *spec.output.shape)[:, first:last]
        case _:
            return move_gradient(spec, inputs, exponents, part.channels)

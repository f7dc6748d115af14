"""The results of each operation over blocks before analysis: what the calculation unit of a PE puts out.

Accumulation, bias and activation of JP7819764B2 figs. 6 to 8, in the order of the PE: input channels 0, 1, 2, ..., and
for an add its operands. `exact_convolution` is the short cut where that order cannot matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from binpoint.backends.blocks import BlockExponents
from binpoint.backends.kernel import (
    Accumulator,
    Add,
    AveragePool,
    Clip,
    Concat,
    Convolution,
    KernelParameters,
    KernelSpec,
    MaxPool,
    Resize,
    Sigmoid,
    Softmax,
    Widen,
)
from binpoint.backends.oracle.activation import activate
from binpoint.backends.oracle.convolutions import convolution
from binpoint.backends.oracle.exact import Integers, holder, magnitude
from binpoint.backends.oracle.pools import reciprocals
from binpoint.backends.oracle.positions import Exponents, RunningSum, Values, aligned, each_value, fit, selected
from binpoint.backends.tables import FRACTION_BITS, sigmoid_table
from binpoint.backends.windows import nearest, windows
from binpoint.support.numeric import BlockPolicy, Selection


def calculate(
    spec: KernelSpec,
    parameters: KernelParameters,
    mantissas: Sequence[Integers],
    elements: Sequence[Exponents],
    exponents: BlockExponents,
) -> Values:
    """The results of all channels of some images, each at the exponent that its PE aligned it to.

    Args:
        mantissas: of each input, int64 (N, C, H, W).
        elements: the exponent of each element of each input, alike.
    """
    by = (spec.blocks or BlockPolicy()).selection
    found = _accumulate(spec, parameters, mantissas, elements, exponents, by)
    if parameters.bias is not None:
        found = _add_bias(found, parameters.bias, exponents.bias, spec.accumulator)
    values, positions = activate(spec.activation, found.values, found.exponents, spec.accumulator)
    return Values(values, positions, found.overflowed)


def _accumulate(
    spec: KernelSpec,
    parameters: KernelParameters,
    mantissas: Sequence[Integers],
    elements: Sequence[Exponents],
    exponents: BlockExponents,
    by: Selection,
) -> Values:
    match spec.operation:
        case Convolution() as operation:
            if parameters.weight is None:
                raise ValueError(f"kernel {spec.name}: a convolution needs weights")
            weight = parameters.weight.astype(np.int64)
            found = exact_convolution(spec, parameters, weight, mantissas[0], elements[0], exponents)
            if found is None:
                found = _convolve(operation, weight, mantissas[0], elements[0], spec.accumulator, by)
            of_weight = np.array(exponents.weight, np.int64).reshape(1, -1, 1, 1)
            return Values(found.values, found.exponents + of_weight, found.overflowed)
        case AveragePool() as pool:
            return _average(spec, pool, mantissas[0], elements[0], by)
        case Add():
            running = RunningSum((len(mantissas[0]), *spec.output.shape), spec.output.channels, spec.accumulator, by)
            everywhere = np.ones(mantissas[0].shape, np.bool_)
            for values, positions in zip(mantissas, elements, strict=True):
                running.add([(values, positions, everywhere)])
            return Values(running.values, running.exponents, running.overflowed)
        case MaxPool() as pool:
            return _largest(pool, mantissas[0], elements[0], spec.accumulator, by)
        case Sigmoid():
            return _sigmoid(spec, mantissas[0], elements[0])
        case Softmax():
            return _softmax(mantissas[0], elements[0], by)
        case Concat() | Widen():
            values, positions = np.concatenate(mantissas, axis=1), np.concatenate(elements, axis=1)
        case Resize():
            size = spec.output.height, spec.output.width
            values, positions = nearest(mantissas[0], size), nearest(elements[0], size)
        case _:
            raise ValueError(f"kernel {spec.name}: no blocks in {type(spec.operation).__name__}")
    return Values(values, positions, np.zeros(values.shape, np.bool_))


def exact_convolution(
    spec: KernelSpec,
    parameters: KernelParameters,
    weight: Integers,
    mantissas: Integers,
    elements: Exponents,
    exponents: BlockExponents,
) -> Values | None:
    """The convolution at the finest exponent of its input, as one exact sum; None where the PE's order may matter.

    It cannot where operands only shift left and nothing leaves the accumulator. Exponents are those of the input.
    """
    assert isinstance(spec.operation, Convolution)
    finest, coarsest = int(elements.min()), int(elements.max())
    bits = spec.accumulator.bits
    if finest < coarsest:
        if (spec.blocks or BlockPolicy()).selection is not Selection.FRACTION or coarsest - finest > bits:
            return None
        if (
            isinstance(spec.activation, Clip)
            and coarsest + max(exponents.weight) > -spec.activation.limit.fraction_bits
        ):
            return None  # the limit is rounded to each pixel's own exponent
    moved = aligned(mantissas, elements, np.full_like(elements, finest))
    bound = magnitude(moved) * int(np.abs(weight).sum(axis=(1, 2, 3)).max(initial=0))
    if parameters.bias is not None:
        lefts = [bias - each for bias, each in _pairs(exponents.bias, exponents.weight)]
        if finest < coarsest and min(lefts) < coarsest:
            return None  # the bias would be rounded to each pixel's own exponent
        bound += magnitude(parameters.bias.astype(np.int64)) << max(0, max(lefts) - finest)
    if bound >= 1 << (bits - 1):
        return None
    values = convolution(spec.operation, moved, weight, (0, len(weight)))
    return Values(values, np.full((1, 1, 1, 1), finest, np.int64), np.zeros(values.shape, np.bool_))


def _pairs(left: Sequence[int], right: Sequence[int]) -> list[tuple[int, int]]:
    """One of each for every channel, where one stands for all channels."""
    count = max(len(left), len(right))
    return list(zip(_of_all(left, count), _of_all(right, count), strict=True))


def _of_all(values: Sequence[int], count: int) -> Sequence[int]:
    return values if len(values) == count else [*values] * count


def _convolve(
    operation: Convolution,
    weight: Integers,
    mantissas: Integers,
    elements: Exponents,
    accumulator: Accumulator,
    by: Selection,
) -> Values:
    """Input channel by input channel, the taps of a window at a time."""
    groups, inputs = operation.groups, weight.shape[1]
    outputs = len(weight) // groups
    view, places, inside = (
        windows(each, operation.kernel, operation.stride, operation.padding, operation.dilation)
        for each in (mantissas, elements, np.ones((1, 1, *mantissas.shape[2:]), np.bool_))
    )
    size = view.shape[2:4]
    first = np.broadcast_to(elements[:, :1, :1, :1], (len(mantissas), 1, *size))
    found = []
    for group in range(groups):
        filters = weight[group * outputs : (group + 1) * outputs]
        running = RunningSum((len(mantissas), outputs, *size), 1, accumulator, by)
        for channel in range(inputs):
            source = slice(group * inputs + channel, group * inputs + channel + 1)
            running.add(
                [
                    (
                        view[:, source, ..., *tap] * filters[:, channel, *tap].reshape(1, -1, 1, 1),
                        places[:, source, ..., *tap],
                        np.broadcast_to(inside[..., *tap], (len(mantissas), 1, *size)),
                    )
                    for tap in np.ndindex(operation.kernel)
                ]
            )
        # A window that lies in the padding alone has the exponent of the map's first block.
        positions = np.where(running.started, running.exponents, first)
        found.append((running.values, np.broadcast_to(positions, running.values.shape), running.overflowed))
    values, positions, overflowed = (np.concatenate(each, axis=1) for each in zip(*found, strict=True))
    return Values(values, positions, overflowed)


def _average(spec: KernelSpec, pool: AveragePool, mantissas: Integers, elements: Exponents, by: Selection) -> Values:
    """As a convolution of each channel with the reciprocals; they have no exponent of their own until the end."""
    multipliers, fraction_bits = reciprocals(pool, spec.inputs[0])
    view, places = (windows(each, pool.kernel, pool.stride, pool.padding) for each in (mantissas, elements))
    inside = windows(np.ones((1, 1, *mantissas.shape[2:]), np.bool_), pool.kernel, pool.stride, pool.padding)
    shape = len(mantissas), *spec.output.shape
    running = RunningSum(shape, spec.output.channels, spec.accumulator, by)
    running.add(
        [
            (view[..., *tap] * multipliers, places[..., *tap], np.broadcast_to(inside[..., *tap], shape))
            for tap in np.ndindex(pool.kernel)
        ]
    )
    positions = np.where(running.started, running.exponents, elements[:, :1, :1, :1])
    return Values(running.values, positions - fraction_bits, running.overflowed)


def _largest(
    pool: MaxPool, mantissas: Integers, elements: Exponents, accumulator: Accumulator, by: Selection
) -> Values:
    """The largest of a window's elements, all aligned to one exponent."""
    view, places = (windows(each, pool.kernel, pool.stride, pool.padding) for each in (mantissas, elements))
    inside = windows(np.ones((1, 1, *mantissas.shape[2:]), np.bool_), pool.kernel, pool.stride, pool.padding)
    taps = list(np.ndindex(pool.kernel))
    target = selected([(places[..., *tap], inside[..., *tap]) for tap in taps], by)
    values: Integers | None = None
    overflowed = np.zeros(view.shape[:4], np.bool_)
    for tap in taps:
        present = inside[..., *tap]
        moved = aligned(view[..., *tap], np.where(present, places[..., *tap], target), target)
        fitted, outside = fit(moved, accumulator)
        overflowed |= outside & present
        if values is None:
            values = np.where(present, fitted, np.iinfo(np.int64).min)
        else:
            values = np.where(present, np.maximum(values, fitted), values)
    assert values is not None
    return Values(values, target, overflowed)


def _sigmoid(spec: KernelSpec, mantissas: Integers, elements: Exponents) -> Values:
    """Each element by the table of its own exponent."""
    bits = spec.inputs[0].bits
    values = np.empty(mantissas.shape, np.int64)
    for exponent, where in each_value(elements):
        values[where] = np.take(sigmoid_table(bits, exponent), mantissas[where] + (1 << (bits - 1)))
    return Values(values, np.full((1, 1, 1, 1), -FRACTION_BITS, np.int64), np.zeros(values.shape, np.bool_))


def _softmax(mantissas: Integers, elements: Exponents, by: Selection) -> Values:
    """The channels of a pixel, aligned to one exponent."""
    choose = np.max if by is Selection.INTEGER else np.min
    target = choose(elements, axis=1, keepdims=True)
    moved = aligned(mantissas, elements, np.broadcast_to(target, elements.shape))
    distances = moved.max(axis=1, keepdims=True) - moved
    exponentials = np.rint(np.ldexp(np.exp(-np.ldexp(distances.astype(np.float64), target)), FRACTION_BITS))
    exponentials = exponentials.astype(np.int64)
    values = (exponentials << FRACTION_BITS) // exponentials.sum(axis=1, keepdims=True)
    return Values(values, np.full((1, 1, 1, 1), -FRACTION_BITS, np.int64), np.zeros(values.shape, np.bool_))


def _add_bias(found: Values, bias: Integers, exponents: Sequence[int], accumulator: Accumulator) -> Values:
    """The bias at the exponent of each sum, which is where the PE adds it (JP7819764B2 fig. 7)."""
    own = np.array(exponents, np.int64).reshape(1, -1, 1, 1)
    column = bias.astype(np.int64).reshape(1, -1, 1, 1)
    target = np.broadcast_to(found.exponents, np.broadcast_shapes(found.exponents.shape, column.shape))
    moved = aligned(np.broadcast_to(column, target.shape), np.broadcast_to(own, target.shape), target)
    bound = magnitude(found.values) + magnitude(moved)
    total, outside = fit(np.asarray(holder(found.values, bound) + holder(moved, bound)), accumulator)
    return Values(total, found.exponents, found.overflowed | outside)

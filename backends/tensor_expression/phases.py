"""The data gradient of a convolution as ordinary convolutions of dy with stride 1.

With stride 1 it is one: the kernel turned round, input and output channels exchanged. With a larger stride the rows
y = p, p + stride, p + 2 * stride, ... of dx, one *phase*, meet only some taps of the kernel, always the same ones; so
do columns. Each pair of phases is a convolution with those taps, and no product is computed in vain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import gcd

from binpoint.backends.gradients import ConvolutionDataGradient
from binpoint.backends.kernel import Convolution, KernelSpec
from binpoint.backends.tensor_expression.weights import Filters


@dataclass(frozen=True)
class AxisPhase:
    """Every `stride`-th row of dx from `first` on, or column: which taps it meets, and where in dy.

    Result i sums tap `taps[j]` times element i + j * dilation - before. `size` results have `after` elements of
    padding behind dy.
    """

    first: int
    stride: int
    size: int
    taps: tuple[int, ...]
    dilation: int
    before: int
    after: int

    @property
    def places(self) -> slice:
        """Where the results lie in dx."""
        return slice(self.first, None, self.stride)


@dataclass(frozen=True)
class Phase:
    """Rows and columns of one phase. `spec` is its convolution, None where no tap meets it: dx is 0 there."""

    rows: AxisPhase
    columns: AxisPhase
    spec: KernelSpec | None
    filters: Filters


def phases(spec: KernelSpec) -> tuple[Phase, ...]:
    """The phases of a data gradient that have results; together they have each result once."""
    assert isinstance(spec.operation, ConvolutionDataGradient)
    convolution, gradient = spec.operation.convolution, spec.inputs[0]
    axes = [
        [_axis_phase(first, stride, kernel, dilation, before, size, length) for first in range(min(stride, size))]
        for stride, kernel, dilation, before, size, length in zip(
            convolution.stride,
            convolution.kernel,
            convolution.dilation,
            convolution.padding[:2],
            spec.output.shape[1:],
            gradient.shape[1:],
            strict=True,
        )
    ]
    return tuple(_phase(spec, convolution, rows, columns) for rows, columns in product(*axes))


def _axis_phase(first: int, stride: int, kernel: int, dilation: int, padding: int, size: int, length: int) -> AxisPhase:
    """Result i is y = first + i * stride; tap t meets it from element (y + padding - t * dilation) / stride of dy."""
    met = [tap for tap in range(kernel) if (first + padding - tap * dilation) % stride == 0]
    taps = tuple(reversed(met))
    size = -(-(size - first) // stride)
    step = dilation // gcd(stride, dilation)
    if not taps:
        return AxisPhase(first, stride, size, (), step, 0, 0)
    before = (taps[0] * dilation - first - padding) // stride
    after = size - length - before + step * (len(taps) - 1)
    return AxisPhase(first, stride, size, taps, step, before, after)


def _phase(spec: KernelSpec, convolution: Convolution, rows: AxisPhase, columns: AxisPhase) -> Phase:
    filters = Filters(exchanged=True, groups=convolution.groups, taps=(rows.taps, columns.taps))
    if not (rows.taps and columns.taps):
        return Phase(rows, columns, None, filters)
    operation = Convolution(
        kernel=(len(rows.taps), len(columns.taps)),
        padding=(rows.before, columns.before, rows.after, columns.after),
        dilation=(rows.dilation, columns.dilation),
        groups=convolution.groups,
        weight_bits=convolution.weight_bits,
    )
    output = replace(spec.output, height=rows.size, width=columns.size)
    return Phase(rows, columns, replace(spec, operation=operation, output=output), filters)

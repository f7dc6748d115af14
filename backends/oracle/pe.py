"""A processing element of JP7819764B2, literally: one PE, one block, one channel, one number at a time.

Written from the figures, in Python integers, to be read beside them: a calculation unit (fig. 6, 300) of filter
processing units (fig. 7) with barrel shifters (fig. 8), a delay buffer (310), an analysis unit (320), a unit that
determines the decimal point position (330), a quantisation unit (340), and in the second embodiment a storage of
analysis results (fig. 11, 400) in place of the delay buffer. Positions are counted as exponents: N fraction bits are
the exponent -N. It is slow; `block_kernel` computes the same for whole feature maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.blocks import (
    BlockExponents,
)
from binpoint.backends.kernel import (
    Accumulator,
    Add,
    AveragePool,
    Clip,
    Concat,
    Convolution,
    IntArray,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    Relu,
    Resize,
    Sigmoid,
    Softmax,
    Widen,
)
from binpoint.backends.oracle.activation import clip_limit, fraction_bits, spare_bits
from binpoint.backends.oracle.blocks import analyze
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.oracle.pools import reciprocals
from binpoint.backends.tables import FRACTION_BITS, sigmoid_table
from binpoint.support.numeric import BlockPolicy, Neighbour, Selection

Pixel = tuple[int, int]
Random = NDArray[np.uint64] | None


@dataclass(frozen=True)
class Number:
    """An integer in a register, and its position."""

    value: int
    exponent: int


@dataclass(frozen=True)
class Memory:
    """What a PE reads of one image: mantissas and positions of each input, (C, H, W), and the layer's parameters."""

    spec: KernelSpec
    parameters: KernelParameters
    mantissas: Sequence[IntArray]
    positions: Sequence[IntArray]
    exponents: BlockExponents

    def read(self, operand: int, channel: int, row: int, column: int) -> Number | None:
        """A number of an operand with its position; None beyond the border, where there is neither."""
        tensor = self.spec.inputs[operand]
        if not (0 <= row < tensor.height and 0 <= column < tensor.width):
            return None
        place = channel, row, column
        return Number(int(self.mantissas[operand][place]), int(self.positions[operand][place]))


def barrel_shift(number: Number, exponent: int) -> int:
    """A number at another position (fig. 8): left shifts exact, right shifts floor."""
    left = number.exponent - exponent
    return number.value << left if left >= 0 else number.value >> -left


def select(numbers: Sequence[Number], selection: Selection) -> int:
    """The position that numbers are aligned to: that with the most integer bits, or the most fraction bits."""
    positions = [number.exponent for number in numbers]
    return max(positions) if selection is Selection.INTEGER else min(positions)


@dataclass
class FilterUnit:
    """A filter processing unit (fig. 7): the products of a window, aligned and added to the sum in its RAM."""

    accumulator: Accumulator
    selection: Selection
    ram: Number | None = None
    overflowed: bool = False

    def add(self, products: Sequence[Number]) -> None:
        """Align the products of one input channel and the sum so far, and add them up."""
        if not products:
            return
        addends = [*products] if self.ram is None else [*products, self.ram]
        position = select(addends, self.selection)
        self.ram = Number(self._fit(sum(barrel_shift(each, position) for each in addends)), position)

    def add_bias(self, bias: Number) -> None:
        """Add the bias at the position of the sum."""
        assert self.ram is not None
        position = self.ram.exponent
        self.ram = Number(self._fit(self.ram.value + barrel_shift(bias, position)), position)

    def keep(self, number: Number) -> None:
        """Hold a number that nothing is added to."""
        self.ram = Number(self._fit(number.value), number.exponent)

    def _fit(self, value: int) -> int:
        least, greatest = mantissa_range(self.accumulator.bits)
        if least <= value <= greatest:
            return value
        self.overflowed = True
        if self.accumulator.wraps:
            return (value - least) % (1 << self.accumulator.bits) + least
        return min(max(value, least), greatest)


@dataclass(frozen=True)
class CalculationUnit:
    """Calculates the results of one block (fig. 7): products, sum, bias, activation, and one position for all."""

    memory: Memory

    def block(self, channel: int, pixels: Sequence[Pixel]) -> tuple[list[Number], list[bool]]:
        """The results of a block of one channel at one position, and which of them overflowed a register."""
        spec, selection = self.memory.spec, self._selection
        results, overflowed = [], []
        for pixel in pixels:
            unit = FilterUnit(spec.accumulator, selection)
            self._accumulate(unit, channel, pixel)
            if self.memory.parameters.bias is not None:
                unit.add_bias(Number(int(self.memory.parameters.bias[channel]), self._of(channel, "bias")))
            assert unit.ram is not None
            results.append(self._activate(unit.ram))
            overflowed.append(unit.overflowed)
        position = select(results, selection)
        bits = spec.accumulator.bits + spare_bits(spec)
        least, greatest = mantissa_range(bits)
        for index, result in enumerate(results):
            value = barrel_shift(result, position)
            overflowed[index] = overflowed[index] or not least <= value <= greatest
            results[index] = Number(min(max(value, least), greatest), position)
        return results, overflowed

    @property
    def _selection(self) -> Selection:
        return (self.memory.spec.blocks or BlockPolicy()).selection

    def _of(self, channel: int, parameter: str) -> int:
        exponents: tuple[int, ...] = getattr(self.memory.exponents, parameter)
        return exponents[channel] if len(exponents) > 1 else exponents[0]

    def _accumulate(self, unit: FilterUnit, channel: int, pixel: Pixel) -> None:
        memory, spec = self.memory, self.memory.spec
        match spec.operation:
            case Convolution() as operation:
                self._convolve(unit, operation, channel, pixel)
            case AveragePool() as pool:
                multipliers, fraction_bits = reciprocals(pool, spec.inputs[0])
                multiplier = int(multipliers[pixel])
                window = self._window(0, channel, pixel, pool.kernel, pool.stride, pool.padding)
                unit.add([Number(each.value * multiplier, each.exponent - fraction_bits) for _, each in window])
                if unit.ram is None:
                    unit.keep(Number(0, self._first_position() - fraction_bits))
            case MaxPool() as pool:
                window = self._window(0, channel, pixel, pool.kernel, pool.stride, pool.padding)
                numbers = [number for _, number in window]
                position = select(numbers, self._selection)
                largest: int | None = None
                for number in numbers:
                    unit.keep(Number(barrel_shift(number, position), position))
                    assert unit.ram is not None
                    largest = unit.ram.value if largest is None else max(largest, unit.ram.value)
                assert largest is not None
                unit.keep(Number(largest, position))
            case Add():
                for operand in range(len(spec.inputs)):
                    unit.add(_present([memory.read(operand, channel, *pixel)]))
            case Concat():
                operand = 0
                while channel >= spec.inputs[operand].channels:
                    channel -= spec.inputs[operand].channels
                    operand += 1
                unit.ram = memory.read(operand, channel, *pixel)
            case Widen():
                unit.ram = memory.read(0, channel, *pixel)
            case Resize():
                source, output = spec.inputs[0], spec.output
                row, column = pixel[0] * source.height // output.height, pixel[1] * source.width // output.width
                unit.ram = memory.read(0, channel, row, column)
            case Sigmoid():
                (number,) = _present([memory.read(0, channel, *pixel)])
                bits = spec.inputs[0].bits
                table = sigmoid_table(bits, number.exponent)
                unit.ram = Number(int(table[number.value + (1 << (bits - 1))]), -FRACTION_BITS)
            case Softmax():
                unit.ram = self._softmax(channel, pixel)
            case _:
                raise ValueError(f"kernel {spec.name}: no blocks in {type(spec.operation).__name__}")

    def _convolve(self, unit: FilterUnit, operation: Convolution, channel: int, pixel: Pixel) -> None:
        """One input channel of the group after the other."""
        weight = self.memory.parameters.weight
        assert weight is not None
        inputs = weight.shape[1]
        first = channel // (len(weight) // operation.groups) * inputs
        of_weight = self._of(channel, "weight")
        for index in range(inputs):
            window = self._window(
                0, first + index, pixel, operation.kernel, operation.stride, operation.padding, operation.dilation
            )
            unit.add(
                [
                    Number(number.value * int(weight[channel, index, *tap]), number.exponent + of_weight)
                    for tap, number in window
                ]
            )
        if unit.ram is None:
            unit.keep(Number(0, self._first_position() + of_weight))

    def _window(
        self,
        operand: int,
        channel: int,
        pixel: Pixel,
        kernel: Pixel,
        stride: Pixel,
        padding: tuple[int, int, int, int],
        dilation: Pixel = (1, 1),
    ) -> list[tuple[Pixel, Number]]:
        """The numbers of a window that lie in the map, each with its tap."""
        found = []
        for tap in np.ndindex(kernel):
            row = pixel[0] * stride[0] - padding[0] + tap[0] * dilation[0]
            column = pixel[1] * stride[1] - padding[1] + tap[1] * dilation[1]
            number = self.memory.read(operand, channel, row, column)
            if number is not None:
                found.append((tap, number))
        return found

    def _softmax(self, channel: int, pixel: Pixel) -> Number:
        memory = self.memory
        numbers = _present([memory.read(0, each, *pixel) for each in range(memory.spec.inputs[0].channels)])
        position = select(numbers, self._selection)
        values = [barrel_shift(number, position) for number in numbers]
        scaled = np.ldexp(np.array([max(values) - value for value in values], np.float64), position)
        exponentials = [int(each) for each in np.rint(np.ldexp(np.exp(-scaled), FRACTION_BITS))]
        return Number((exponentials[channel] << FRACTION_BITS) // sum(exponentials), -FRACTION_BITS)

    def _first_position(self) -> int:
        """The position of the map's first block, for a window without any number."""
        return int(self.memory.positions[0][0, 0, 0])

    def _activate(self, number: Number) -> Number:
        value, exponent = number.value, number.exponent
        match self.memory.spec.activation:
            case None:
                return number
            case Relu():
                return Number(max(value, 0), exponent)
            case Clip(limit):
                most = clip_limit(limit, exponent, self.memory.spec.accumulator)
                return Number(min(max(value, 0), most), exponent)
            case LeakyRelu(slope):
                bits = fraction_bits(slope)
                multiplier = slope.multiplier << (bits - slope.fraction_bits)
                return Number(value << bits if value >= 0 else value * multiplier, exponent - bits)


@dataclass(frozen=True)
class AnalysisUnit:
    """Tries all candidates on the results of a block (320)."""

    spec: KernelSpec
    candidates: tuple[int, ...]

    def losses(self, results: Sequence[Number], random: Random) -> list[Fraction]:
        """What the block loses at each candidate, in real numbers."""
        position = results[0].exponent
        values = np.array([number.value for number in results], dtype=object)
        policy, spec = self.spec.blocks or BlockPolicy(), self.spec
        candidates = [-candidate for candidate in self.candidates]
        return analyze(values, -position, candidates, spec.output.bits, spec.rounding, policy.measure, random)


@dataclass
class AnalysisStorage:
    """The analysis results of a map's blocks so far, by (row, column) of the block (fig. 11, 400)."""

    losses: dict[Pixel, list[Fraction]] = field(default_factory=dict)

    def neighbours(self, block: Pixel, wanted: Sequence[Neighbour]) -> list[list[Fraction]]:
        """Those of the neighbours that have been analysed (fig. 12)."""
        row, column = block
        places = {
            Neighbour.UPPER_LEFT: (row - 1, column - 1),
            Neighbour.UPPER: (row - 1, column),
            Neighbour.UPPER_RIGHT: (row - 1, column + 1),
            Neighbour.LEFT: (row, column - 1),
        }
        return [self.losses[places[each]] for each in wanted if places[each] in self.losses]


def _present(numbers: Sequence[Number | None]) -> list[Number]:
    return [number for number in numbers if number is not None]

"""A processing element of JP7819764B2, literally: one PE, one block, one channel, one number at a time.

Written from the figures, in Python integers, to be read beside them: a calculation unit (fig. 6, 300) of filter
processing units (fig. 7) with barrel shifters (fig. 8), a delay buffer (310), an analysis unit (320), a unit that
determines the decimal point position (330), a quantisation unit (340), and in the second embodiment a storage of
analysis results (fig. 11, 400) in place of the delay buffer. Positions are counted as exponents: N fraction bits are
the exponent -N. It is slow; `block_kernel` computes the same for whole feature maps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.blocks import (
    BlockExponents,
    BlockMap,
    BlockResult,
    ExponentGrid,
    block_size,
    grid_shape,
    spread,
)
from binpoint.backends.generator import draw_key, draws
from binpoint.backends.kernel import (
    Accumulator,
    Add,
    AveragePool,
    Clip,
    Concat,
    Convolution,
    Draw,
    Events,
    IntArray,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    Relu,
    Resize,
    Sigmoid,
    Softmax,
    TensorSpec,
    Widen,
)
from binpoint.backends.oracle.block_kernel import move
from binpoint.backends.oracle.blocks import analyze, choose, predict
from binpoint.backends.oracle.buffer import OracleBuffer
from binpoint.backends.oracle.fixed_point import container, mantissa_range, quantize
from binpoint.backends.oracle.pools import reciprocals
from binpoint.backends.tables import FRACTION_BITS, sigmoid_table
from binpoint.support.numeric import BlockMethod, BlockPolicy, Neighbour, Rounding, Selection

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
        bits = spec.accumulator.bits + self._spare_bits
        least, greatest = mantissa_range(bits)
        for index, result in enumerate(results):
            value = barrel_shift(result, position)
            overflowed[index] = overflowed[index] or not least <= value <= greatest
            results[index] = Number(min(max(value, least), greatest), position)
        return results, overflowed

    @property
    def _selection(self) -> Selection:
        return (self.memory.spec.blocks or BlockPolicy()).selection

    @property
    def _spare_bits(self) -> int:
        activation = self.memory.spec.activation
        return max(activation.slope.fraction_bits, 0) if isinstance(activation, LeakyRelu) else 0

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
                shift, bits = exponent + limit.fraction_bits, self.memory.spec.accumulator.bits
                most = int(quantize(np.asarray(limit.multiplier), shift, bits, Rounding.HALF_EVEN)[0])
                return Number(min(max(value, 0), most), exponent)
            case LeakyRelu(slope):
                fraction_bits = self._spare_bits
                multiplier = slope.multiplier << (fraction_bits - slope.fraction_bits)
                passed = value << fraction_bits if value >= 0 else value * multiplier
                return Number(passed, exponent - fraction_bits)


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


class LiteralPeBackend:
    """Runs kernels over blocks on PEs that compute one block of one channel at a time."""

    name = "literal-pe"

    def upload(self, mantissas: IntArray, spec: TensorSpec) -> OracleBuffer:
        """(N, C, H, W) mantissas into a buffer."""
        return OracleBuffer(mantissas.astype(container(spec.bits)))

    def download(self, buffer: OracleBuffer) -> IntArray:
        """A buffer as (N, C, H, W) mantissas."""
        return buffer.mantissas

    def prepare_blocks(self, spec: KernelSpec, parameters: KernelParameters) -> LiteralPeKernel:
        """Bind the parameters of a kernel over blocks."""
        return LiteralPeKernel(spec, parameters)


@dataclass
class LiteralPeKernel:
    """See `binpoint.backends.blocks.BlockKernel`."""

    spec: KernelSpec
    parameters: KernelParameters

    def __call__(
        self,
        inputs: Sequence[BlockMap],
        exponents: BlockExponents,
        *,
        overflows: bool = False,
        draw: Draw | None = None,
        first_image: int = 0,
    ) -> BlockResult:
        """Compute all images, one after the other."""
        spec, batch = self.spec, inputs[0].batch
        output = np.zeros((batch, *spec.output.shape), container(spec.output.bits))
        grid = np.zeros((batch, *grid_shape(spec.output)), np.int32)
        counts = np.zeros((batch, len(exponents.candidates)), np.int64)
        events = Events(0)
        for image in range(batch):
            mantissas = [each.buffer.mantissas[image].astype(np.int64) for each in inputs]
            if spec.exact:
                found = move(spec, mantissas[0][np.newaxis], inputs[0].exponents[image : image + 1], counts.shape[1])
                output[image], grid[image] = found.mantissas[0], found.grid[0]
                events = events.merge(found.events)
                continue
            positions = [
                spread(each.exponents[image : image + 1], tensor)[0]
                for each, tensor in zip(inputs, spec.inputs, strict=True)
            ]
            memory = Memory(spec, self.parameters, mantissas, positions, exponents)
            random = _random(spec, draw, first_image + image)
            run = _Image(memory, output[image], grid[image], counts[image], random)
            events = events.merge(run.run())
        return BlockResult(BlockMap(OracleBuffer(output), grid), events, counts if overflows else None)


@dataclass(frozen=True)
class _Image:
    """One image: the blocks of each map in raster order, the channels that share a block's exponent together."""

    memory: Memory
    output: IntArray
    grid: ExponentGrid
    counts: IntArray
    random: Random

    def run(self) -> Events:
        spec = self.memory.spec
        channels = range(spec.output.channels)
        sharing = [[channel] for channel in channels] if spec.output.granularity.per_channel else [list(channels)]
        events = Events(0)
        for group, members in enumerate(sharing):
            storage = AnalysisStorage()
            for block, pixels in _raster(spec.output):
                events = events.merge(self._block(group, members, block, pixels, storage))
        return events

    def _block(
        self, group: int, members: Sequence[int], block: Pixel, pixels: Sequence[Pixel], storage: AnalysisStorage
    ) -> Events:
        """Fig. 10: calculate (S100), analyse (S102), determine the position (S104), quantise (S106).

        `delayed` is the delay buffer (310), which a prediction does not need.
        """
        spec, exponents = self.memory.spec, self.memory.exponents
        calculation, analysis = CalculationUnit(self.memory), AnalysisUnit(spec, exponents.candidates)
        predicted = self._predict(block, storage)
        delayed: list[tuple[int, list[Number]]] = []
        losses = [Fraction(0)] * len(exponents.candidates)
        events = Events(len(members) * len(pixels))
        for channel in members:
            results, overflowed = calculation.block(channel, pixels)
            events = events.merge(Events(0, accumulator_overflows=sum(overflowed)))
            if predicted is None:
                delayed.append((channel, results))
            else:
                events = events.merge(self._quantise(channel, pixels, results, predicted))
            random = self._random_of(channel, pixels)
            losses = [sum(pair, Fraction(0)) for pair in zip(losses, analysis.losses(results, random), strict=True)]
            self._count(results, random)
        storage.losses[block] = losses
        exponent = self._choose(losses) if predicted is None else predicted
        for channel, results in delayed:
            events = events.merge(self._quantise(channel, pixels, results, exponent))
        self.grid[group, *block] = exponent
        return events

    def _predict(self, block: Pixel, storage: AnalysisStorage) -> int | None:
        """The position determination unit of the second embodiment: before there are results. None in the first."""
        policy, exponents = self.memory.spec.blocks or BlockPolicy(), self.memory.exponents
        if len(exponents.candidates) == 1:
            return exponents.candidates[0]
        if policy.method is BlockMethod.ANALYSE:
            return None
        neighbours = storage.neighbours(block, policy.neighbours)
        candidates = [-candidate for candidate in exponents.candidates]
        return -predict(neighbours, candidates, -exponents.default, policy.threshold)

    def _choose(self, losses: Sequence[Fraction]) -> int:
        """The position determination unit of the first embodiment (330)."""
        return -choose(losses, [-candidate for candidate in self.memory.exponents.candidates])

    def _quantise(self, channel: int, pixels: Sequence[Pixel], results: Sequence[Number], exponent: int) -> Events:
        """The quantisation unit (340)."""
        spec = self.memory.spec
        saturated = underflowed = 0
        for pixel, number in zip(pixels, results, strict=True):
            random = self._random_of(channel, [pixel])
            value = np.array([number.value], dtype=object)
            mantissa, outside = quantize(value, exponent - number.exponent, spec.output.bits, spec.rounding, random)
            self.output[channel, *pixel] = mantissa[0]
            saturated += bool(outside[0])
            underflowed += number.value != 0 and mantissa[0] == 0
        return Events(0, saturated, underflowed)

    def _count(self, results: Sequence[Number], random: Random) -> None:
        """Overflows at each candidate, for those who want to know them beside the policy's measure."""
        spec = self.memory.spec
        values = np.array([number.value for number in results], dtype=object)
        for index, candidate in enumerate(self.memory.exponents.candidates):
            shift = candidate - results[0].exponent
            self.counts[index] += int(quantize(values, shift, spec.output.bits, spec.rounding, random)[1].sum())

    def _random_of(self, channel: int, pixels: Sequence[Pixel]) -> Random:
        if self.random is None:
            return None
        return np.array([self.random[channel, *pixel] for pixel in pixels], np.uint64)


def _raster(tensor: TensorSpec) -> Iterator[tuple[Pixel, list[Pixel]]]:
    """The blocks of a map in raster order, each with its pixels."""
    height, width = block_size(tensor)
    for row in range(-(-tensor.height // height)):
        for column in range(-(-tensor.width // width)):
            rows = range(row * height, min((row + 1) * height, tensor.height))
            columns = range(column * width, min((column + 1) * width, tensor.width))
            yield (row, column), [(y, x) for y in rows for x in columns]


def _random(spec: KernelSpec, draw: Draw | None, image: int) -> Random:
    if spec.rounding is not Rounding.STOCHASTIC:
        return None
    if draw is None:
        raise ValueError(f"kernel {spec.name}: stochastic rounding needs a draw")
    size = prod(spec.output.shape)
    return draws(draw_key(draw), np.arange(image * size, (image + 1) * size)).reshape(spec.output.shape)


def _present(numbers: Sequence[Number | None]) -> list[Number]:
    return [number for number in numbers if number is not None]

"""A backend whose kernels over blocks run on the literal PE: images, channels and blocks one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from binpoint.backends.blocks import BlockExponents, BlockMap, BlockResult, ExponentGrid, block_size, grid_shape, spread
from binpoint.backends.generator import draw_key, draws
from binpoint.backends.kernel import Draw, Events, IntArray, KernelParameters, KernelSpec, TensorSpec
from binpoint.backends.oracle.block_kernel import move
from binpoint.backends.oracle.blocks import choose, predict
from binpoint.backends.oracle.buffer import OracleBuffer
from binpoint.backends.oracle.fixed_point import container, quantize
from binpoint.backends.oracle.pe import AnalysisStorage, AnalysisUnit, CalculationUnit, Memory, Number, Pixel, Random
from binpoint.support.numeric import BlockMethod, BlockPolicy, Rounding


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
        counts = np.zeros((batch, len(exponents.candidates)), np.int64) if overflows else None
        events = Events(0)
        for image in range(batch):
            mantissas = [each.buffer.mantissas[image].astype(np.int64) for each in inputs]
            if spec.exact:
                found = move(
                    spec, mantissas[0][np.newaxis], inputs[0].exponents[image : image + 1], len(exponents.candidates)
                )
                output[image], grid[image] = found.mantissas[0], found.grid[0]
                events = events.merge(found.events)
                continue
            positions = [
                spread(each.exponents[image : image + 1], tensor)[0]
                for each, tensor in zip(inputs, spec.inputs, strict=True)
            ]
            memory = Memory(spec, self.parameters, mantissas, positions, exponents)
            random = _random(spec, draw, first_image + image)
            run = _Image(memory, output[image], grid[image], None if counts is None else counts[image], random)
            events = events.merge(run.run())
        return BlockResult(BlockMap(OracleBuffer(output), grid), events, counts)


@dataclass(frozen=True)
class _Image:
    """One image: the blocks of each map in raster order, the channels that share a block's exponent together."""

    memory: Memory
    output: IntArray
    grid: ExponentGrid
    counts: IntArray | None
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
            if self.counts is not None:
                self._count(self.counts, results, random)
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

    def _count(self, counts: IntArray, results: Sequence[Number], random: Random) -> None:
        """Overflows at each candidate, for those who want to know them beside the policy's measure."""
        spec = self.memory.spec
        values = np.array([number.value for number in results], dtype=object)
        for index, candidate in enumerate(self.memory.exponents.candidates):
            shift = candidate - results[0].exponent
            counts[index] += int(quantize(values, shift, spec.output.bits, spec.rounding, random)[1].sum())

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

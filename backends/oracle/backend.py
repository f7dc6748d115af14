"""The oracle as a backend: kernels, PE programs, sums and updates that call the specification."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from binpoint.backends.gradients import (
    PARAMETER_GRADIENTS,
    AveragePoolGradient,
    ConvolutionDataGradient,
    MaxPoolGradient,
    SumsSpec,
    UpdateSpec,
    result_rows,
)
from binpoint.backends.kernel import (
    BoolArray,
    Draw,
    Events,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelResult,
    KernelSpec,
    StatisticsRecord,
    TensorSpec,
    Tile,
    TileResult,
)
from binpoint.backends.oracle.block_kernel import OracleBlockKernel
from binpoint.backends.oracle.buffer import OracleBuffer as OracleBuffer
from binpoint.backends.oracle.fixed_point import container, mantissa_range
from binpoint.backends.oracle.layers import run_layer
from binpoint.backends.oracle.part import Part
from binpoint.backends.oracle.statistics import merge
from binpoint.backends.oracle.sums import OracleSums
from binpoint.backends.oracle.update import OracleUpdate
from binpoint.support.numeric import Rounding

CHUNK_ELEMENTS = 1 << 22
"""Images are computed in groups whose widest int64 array stays near this many elements (32 MiB)."""


@dataclass
class OracleKernel:
    """One kernel with its parameters."""

    spec: KernelSpec
    parameters: KernelParameters

    def bind(self, parameters: KernelParameters) -> None:
        """Take new mantissas of the same shapes and widths."""
        self.parameters = parameters

    def __call__(
        self,
        inputs: Sequence[OracleBuffer],
        exponents: KernelExponents,
        *,
        sample: BoolArray | None = None,
        draw: Draw | None = None,
        first_image: int = 0,
    ) -> KernelResult:
        """Compute all rows of the result, a few images at a time so that memory stays bounded.

        Sums over images see all of them at once.
        """
        batch, spec = inputs[0].batch, self.spec
        output = np.empty((result_rows(spec, batch), *spec.output.shape), dtype=container(spec.output.bits))
        records: list[StatisticsRecord] = []
        events = Events(0)
        for images, rows, part in self._parts(batch, first_image):
            result = run_layer(
                spec,
                self.parameters,
                [buffer.mantissas[images].astype(np.int64) for buffer in inputs],
                exponents,
                part,
                None if sample is None else sample[rows],
                draw,
            )
            output[rows] = result.output
            events = events.merge(result.events)
            if result.statistics is not None:
                records.append(result.statistics)
        has_statistics = sample is not None and spec.statistics and not spec.exact
        return KernelResult(OracleBuffer(output), merge(records) if has_statistics else None, events)

    def _parts(self, batch: int, first_image: int) -> Iterator[tuple[slice, slice, Part]]:
        """What is computed at a time: images to read, rows to write, and the part of the layer that these are."""
        channels = (0, self.spec.output.channels)
        if isinstance(self.spec.operation, PARAMETER_GRADIENTS):
            rows = result_rows(self.spec, batch)
            yield slice(0, batch), slice(0, rows), Part(channels, rows=(0, rows))
            return
        step = max(1, CHUNK_ELEMENTS // _elements_an_image(self.spec, self.parameters))
        for start in range(0, batch, step):
            chunk = slice(start, min(start + step, batch))
            yield chunk, chunk, Part(channels, first_image + start)


@dataclass(frozen=True)
class OraclePeProgram:
    """The kernel of one tile: the same steps over the tile's rows and channels alone."""

    spec: KernelSpec
    parameters: KernelParameters

    def __call__(
        self,
        inputs: Sequence[IntArray],
        tile: Tile,
        exponents: KernelExponents,
        *,
        sampled: bool = False,
        draw: Draw | None = None,
    ) -> TileResult:
        """Compute one tile from the whole batch's mantissas."""
        images = slice(tile.first_image, tile.first_image + tile.images)
        part = Part((tile.first_channel, tile.first_channel + tile.channels), tile.first_image)
        if isinstance(self.spec.operation, PARAMETER_GRADIENTS):
            part = replace(part, rows=(images.start, images.stop))
            images = slice(None)
        result = run_layer(
            self.spec,
            self.parameters,
            [mantissas[images].astype(np.int64) for mantissas in inputs],
            exponents,
            part,
            np.ones((tile.images, tile.channels), dtype=np.bool_) if sampled else None,
            draw,
        )
        return TileResult(result.output.astype(container(self.spec.output.bits)), result.statistics, result.events)


class OracleBackend:
    """The backend that defines what the others compute."""

    name = "oracle"

    def upload(self, mantissas: IntArray, spec: TensorSpec) -> OracleBuffer:
        """(N, C, H, W) mantissas into a buffer. Raises ValueError where a mantissa exceeds the width."""
        if mantissas.shape[1:] != spec.shape:
            raise ValueError(f"mantissas of shape {mantissas.shape[1:]} for a feature map {spec.shape}")
        least, greatest = mantissa_range(spec.bits)
        if mantissas.size and (mantissas.min() < least or mantissas.max() > greatest):
            raise ValueError(f"mantissas outside {spec.bits} bits")
        return OracleBuffer(mantissas.astype(container(spec.bits)))

    def download(self, buffer: OracleBuffer) -> IntArray:
        """A buffer as (N, C, H, W) mantissas, int8 up to 8 bits, int16 up to 16, else int32."""
        return buffer.mantissas

    def prepare(self, spec: KernelSpec, parameters: KernelParameters) -> OracleKernel:
        """Bind a kernel's parameters; there is nothing to compile."""
        return OracleKernel(spec, parameters)

    def prepare_blocks(self, spec: KernelSpec, parameters: KernelParameters) -> OracleBlockKernel:
        """Bind the parameters of a kernel over blocks."""
        return OracleBlockKernel(spec, parameters)

    def prepare_pe_program(
        self, spec: KernelSpec, parameters: KernelParameters, images: int, channels: int
    ) -> OraclePeProgram:
        """The kernel of one tile; the oracle's takes tiles of any size."""
        return OraclePeProgram(spec, parameters)

    def prepare_sums(self, spec: SumsSpec) -> OracleSums:
        """Exact channel-wise sums; there is nothing to compile."""
        return OracleSums(spec)

    def prepare_update(self, spec: UpdateSpec, rounding: Rounding) -> OracleUpdate:
        """SGD on one parameter; there is nothing to compile."""
        return OracleUpdate(spec, rounding)


def _elements_an_image(spec: KernelSpec, parameters: KernelParameters) -> int:
    """The widest array that one image needs: a feature map, or the windows of all its results."""
    maps = [tensor.channels * tensor.height * tensor.width for tensor in (*spec.inputs, spec.output)]
    pixels = spec.output.height * spec.output.width
    match spec.operation:
        case ConvolutionDataGradient(convolution):
            gradient = spec.inputs[0]
            taps = spec.output.channels * convolution.kernel[0] * convolution.kernel[1]
            return max(*maps, gradient.height * gradient.width * taps)
        case MaxPoolGradient(pool) | AveragePoolGradient(pool):
            return max(maps[-1], maps[-2] * pool.kernel[0] * pool.kernel[1])
        case _:
            return max(*maps, pixels if parameters.weight is None else pixels * parameters.weight[0].size)

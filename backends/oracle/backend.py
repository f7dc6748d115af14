"""The oracle as a backend: kernels and PE programs that call the specification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.oracle.layers import Part, run_layer
from binpoint.backends.oracle.statistics import merge

CHUNK_ELEMENTS = 1 << 22
"""Images are computed in groups whose widest int64 array stays near this many elements (32 MiB)."""


@dataclass(frozen=True)
class OracleBuffer:
    """A feature map as (N, C, H, W) mantissas in the smallest integer type that holds them."""

    mantissas: IntArray

    @property
    def batch(self) -> int:
        """N, the number of images."""
        return len(self.mantissas)


@dataclass(frozen=True)
class OracleKernel:
    """One kernel with its parameters."""

    spec: KernelSpec
    parameters: KernelParameters

    def __call__(
        self,
        inputs: Sequence[OracleBuffer],
        exponents: KernelExponents,
        *,
        sample: BoolArray | None = None,
        draw: Draw | None = None,
        first_image: int = 0,
    ) -> KernelResult:
        """Compute all images of the batch, a few at a time so that memory stays bounded."""
        batch = inputs[0].batch
        output = np.empty((batch, *self.spec.output.shape), dtype=container(self.spec.output.bits))
        channels = (0, self.spec.output.channels)
        records: list[StatisticsRecord] = []
        events = Events(0)
        step = max(1, CHUNK_ELEMENTS // _elements_an_image(self.spec, self.parameters))
        for start in range(0, batch, step):
            chunk = slice(start, min(start + step, batch))
            result = run_layer(
                self.spec,
                self.parameters,
                [buffer.mantissas[chunk].astype(np.int64) for buffer in inputs],
                exponents,
                Part(channels, first_image + start),
                None if sample is None else sample[chunk],
                draw,
            )
            output[chunk] = result.output
            events = events.merge(result.events)
            if result.statistics is not None:
                records.append(result.statistics)
        has_statistics = sample is not None and self.spec.statistics and not self.spec.exact
        return KernelResult(OracleBuffer(output), merge(records) if has_statistics else None, events)


@dataclass(frozen=True)
class OraclePeProgram:
    """The kernel of one tile: the same steps over the tile's images and channels alone."""

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
        result = run_layer(
            self.spec,
            self.parameters,
            [mantissas[images].astype(np.int64) for mantissas in inputs],
            exponents,
            Part((tile.first_channel, tile.first_channel + tile.channels), tile.first_image),
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

    def prepare_pe_program(
        self, spec: KernelSpec, parameters: KernelParameters, images: int, channels: int
    ) -> OraclePeProgram:
        """The kernel of one tile; the oracle's takes tiles of any size."""
        return OraclePeProgram(spec, parameters)


def container(bits: int) -> type[np.signedinteger]:
    """The smallest of int8, int16, int32 that holds `bits` bits."""
    return np.int8 if bits <= 8 else np.int16 if bits <= 16 else np.int32


def _elements_an_image(spec: KernelSpec, parameters: KernelParameters) -> int:
    """The widest array that one image needs: its output, or the windows of all its results."""
    pixels = spec.output.height * spec.output.width
    window = 1 if parameters.weight is None else parameters.weight[0].size
    return pixels * max(spec.output.channels, window)

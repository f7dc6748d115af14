"""How feature maps lie in memory: [N, ceil(C / b), H, W, b], channels in blocks of b, the last block padded with zeros.

A vector has H = W = 1 and is then contiguous. With b = 1 the layout is plain NCHW, which PE programs read.
Mantissas are int8 up to 8 bits and int16 up to 16. Nothing here needs TVM: the same functions index NumPy
arrays and te tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from binpoint.backends.kernel import IntArray, TensorSpec
from binpoint.backends.memory import aligned_empty

NARROWEST_BITS, WIDEST_BITS = 2, 16
"""The widths of mantissas that kernels hold."""


def channel_block(channels: int) -> int:
    """The block size of a feature map, a function of its channels alone.

    16 channels fill a vector register of int16 pairs; 8 waste less on narrow layers. Up to 4 channels are one
    block without padding: each row is then NHWC, and a first layer reduces over width x channels at once.
    """
    if channels >= 16:
        return 16
    return 8 if channels > 4 else channels


def storage_dtype(bits: int) -> str:
    """The element type that holds mantissas of `bits` bits."""
    if not NARROWEST_BITS <= bits <= WIDEST_BITS:
        raise ValueError(f"kernels hold mantissas of {NARROWEST_BITS} to {WIDEST_BITS} bits, not {bits}")
    return "int8" if bits <= 8 else "int16"


GROUP = 8
"""Channels of a group, of which a call may pick one for statistics: the int32 lanes of an AVX2 register."""


@dataclass(frozen=True)
class Layout:
    """Channels in blocks of `block`."""

    block: int

    def blocks(self, channels: int) -> int:
        """How many blocks hold that many channels."""
        return -(-channels // self.block)

    def shape(self, spec: TensorSpec, batch: Any) -> tuple[Any, int, int, int, int]:
        """The shape of a feature map: (N, C blocks, H, W, block). `batch` may be a symbolic size."""
        return batch, self.blocks(spec.channels), spec.height, spec.width, self.block

    def index(self, n: Any, c: Any, h: Any, w: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Where element (n, c, h, w) lies; integers or te expressions."""
        if self.block == 1:
            return n, c, h, w, 0
        return n, c // self.block, h, w, c % self.block

    def filter_index(self, k: Any, c: Any, r: Any, s: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Where weight (k, c, r, s) lies in [ceil(K / b), C / groups, R, S, b]."""
        if self.block == 1:
            return k, c, r, s, 0
        return k // self.block, c, r, s, k % self.block

    def coordinates(self, n: Any, channel_block: Any, h: Any, w: Any, lane: Any) -> tuple[Any, Any, Any, Any]:
        """The (n, c, h, w) of a position in memory; c may point into the padding."""
        return n, channel_block * self.block + lane, h, w


PLAIN = Layout(1)
"""NCHW."""


def feature_map_layout(spec: TensorSpec) -> Layout:
    """The layout of a feature map between kernels."""
    return Layout(channel_block(spec.channels))


def pack(mantissas: IntArray, spec: TensorSpec, target: IntArray) -> None:
    """Write (N, C, H, W) mantissas into a blocked array of the feature map's layout and dtype."""
    layout = feature_map_layout(spec)
    block = layout.block
    full = spec.channels // block
    batch, height, width = mantissas.shape[0], spec.height, spec.width
    whole = mantissas[:, : full * block].reshape(batch, full, block, height, width)
    target[:, :full] = whole.transpose(0, 1, 3, 4, 2)
    rest = spec.channels - full * block
    if rest:
        target[:, full, :, :, :rest] = mantissas[:, full * block :].transpose(0, 2, 3, 1)
        target[:, full, :, :, rest:] = 0


def unpack(blocked: IntArray, spec: TensorSpec) -> IntArray:
    """The (N, C, H, W) mantissas of a blocked array, contiguous and aligned."""
    batch, _, height, width, block = blocked.shape
    mantissas = aligned_empty((batch, spec.channels, height, width), blocked.dtype.name)
    full = spec.channels // block
    whole = mantissas[:, : full * block].reshape(batch, full, block, height, width)
    whole[...] = blocked[:, :full].transpose(0, 1, 4, 2, 3)
    rest = spec.channels - full * block
    if rest:
        mantissas[:, full * block :] = blocked[:, full, :, :, :rest].transpose(0, 3, 1, 2)
    return mantissas

"""What is decided before a kernel is generated: the container of its values, the width of its reduction, its form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from binpoint.backends.kernel import KernelSpec
from binpoint.support.numeric import Rounding


class Container(StrEnum):
    """How a kernel holds the values between reduction and output.

    The host proves before each call which one is enough; all give the same bits where they are allowed.
    """

    INT32 = "int32"
    """|value| < 2^30 and the accumulator cannot overflow."""
    INT64 = "int64"
    """|value| < 2^62 and the accumulator cannot overflow."""
    WIDE = "wide"
    """Anything: the accumulator's width is checked, products take 96 bits."""

    @property
    def dtype(self) -> str:
        """The dtype of scalars, biases and values."""
        return "int32" if self is Container.INT32 else "int64"

    @property
    def bits(self) -> int:
        """Bits of the dtype."""
        return 32 if self is Container.INT32 else 64

    @property
    def narrow_bits(self) -> int:
        """Values below 2^narrow_bits in magnitude leave room for rounding (see `arithmetic`)."""
        return self.bits - 2


class Form(StrEnum):
    """The two programs that are made of one definition."""

    LAYER = "layer"
    """All images and channels, feature maps in channel blocks."""
    TILE = "tile"
    """The PE program: a tile of images and channels, feature maps in NCHW."""


@dataclass(frozen=True)
class KernelPlan:
    """Everything that decides a kernel's code; equal plans share it.

    `spec` has no name: identical layers compile once. `reduction` is the dtype of the sum. `values` says
    whether the values before quantisation are an output too, for statistics; `picked` that these are the values of one
    channel of each group of 8, which the call picks for each image. `raw` says that values are the only output: other
    code makes mantissas of them. `folded` says that a leaky ReLU gives what `arithmetic.fold_leak` does. `centred` says
    that Winograd's convolution subtracts an integer from all mantissas of a channel, which the bias makes up for.
    """

    spec: KernelSpec
    container: Container
    reduction: str
    values: bool
    form: Form = Form.LAYER
    picked: bool = False
    raw: bool = False
    folded: bool = False
    centred: bool = False

    @property
    def value_tensors(self) -> int:
        """How many tensors hold the values that are an output: two limbs where the container is WIDE."""
        if not self.values:
            return 0
        return 2 if self.container is Container.WIDE else 1

    @property
    def stochastic(self) -> bool:
        """Whether results draw random numbers."""
        return self.spec.rounding is Rounding.STOCHASTIC and not self.spec.exact

    @property
    def checked(self) -> bool:
        """Whether results that leave the accumulator are counted."""
        return self.container is Container.WIDE and not self.spec.exact


def nameless(spec: KernelSpec) -> KernelSpec:
    """The spec without what does not change its code."""
    return replace(spec, name="", statistics=True, accumulator=replace(spec.accumulator, can_overflow=False))

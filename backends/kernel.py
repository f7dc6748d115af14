"""What one kernel computes, as plain data: the border between the IR and the backends.

A kernel is one `fx.kernel` of the IR: the results of one layer, from fixed-point inputs to a fixed-point
output. `KernelSpec` says everything that is known when the kernel is compiled; exponents, sample masks and
parameters come at run time, so an exponent update never recompiles.

Every feature map is (N, C, H, W); a vector has H = W = 1. The batch N is a run-time size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from binpoint.support.numeric import BlockPolicy, FixedConstant, Granularity, Rounding, fixed_constant

if TYPE_CHECKING:
    from binpoint.backends.gradients import GradientOperation

IntArray = NDArray[np.signedinteger[Any]]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class TensorSpec:
    """One feature map of one image: channels, height, width, the mantissas' width in bits, what shares an exponent."""

    channels: int
    height: int
    width: int
    bits: int
    granularity: Granularity = Granularity()

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        return self.channels, self.height, self.width


@dataclass(frozen=True)
class Convolution:
    """Cross-correlation, also for linear layers (a 1x1 kernel on H = W = 1).

    Padding is (top, left, bottom, right) zeros. Weights are (K, C / groups, R, S).
    """

    exact: ClassVar[bool] = False

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    weight_bits: int = 8
    bias_bits: int | None = None
    """None where the layer has no bias."""


@dataclass(frozen=True)
class AveragePool:
    """The sum of a window times a fixed-point reciprocal: 1/9 at 8 bits is 228 * 2^-11.

    `include_padding` says whether padded zeros count in the divisor. Where they do not, windows at the
    border have reciprocals of their own; all are brought to the largest number of fraction bits.
    """

    exact: ClassVar[bool] = False

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    include_padding: bool = False
    constant_bits: int = 8


@dataclass(frozen=True)
class MaxPool:
    """The largest mantissa of a window; padding never wins. The output keeps the input's exponent."""

    exact: ClassVar[bool] = True

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True)
class Add:
    """The sum of two or more feature maps of one shape, aligned to one exponent."""

    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class Concat:
    """Feature maps one after the other along the channels, aligned to one exponent."""

    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class Widen:
    """The input itself as an accumulator: for an activation that stands alone."""

    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class Sigmoid:
    """1 / (1 + e^-x) from a table with one entry a mantissa; the result has 30 fraction bits."""

    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class Softmax:
    """Softmax over the channels of each pixel, from a table of e^-d; the result has 30 fraction bits."""

    exact: ClassVar[bool] = False


@dataclass(frozen=True)
class Resize:
    """Nearest neighbour: output row i reads row i * H // H_out, columns alike. Keeps the exponent."""

    exact: ClassVar[bool] = True


@dataclass(frozen=True)
class Reshape:
    """The same mantissas in another shape (C, H, W), channels outermost. Keeps the exponent."""

    exact: ClassVar[bool] = True


Operation = Convolution | AveragePool | MaxPool | Add | Concat | Widen | Sigmoid | Softmax | Resize | Reshape


@dataclass(frozen=True)
class Relu:
    """max(x, 0) on the accumulator."""


@dataclass(frozen=True)
class Clip:
    """min(max(x, 0), limit): ReLU6 with limit = 6. The limit is aligned to the accumulator's exponent."""

    limit: FixedConstant


@dataclass(frozen=True)
class LeakyRelu:
    """x where x >= 0, else slope * x, exact: the result has slope.fraction_bits more fraction bits."""

    slope: FixedConstant


Activation = Relu | Clip | LeakyRelu


@dataclass(frozen=True)
class Accumulator:
    """The accumulator of a PE. Past its width it saturates or wraps; both are counted.

    `can_overflow` is the compiler's proof from widths and reduction length: False means impossible.
    """

    bits: int = 40
    wraps: bool = False
    can_overflow: bool = False


@dataclass(frozen=True)
class KernelSpec:
    """One kernel: inputs -> accumulate -> bias -> activation -> statistics -> quantise -> output.

    Exact operations (`operation.exact`) have no activation and quantise nothing; their `rounding` is
    irrelevant and `statistics` is False.
    """

    name: str
    operation: Operation | GradientOperation
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec
    activation: Activation | None = None
    accumulator: Accumulator = Accumulator()
    rounding: Rounding = Rounding.HALF_EVEN
    statistics: bool = True
    blocks: BlockPolicy | None = None
    """How the output's exponents are found and operands aligned, for kernels over blocks (`backends.blocks`)."""

    @property
    def exact(self) -> bool:
        """Whether the kernel only moves or selects mantissas, and their exponents along with them."""
        return self.operation.exact and self.blocks is None


@dataclass(frozen=True)
class KernelParameters:
    """Mantissas of a kernel's parameters: weight (K, C / groups, R, S), bias (K,) or None."""

    weight: IntArray | None = None
    bias: IntArray | None = None


@dataclass(frozen=True)
class KernelExponents:
    """The exponents of one call. `output` is ignored by exact operations, which keep that of their last input."""

    inputs: tuple[int, ...]
    output: int
    weight: int = 0
    bias: int = 0


@dataclass(frozen=True)
class Draw:
    """Keys the generator of stochastic rounding: (seed, tensor, step); the element index completes it."""

    seed: int
    tensor: int
    step: int


@dataclass(frozen=True)
class StatisticsRecord:
    """What statistics PEs acquire (SEMANTICS section 4): histograms over absolute bit positions.

    `msb` and `lsb` map an absolute position (bit + exponent) to a count, without zero counts. `none`
    counts 0 and -1, which have no position. `samples` counts all.
    """

    msb: Mapping[int, int]
    lsb: Mapping[int, int]
    none: int
    samples: int

    @property
    def msb_max(self) -> int | None:
        """The highest msb seen, None where nothing had one."""
        return max(self.msb, default=None)

    @property
    def lsb_min(self) -> int | None:
        """The lowest lsb seen, None where nothing had one."""
        return min(self.lsb, default=None)

    def merge(self, other: StatisticsRecord) -> StatisticsRecord:
        """Both records as one: counts add up, so shards and mini-batches can be combined."""
        if not self.samples:
            return other
        if not other.samples:
            return self
        return StatisticsRecord(
            _sum_counts(self.msb, other.msb),
            _sum_counts(self.lsb, other.lsb),
            self.none + other.none,
            self.samples + other.samples,
        )


EMPTY_RECORD = StatisticsRecord({}, {}, 0, 0)
"""A record after the clear command."""


def _sum_counts(left: Mapping[int, int], right: Mapping[int, int]) -> dict[int, int]:
    positions = sorted({*left, *right})
    return {position: left.get(position, 0) + right.get(position, 0) for position in positions}


@dataclass(frozen=True)
class Events:
    """Counts over all results of a call, sampled or not.

    `saturated`: results past the output's range after rounding. `underflowed`: nonzero accumulators that
    became 0. `accumulator_overflows`: results whose exact sum, or sum with bias, left the accumulator.
    """

    results: int
    saturated: int = 0
    underflowed: int = 0
    accumulator_overflows: int = 0

    def merge(self, other: Events) -> Events:
        """Both counts added."""
        return Events(
            self.results + other.results,
            self.saturated + other.saturated,
            self.underflowed + other.underflowed,
            self.accumulator_overflows + other.accumulator_overflows,
        )


@dataclass(frozen=True)
class Tile:
    """The part of a layer that one PE computes in one round: images and output channels, half open."""

    first_image: int
    images: int
    first_channel: int
    channels: int


@dataclass(frozen=True)
class KernelResult:
    """What one call leaves: the output in the backend's own buffer, the sampled statistics, the events.

    `statistics` is None where no sample was asked for or the operation has none.
    """

    output: Buffer
    statistics: StatisticsRecord | None
    events: Events


@dataclass(frozen=True)
class TileResult:
    """What one PE leaves: mantissas (images, channels, H, W), its own record and counts."""

    output: IntArray
    statistics: StatisticsRecord | None
    events: Events


class Buffer(Protocol):
    """A feature map inside a backend, in a layout of the backend's choice."""

    @property
    def batch(self) -> int:
        """N, the number of images."""


class Kernel(Protocol):
    """One compiled kernel with its parameters."""

    def __call__(
        self,
        inputs: Sequence[Any],
        exponents: KernelExponents,
        *,
        sample: BoolArray | None = None,
        draw: Draw | None = None,
        first_image: int = 0,
    ) -> KernelResult:
        """Compute all images of the batch.

        `inputs` are the backend's buffers; `sample` is (N, C_out), True where a statistics PE computes
        the pair; `draw` is needed for stochastic rounding; `first_image` is the number of the batch's
        first image within the step (element indices count from it).
        """


class PeProgram(Protocol):
    """The kernel of one tile, as one PE runs it."""

    def __call__(
        self,
        inputs: Sequence[IntArray],
        tile: Tile,
        exponents: KernelExponents,
        *,
        sampled: bool = False,
        draw: Draw | None = None,
    ) -> TileResult:
        """Compute one tile.

        `inputs` are the whole batch as (N, C, H, W) mantissas, the PE's DRAM; `sampled` says whether
        this PE acquires statistics.
        """


class Backend(Protocol):
    """Compiles kernels and holds feature maps."""

    name: str

    def upload(self, mantissas: IntArray, spec: TensorSpec) -> Any:
        """(N, C, H, W) mantissas into a buffer."""

    def download(self, buffer: Any) -> IntArray:
        """A buffer as (N, C, H, W) mantissas, int8 up to 8 bits, int16 up to 16, else int32."""

    def prepare(self, spec: KernelSpec, parameters: KernelParameters) -> Kernel:
        """Compile a kernel and bind its parameters."""

    def prepare_pe_program(
        self, spec: KernelSpec, parameters: KernelParameters, images: int, channels: int
    ) -> PeProgram:
        """Compile the kernel of one tile of up to `images` x `channels` results."""


def reciprocal_constants(divisors: Sequence[int], bits: int) -> tuple[dict[int, int], int]:
    """Multipliers of 1/d for each divisor at one common number of fraction bits.

    Each reciprocal is the nearest constant of `bits` bits (SEMANTICS section 2); the ones with fewer
    fraction bits are shifted left, exactly, to the largest.
    """
    constants = {divisor: fixed_constant(Fraction(1, divisor), bits) for divisor in divisors}
    fraction_bits = max(constant.fraction_bits for constant in constants.values())
    multipliers = {
        divisor: constant.multiplier << (fraction_bits - constant.fraction_bits)
        for divisor, constant in constants.items()
    }
    return multipliers, fraction_bits

"""The numeric policy of a network: widths, exponents, rounding and updates, per class of tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from binpoint.support.number_text import format_number


class TensorClass(StrEnum):
    """The classes of tensors that have a width of their own."""

    ACTIVATIONS = "activations"
    WEIGHTS = "weights"
    BIASES = "biases"
    GRADIENTS = "gradients"
    WEIGHT_GRADIENTS = "weight_gradients"
    MASTER_WEIGHTS = "master_weights"
    ACCUMULATORS = "accumulators"


class OnOverflow(StrEnum):
    """What an accumulator does past its width."""

    SATURATE = "saturate"
    WRAP = "wrap"


ACQUISITIONS = ("msb", "lsb")
"""What a statistics circuit can acquire: the highest, the lowest bit that differs from the sign."""


class Rounding(StrEnum):
    """How a right shift rounds (SEMANTICS section 3)."""

    FLOOR = "floor"
    HALF_UP = "half-up"
    HALF_EVEN = "half-even"
    HALF_AWAY = "half-away"
    STOCHASTIC = "stochastic"


class ExponentRule(StrEnum):
    """How statistics decide the next exponent (SEMANTICS section 5)."""

    FIXED = "fixed"
    MSB_HISTOGRAM = "msb-histogram"
    MSB_MAX = "msb-max"
    LSB_MIN = "lsb-min"
    MSB_LSB = "msb+lsb"


STATISTICS_OF_RULE: Mapping[ExponentRule, tuple[str, ...]] = {
    ExponentRule.FIXED: (),
    ExponentRule.MSB_HISTOGRAM: ("msb",),
    ExponentRule.MSB_MAX: ("msb",),
    ExponentRule.LSB_MIN: ("lsb",),
    ExponentRule.MSB_LSB: ("msb", "lsb"),
}
"""What the statistics circuits must acquire for each rule."""


@dataclass(frozen=True)
class Granularity:
    """What shares one exponent: the tensor, a channel, or a spatial block.

    `block` is (height, width) in elements, None for no spatial cut. With both, a block of one channel.
    """

    block: tuple[int, int] | None = None
    per_channel: bool = False

    def __str__(self) -> str:
        """As written in a network file and in the IR: tensor, channel, block<4x4>, channel-block<4x4>."""
        if self.block is None:
            return "channel" if self.per_channel else "tensor"
        prefix = "channel-" if self.per_channel else ""
        return f"{prefix}block<{self.block[0]}x{self.block[1]}>"


class BlockMethod(StrEnum):
    """When the position of a block is known (JP7819764B2)."""

    ANALYSE = "analyse"
    """Embodiment 1: after the block's own results, which wait in a delay buffer."""
    PREDICT = "predict"
    """Embodiment 2: before them, from the analysis of neighbouring blocks."""


class Measure(StrEnum):
    """What a block loses at a candidate position."""

    OVERFLOWS = "overflows"
    ABSOLUTE_ERROR = "absolute-error"
    MSE = "mse"
    RMSE = "rmse"
    SNR = "snr"


class Selection(StrEnum):
    """Which position operands of different positions are aligned to."""

    INTEGER = "integer"
    """The coarsest: fewest fraction bits, most integer bits."""
    FRACTION = "fraction"
    """The finest: most fraction bits."""


class Neighbour(StrEnum):
    """Blocks that a PE has analysed before the present one, in raster order (JP7819764B2 fig. 12)."""

    UPPER_LEFT = "upper-left"
    UPPER = "upper"
    UPPER_RIGHT = "upper-right"
    LEFT = "left"


DEFAULT_THRESHOLD = Fraction(10)
"""Tolerated mean number of overflows of the analysed neighbours (JP7819764B2, embodiment 2)."""


@dataclass(frozen=True)
class BlockPolicy:
    """How blocks of a feature map get their positions and how positions are aligned (JP7819764B2).

    Attributes:
        method: analyse a block's own results, or predict its position from its neighbours.
        measure: what makes a position better than another.
        candidates: how many positions a layer has to choose from: its top position and the next finer ones.
        positions: the candidates as a list of fraction bits instead, in any order.
        neighbours: what a prediction reads.
        threshold: the mean loss of the neighbours that a prediction tolerates.
        selection: how a PE aligns operands.
    """

    method: BlockMethod = BlockMethod.ANALYSE
    measure: Measure = Measure.OVERFLOWS
    candidates: int = 8
    positions: tuple[int, ...] | None = None
    neighbours: tuple[Neighbour, ...] = tuple(Neighbour)
    threshold: Fraction = DEFAULT_THRESHOLD
    selection: Selection = Selection.FRACTION

    def __str__(self) -> str:
        """As it could be written in a network file, with every option that its method has."""
        unused = set() if self.method is BlockMethod.PREDICT else set(PREDICTION_FIELDS)
        if self.positions is not None:
            unused.add("candidates")
        return str(BlockWords(**{name: value for name, value in vars(self).items() if name not in unused}))


PREDICTION_FIELDS = ("neighbours", "threshold")
"""The fields of a `BlockPolicy` that mean nothing to an analysis."""

MOST_CANDIDATES = 64
"""The most positions that a layer can have to choose from."""


@dataclass(frozen=True)
class BlockWords:
    """What somebody says of a `BlockPolicy`: the fields of the same names, None where nothing is said."""

    method: BlockMethod | None = None
    measure: Measure | None = None
    candidates: int | None = None
    positions: tuple[int, ...] | None = None
    neighbours: tuple[Neighbour, ...] | None = None
    threshold: Fraction | None = None
    selection: Selection | None = None

    def over(self, other: BlockWords) -> BlockWords:
        """These words, and those of another where these say nothing. Candidates are counted or listed, not both."""
        replaced = {"candidates": self.positions, "positions": self.candidates}
        kept = {name: value for name, value in other.said.items() if replaced.get(name) is None}
        words = kept | self.said
        if words.get("method") is BlockMethod.ANALYSE:
            # What only a prediction has is not inherited by an analysis.
            words = {name: value for name, value in words.items() if name not in PREDICTION_FIELDS}
        return BlockWords(**words)

    @property
    def said(self) -> dict[str, Any]:
        """The fields that are not None."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def policy(self) -> BlockPolicy:
        """The policy, as by default where nothing is said, and where what is said has no meaning for the method."""
        said = self.said
        unused = [*(("candidates",) if self.positions is not None else ())]
        if self.method is not BlockMethod.PREDICT:
            unused += PREDICTION_FIELDS
        return BlockPolicy(**{name: value for name, value in said.items() if name not in unused})

    def __str__(self) -> str:
        """As written in a network file: predict(candidates = 4, neighbours = [left, upper], threshold = 10)."""
        options = {name: value for name, value in self.said.items() if name != "method"}
        listed = ", ".join(f"{BLOCK_OPTIONS[name]} = {_block_option(value)}" for name, value in options.items())
        return f"{self.method or BlockMethod.ANALYSE}" + (f"({listed})" if listed else "")


BLOCK_OPTIONS: Mapping[str, str] = {
    "measure": "measure",
    "candidates": "candidates",
    "positions": "positions",
    "neighbours": "neighbours",
    "threshold": "threshold",
    "selection": "alignment",
}
"""The options of `blocks = METHOD(option = value)`: the field of a `BlockPolicy`, and its name in a network file."""


def _block_option(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return format_number(value) if isinstance(value, Fraction) else str(value)


OPTIONS_OF_RULE: Mapping[ExponentRule, tuple[str, ...]] = {
    ExponentRule.FIXED: (),
    ExponentRule.MSB_HISTOGRAM: ("r_max", "confidence", "window", "patience", "headroom"),
    ExponentRule.MSB_MAX: ("window", "patience", "headroom"),
    ExponentRule.LSB_MIN: ("window", "patience"),
    ExponentRule.MSB_LSB: ("r_max", "r_min", "confidence", "window", "patience", "headroom"),
}
"""The fields of an `UpdatePolicy`, beside its period, that mean something to each rule."""


@dataclass(frozen=True)
class UpdatePolicy:
    """When and how exponents follow statistics (docs/policies.md).

    Attributes:
        rule: how a record becomes an exponent.
        r_max: the tolerated share of samples above the top bit, an exact fraction of all samples.
        r_min: the tolerated share below the lowest bit.
        period: k, a decision every k mini-batches.
        window: w, the records of the last w mini-batches are merged for a decision; None for as many as the period.
        confidence: None to hold r_max against the observed share; else against the upper confidence bound of the
            true share at this confidence, 1/2 or more and less than 1.
        patience: h, a smaller exponent needs h decisions in a row that ask for one; a larger one holds at once.
        headroom: bits added above the top position where the sample is too small to tolerate anything.
    """

    rule: ExponentRule = ExponentRule.MSB_HISTOGRAM
    r_max: Fraction = Fraction(2, 100_000)
    r_min: Fraction = Fraction(0)
    period: int = 1
    window: int | None = None
    confidence: Fraction | None = None
    patience: int = 1
    headroom: int = 0

    @property
    def merged_records(self) -> int:
        """How many mini-batches' records a decision sees at most."""
        return self.period if self.window is None else self.window

    def __str__(self) -> str:
        """As written in a network file: msb-histogram(r_max = 2e-5, window = 16) every 4."""
        always = ("r_max", "r_min")
        options = []
        for name in OPTIONS_OF_RULE[self.rule]:
            value = getattr(self, name)
            if name in always or value != getattr(type(self), name):
                options.append(f"{name} = {format_number(Fraction(value))}")
        listed = f"({', '.join(options)})" if options else ""
        return f"{self.rule}{listed}" + (f" every {self.period}" if self.period != 1 else "")


DEFAULT_UPDATE = UpdatePolicy(window=16)
"""What holds where a network says nothing about updates. A rule that it writes means what is written: without options
that of JP7367595B2, which decides from the record of one period. docs/experiments.md has the measurements behind it."""

PARAMETER_UPDATE = UpdatePolicy(ExponentRule.MSB_MAX, Fraction(0))
"""The exponent of a parameter whose values are all known: the largest one keeps its top bit."""

PARAMETER_CLASSES = frozenset({TensorClass.WEIGHTS, TensorClass.BIASES, TensorClass.MASTER_WEIGHTS})

DEFAULT_BITS: Mapping[TensorClass, int] = {
    TensorClass.ACTIVATIONS: 8,
    TensorClass.WEIGHTS: 8,
    TensorClass.BIASES: 16,
    TensorClass.GRADIENTS: 8,
    TensorClass.WEIGHT_GRADIENTS: 16,
    TensorClass.MASTER_WEIGHTS: 16,
}
"""Widths where the network file is silent. Accumulators take the target's width."""

BITS_RANGE: Mapping[TensorClass, tuple[int, int]] = {
    TensorClass.ACTIVATIONS: (2, 16),
    TensorClass.WEIGHTS: (2, 16),
    TensorClass.BIASES: (2, 32),
    TensorClass.GRADIENTS: (2, 16),
    TensorClass.WEIGHT_GRADIENTS: (2, 32),
    TensorClass.MASTER_WEIGHTS: (2, 32),
    TensorClass.ACCUMULATORS: (32, 64),
}
"""The widths that each class can have, both ends included."""

CONSTANT_BITS_RANGE = (2, 16)
"""The widths that the multiplier of an activation constant can have, both ends included."""

MINIMUM_EXPONENT, MAXIMUM_EXPONENT = -128, 127
"""The default declared range of an exponent (SEMANTICS section 1); a clamp into it is counted."""

EXPONENT_LIMITS = (-1024, 1023)
"""Where every declared range must lie: beyond, hosts have no float64 for the numbers."""


@dataclass(frozen=True)
class TensorPolicy:
    """How the exponent of one tensor is found: the rule, a user-given start, the declared range."""

    update: UpdatePolicy = UpdatePolicy()
    initial: int | None = None
    exponent_range: tuple[int, int] = (MINIMUM_EXPONENT, MAXIMUM_EXPONENT)


@dataclass(frozen=True)
class NumericPolicy:
    """The `numeric` section of a network file.

    `bits` and `updates` hold only the classes that the file names; `width()` and `update_for()` add the defaults.
    `overrides` maps a layer name to a policy that differs for that layer alone; its `granularity` is None where the
    layer does not have one of its own.
    """

    bits: Mapping[TensorClass, int] = field(default_factory=dict)
    granularity: Granularity | None = None
    """What shares an exponent in feature maps; None where nothing is said: the target decides."""
    rounding: Rounding = Rounding.HALF_EVEN
    update: UpdatePolicy = DEFAULT_UPDATE
    updates: Mapping[TensorClass, UpdatePolicy] = field(default_factory=dict)
    """Update policies of single classes; `update_for()` adds the defaults."""
    constant_bits: int = 8
    """Width of the multiplier of activation constants, e.g. 8 makes 0.1 = 205 * 2^-11."""
    exponent_range: tuple[int, int] = (MINIMUM_EXPONENT, MAXIMUM_EXPONENT)
    exponents: Mapping[str, int] = field(default_factory=dict)
    """Initial exponents given by the user, by tensor name (`conv1`, `conv1.weight`)."""
    overrides: Mapping[str, NumericPolicy] = field(default_factory=dict)
    blocks: BlockWords | None = None
    """How blocks get their exponents; None where nothing is said."""
    weights_per_channel: bool = False
    """Whether each output channel's weights have an exponent of their own."""

    def for_layer(self, layer: str) -> NumericPolicy:
        """The policy that holds for one layer."""
        return self.overrides.get(layer, self)

    def width(self, tensor_class: TensorClass) -> int | None:
        """Bits of a class of tensors; None for accumulators when the target decides."""
        return self.bits.get(tensor_class, DEFAULT_BITS.get(tensor_class))

    def update_for(self, tensor_class: TensorClass) -> UpdatePolicy:
        """How exponents of a class of tensors follow statistics in training: as its own policy says, else as for all.

        Parameters without a policy of their own keep the top bit of their largest value, with the period, the window
        and the patience of all.
        """
        if tensor_class in self.updates or tensor_class not in PARAMETER_CLASSES:
            return self.updates.get(tensor_class, self.update)
        if self.update.rule is ExponentRule.FIXED:
            return self.update
        common = self.update
        return replace(PARAMETER_UPDATE, period=common.period, window=common.window, patience=common.patience)

    def with_bits(self, tensor_class: TensorClass, bits: int) -> NumericPolicy:
        """The same policy with one width changed."""
        return replace(self, bits={**self.bits, tensor_class: bits})


@dataclass(frozen=True)
class FixedConstant:
    """A constant of the arithmetic as multiplier * 2^-fraction_bits (SEMANTICS section 2).

    `nearest_to` is the number that it stands in for, None where it is that number or nobody knows it. It is what
    floating point computes with; to fixed point it makes no difference.
    """

    multiplier: int
    fraction_bits: int
    nearest_to: Fraction | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.multiplier} * 2^-{self.fraction_bits}"

    @property
    def value(self) -> Fraction:
        """The number that the multiplier gives."""
        return self.multiplier / Fraction(2) ** self.fraction_bits


def fixed_constant(value: Fraction, bits: int) -> FixedConstant:
    """The nearest constant whose multiplier has exactly `bits` bits: 0.1 at 8 bits is 205 * 2^-11.

    Ties go to the even multiplier; zero is 0 * 2^0.
    """
    if value == 0:
        return FixedConstant(0, 0)
    magnitude = abs(value)
    # floor(log2) of an exact fraction, from the bit lengths of its two integers.
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    fraction_bits = bits - 1 - exponent
    multiplier = round(magnitude * Fraction(2) ** fraction_bits)
    if multiplier == 2**bits:
        multiplier, fraction_bits = multiplier // 2, fraction_bits - 1
    return FixedConstant(multiplier if value > 0 else -multiplier, fraction_bits)

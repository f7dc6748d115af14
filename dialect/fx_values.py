"""Operations of the fx dialect on accumulators and mantissas: bias, activations, statistics, quantise, exact moves."""

from __future__ import annotations

from abc import ABC, abstractmethod

from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.assembly import ReadableOp
from binpoint.dialect.attributes import ConstantAttr, CountAttr, NamesAttr
from binpoint.dialect.block_attributes import BlocksAttr
from binpoint.dialect.fx_attributes import AcquiresAttr
from binpoint.dialect.fx_types import (
    AccumulatorType,
    FixedTensorType,
    check_sizes,
    map_shape,
    parameter_sizes,
    sizes_of,
)
from binpoint.dialect.groups import Windowed
from binpoint.dialect.policies import PolicyAttr, RoundingAttr
from binpoint.dialect.shapes import Shape, check_shape, check_vector, pool_shape, reshaped
from binpoint.support.blocks import BlockMove, pool_move, reshape_move, resize_move
from binpoint.support.numeric import Granularity


class AccumulatorOp(ReadableOp, ABC):
    """Accumulators in and out, of one type."""

    input = operand_def(AccumulatorType)
    result = result_def(AccumulatorType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        """The result has the operand's type."""
        if self.input.type != self.result.type:
            raise VerifyException(f"the result is {self.result.type}, expected {self.input.type}")


@irdl_op_definition
class BiasOp(AccumulatorOp):
    """The bias, aligned to the accumulators' exponent, added to each channel.

    Once proved, `safe_shift` is how far left the bias may be shifted so that no sum leaves the accumulators.

    %1 = fx.bias (%0, %conv1.bias) safe_shift = 23 : !fx.acc<?x6x24x24, 40b>
    """

    name = "fx.bias"
    input = operand_def(AccumulatorType)
    bias = operand_def(FixedTensorType)
    safe_shift = opt_prop_def(CountAttr)

    def verify_(self) -> None:
        """The result has the operand's type; the bias has one number a channel."""
        super().verify_()
        check_vector(map_shape(self.input)[0], parameter_sizes(self.bias), "the bias")


class ActivationOp(AccumulatorOp, ABC):
    """An activation on accumulators."""

    layers = opt_prop_def(NamesAttr)


@irdl_op_definition
class ReluOp(ActivationOp):
    """max(x, 0)."""

    name = "fx.relu"


@irdl_op_definition
class ClipOp(ActivationOp):
    """min(max(x, 0), limit): `fx.clip (%0) limit = 192 * 2^-5`."""

    name = "fx.clip"
    limit = prop_def(ConstantAttr)


@irdl_op_definition
class LeakyReluOp(ActivationOp):
    """x, or slope * x below zero, exact: `fx.leaky_relu (%0) slope = 205 * 2^-11`."""

    name = "fx.leaky_relu"
    slope = prop_def(ConstantAttr)


@irdl_op_definition
class StatsOp(ReadableOp):
    """The bit positions that statistics PEs acquire of the accumulators: `fx.stats (%0) acquires = [msb, lsb]`."""

    name = "fx.stats"
    input = operand_def(AccumulatorType)
    acquires = prop_def(AcquiresAttr)


@irdl_op_definition
class QuantizeOp(ReadableOp):
    """Shift to the result's exponent, round, saturate. `exponent` says how that exponent is found.

    `blocks` says how each block finds its own, where the program knows blocks.

    %conv1 = fx.quantize (%2) rounding = half-even, exponent = <msb-max, r_max = 0, range = [-128, 127]>
             : !fx.tensor<?x6x24x24, 8b, exp = tensor>
    """

    name = "fx.quantize"
    input = operand_def(AccumulatorType)
    rounding = prop_def(RoundingAttr)
    exponent = prop_def(PolicyAttr)
    blocks = opt_prop_def(BlocksAttr)
    result = result_def(FixedTensorType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        """The shape stays."""
        check_sizes(sizes_of(self.input), sizes_of(self.result), "the result")


class ExactOp(ReadableOp, ABC):
    """Mantissas that are only selected or moved: width, granularity and exponent are those of the last operand."""

    layers = opt_prop_def(NamesAttr)
    result = result_def(FixedTensorType)
    traits = traits_def(Pure())

    @abstractmethod
    def output_shape(self) -> Shape:
        """The (C, H, W) that the result must have."""

    def keeps_exponents(self, before: Granularity, after: Granularity) -> bool:
        """Whether exponents of the operand's granularity become those of the result's."""
        return before == after

    def verify_(self) -> None:
        """The shape follows; everything else stays."""
        check_shape(self.output_shape(), map_shape(self.result), "the result")
        before, after = self.operands[-1].type, self.result.type
        assert isinstance(before, FixedTensorType)
        assert isinstance(after, FixedTensorType)
        if before.bits != after.bits or not self.keeps_exponents(before.granularity.data, after.granularity.data):
            raise VerifyException(f"{after} has not the width and granularity of {before}")


class MoveOp(ExactOp, ABC):
    """One feature map in."""

    input = operand_def(FixedTensorType)


class BlockMoveOp(MoveOp, ABC):
    """Windows of a feature map. Where they do not move blocks whole, the result is quantised as that of `QuantizeOp`.

    %pool = fx.max_pool (%x) kernel = 2x2, rounding = half-even, exponent = <...>, blocks = <analyse, ...>
            : !fx.tensor<?x6x13x13, 8b, exp = block<4x4>>
    """

    rounding = opt_prop_def(RoundingAttr)
    exponent = opt_prop_def(PolicyAttr)
    blocks = opt_prop_def(BlocksAttr)

    @abstractmethod
    def move(self) -> BlockMove:
        """What each element of the result reads."""

    def keeps_exponents(self, before: Granularity, after: Granularity) -> bool:
        """Blocks move whole, or the result is quantised anew."""
        return self.blocks is not None or before == after or self.move().keeps(before, after)

    def verify_(self) -> None:
        """What quantises stands together."""
        super().verify_()
        if len({self.rounding is None, self.exponent is None, self.blocks is None}) > 1:
            raise VerifyException("rounding, exponent and blocks are given together")


@irdl_op_definition
class MaxPoolOp(Windowed, BlockMoveOp):
    """The largest value of a window; padding never wins."""

    name = "fx.max_pool"

    def move(self) -> BlockMove:
        """The window of each element."""
        before, after = map_shape(self.input), map_shape(self.result)
        return pool_move(before, after, self.kernel.data, self.stride.data, self.padding.data)

    def output_shape(self) -> Shape:
        """Fewer rows and columns, as many channels."""
        return pool_shape(map_shape(self.input), self.kernel.data, self.stride.data, self.padding.data)


@irdl_op_definition
class ResizeOp(BlockMoveOp):
    """Nearest neighbour to the result's height and width: row i reads row i * H // H_out, columns alike."""

    name = "fx.resize"

    def move(self) -> BlockMove:
        """The nearest neighbour of each element."""
        return resize_move(map_shape(self.input), map_shape(self.result))

    def output_shape(self) -> Shape:
        """As many channels; any height and width."""
        return (map_shape(self.input)[0], *map_shape(self.result)[1:])


@irdl_op_definition
class ReshapeOp(MoveOp):
    """The same mantissas in the result's shape, channels outermost."""

    name = "fx.reshape"

    def keeps_exponents(self, before: Granularity, after: Granularity) -> bool:
        """Elements keep theirs."""
        return after == reshape_move(map_shape(self.input)).granularity(before)

    def output_shape(self) -> Shape:
        """Any with as many elements."""
        return reshaped(map_shape(self.input), map_shape(self.result))


ACTIVATION_OPS = [ReluOp, ClipOp, LeakyReluOp]
EXACT_OPS = [MaxPoolOp, ResizeOp, ReshapeOp]
VALUE_OPS = [BiasOp, *ACTIVATION_OPS, StatsOp, QuantizeOp, *EXACT_OPS]

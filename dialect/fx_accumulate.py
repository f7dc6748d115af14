"""Operations of the fx dialect that make accumulators from tensors.

Each says what its accumulators do past their width (`on_overflow`) and, once proved, whether they can get there
(`overflow`) and the width that holds every sum (`needed`).

    %0 = fx.conv2d (%image, %conv1.weight) kernel = 5x5, on_overflow = saturate, overflow = impossible,
                   needed = 20b : !fx.acc<?x6x24x24, 40b>
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from xdsl.dialects.builtin import DYNAMIC_INDEX, UnitAttr
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def, var_operand_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.assembly import ReadableOp
from binpoint.dialect.attributes import BitsAttr, NamesAttr, join_sizes
from binpoint.dialect.block_attributes import PositionsAttr
from binpoint.dialect.fx_attributes import OnOverflowAttr, Overflow, OverflowAttr, ReciprocalsAttr
from binpoint.dialect.fx_types import (
    AccumulatorType,
    FixedTensorType,
    check_sizes,
    map_shape,
    parameter_sizes,
    sizes_of,
    width,
)
from binpoint.dialect.groups import Convolved, Windowed
from binpoint.dialect.policies import check_constant_bits
from binpoint.dialect.shapes import (
    Shape,
    check_shape,
    concat_shape,
    filter_shape,
    pool_shape,
    same_shape,
    window_divisors,
    window_shape,
)
from binpoint.scheduling.positions import Window, target_positions


class AccumulateOp(ReadableOp, ABC):
    """Tensors in, accumulators out."""

    layers = opt_prop_def(NamesAttr)
    on_overflow = prop_def(OnOverflowAttr)
    overflow = opt_prop_def(OverflowAttr)
    needed = opt_prop_def(BitsAttr)
    result = result_def(AccumulatorType)
    traits = traits_def(Pure())

    @abstractmethod
    def output_sizes(self) -> tuple[int, ...]:
        """All sizes that the result must have. Raises VerifyException for operands that do not fit."""

    def verify_(self) -> None:
        """Shape and width follow from the operands; a verdict agrees with its width."""
        check_sizes(self.output_sizes(), sizes_of(self.result), "the result")
        bits = width(self.result)
        widest = max(width(operand) for operand in self.operands)
        if bits < widest:
            raise VerifyException(f"{bits}-bit accumulators of {widest}-bit mantissas")
        if (self.overflow is None) != (self.needed is None):
            raise VerifyException("overflow and needed are given together")
        if self.overflow is not None and self.needed is not None:
            fits = self.needed.data <= bits
            if fits != (self.overflow.data is Overflow.IMPOSSIBLE):
                raise VerifyException(
                    f"overflow = {self.overflow.data}, but {self.needed.data} of {bits} bits are needed"
                )


class FeatureMapOp(AccumulateOp, ABC):
    """Accumulators of a feature map."""

    @abstractmethod
    def output_shape(self) -> Shape:
        """The (C, H, W) that the result must have. Raises VerifyException for operands that do not fit."""

    def output_sizes(self) -> tuple[int, ...]:
        """The shape behind the batch."""
        return (DYNAMIC_INDEX, *self.output_shape())


class UnaryAccumulateOp(FeatureMapOp, ABC):
    """One feature map in."""

    input = operand_def(FixedTensorType)

    def output_shape(self) -> Shape:
        """That of the input."""
        return map_shape(self.input)


class FilterOp(FeatureMapOp, ABC):
    """A feature map and filters (K, C / groups, R, S) in."""

    input = operand_def(FixedTensorType)
    weight = operand_def(FixedTensorType)


@irdl_op_definition
class Conv2dOp(Convolved, FilterOp):
    """The sum of products of a window and the filters, group by group.

    Over blocks, `positions` says how many exponents the window and the target block of a PE meet at most:
    `positions = [4 of 3x3, 9 of 6x6]` (JP7819764B2 fig. 5A).
    """

    name = "fx.conv2d"
    positions = opt_prop_def(PositionsAttr)

    def window(self) -> Window:
        """The window as it slides."""
        size, padding = map_shape(self.input)[1:], self.padding.data[:2]
        return Window(size, self.kernel.data, self.stride.data, padding, self.dilation.data)

    def verify_(self) -> None:
        """The exponents that windows meet are those of the input's blocks."""
        super().verify_()
        if self.positions is None:
            return
        assert isinstance(self.input.type, FixedTensorType)
        block = self.input.type.granularity.data.block or map_shape(self.input)[1:]
        for count, size in self.positions.data:
            expected = target_positions(self.window(), block, size)
            if count != expected:
                raise VerifyException(f"positions = {count} of {join_sizes(size)}, expected {expected}")

    def output_shape(self) -> Shape:
        """(K, H, W)."""
        shape, weight = map_shape(self.input), parameter_sizes(self.weight)
        channels = filter_shape(shape, weight, self.groups.data)
        check_shape(self.kernel.data, weight[2:], "the filters' window")
        windows = window_shape(shape, self.kernel.data, self.stride.data, self.padding.data, self.dilation.data)
        return (channels, *windows)


@irdl_op_definition
class LinearOp(FilterOp):
    """The sum of products of a vector and the filters (K, C, 1, 1)."""

    name = "fx.linear"

    def output_shape(self) -> Shape:
        """(K, 1, 1)."""
        shape, weight = map_shape(self.input), parameter_sizes(self.weight)
        check_shape((1, 1), shape[1:], "the height and width of the input")
        channels = filter_shape(shape, weight, 1)
        check_shape((1, 1), weight[2:], "the filters' window")
        return channels, 1, 1


class Averaging(Windowed, ABC):
    """Windows that are averaged by fixed-point reciprocals."""

    include_padding = opt_prop_def(UnitAttr)
    constants = prop_def(BitsAttr)
    reciprocals = prop_def(ReciprocalsAttr)

    def pooled(self, shape: Shape) -> Shape:
        """(C, H, W) of the averages over a map. Raises VerifyException for reciprocals of other divisors."""
        check_constant_bits(self.constants.data)
        result = pool_shape(shape, self.kernel.data, self.stride.data, self.padding.data)
        found = [divisor for divisor, _ in self.reciprocals.data[0]]
        expected = window_divisors(
            shape, self.kernel.data, self.stride.data, self.padding.data, self.include_padding is not None
        )
        if found != expected:
            raise VerifyException(f"reciprocals of {found}, but the windows divide by {expected}")
        return result


@irdl_op_definition
class AveragePoolOp(Averaging, UnaryAccumulateOp):
    """The sum of a window times a fixed-point reciprocal; a window at the border may have a divisor of its own.

    %0 = fx.avg_pool (%x) kernel = 3x3, constants = 8b, reciprocals = [1/9 = 228] * 2^-11, ... : !fx.acc<...>
    """

    name = "fx.avg_pool"

    def output_shape(self) -> Shape:
        """Fewer rows and columns, as many channels. The reciprocals are those of the divisors that occur."""
        return self.pooled(map_shape(self.input))


class MergeOp(FeatureMapOp, ABC):
    """Two or more feature maps in, aligned to one exponent."""

    inputs = var_operand_def(FixedTensorType)

    def input_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the operands. Raises VerifyException for fewer than two."""
        if len(self.inputs) < 2:
            raise VerifyException("expected two or more feature maps")
        return tuple(map_shape(value) for value in self.inputs)


@irdl_op_definition
class AddOp(MergeOp):
    """The sum of feature maps of one shape."""

    name = "fx.add"

    def output_shape(self) -> Shape:
        """That of all operands."""
        return same_shape(self.input_shapes())


@irdl_op_definition
class ConcatOp(MergeOp):
    """Feature maps one after the other by channel."""

    name = "fx.concat"

    def output_shape(self) -> Shape:
        """As many channels as all operands together."""
        return concat_shape(self.input_shapes())


@irdl_op_definition
class WidenOp(AccumulateOp):
    """The mantissas themselves as accumulators: for an activation that stands alone, and for a copy of a parameter."""

    name = "fx.widen"
    input = operand_def(FixedTensorType)

    def output_sizes(self) -> tuple[int, ...]:
        """Those of the input."""
        return sizes_of(self.input)


@irdl_op_definition
class SigmoidOp(UnaryAccumulateOp):
    """1 / (1 + e^-x) from a table; the result has 30 fraction bits."""

    name = "fx.sigmoid"


@irdl_op_definition
class SoftmaxOp(UnaryAccumulateOp):
    """Softmax over the channels of each pixel from a table; the result has 30 fraction bits."""

    name = "fx.softmax"


ACCUMULATE_OPS = [Conv2dOp, LinearOp, AveragePoolOp, AddOp, ConcatOp, WidenOp, SigmoidOp, SoftmaxOp]

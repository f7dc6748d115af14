"""The types of the fx dialect: fixed-point tensors with their exponents' granularity, and accumulators.

!fx.tensor<?x16x28x28, 8b, exp = tensor>        a feature map: 8-bit mantissas, one exponent
!fx.tensor<?x16x28x28, 8b, exp = block<4x4>>    one exponent a 4x4 block of an image
!fx.tensor<6x1x5x5, 8b, exp = tensor>           filters
!fx.acc<?x16x28x28, 40b>                        accumulators; their exponent follows from the operands'
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, IntAttr
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.attributes import parse_bits
from binpoint.dialect.policies import GranularityAttr
from binpoint.dialect.shapes import Shape, check_elements
from binpoint.support.numeric import Granularity

MANTISSA_BITS = (2, 32)
ACCUMULATOR_BITS = (2, 64)
"""The widths that types may have, both ends included; a backend may accept fewer."""


class FixedPointType(ParametrizedAttribute, TypeAttribute, ABC):
    """What both types share: sizes and a width in bits."""

    shape: ArrayAttr[IntAttr]
    bits: IntAttr

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes; the batch is DYNAMIC_INDEX."""
        return tuple(size.data for size in self.shape.data)

    def _verify_sizes(self, bits: tuple[int, int]) -> None:
        sizes = self.sizes
        static = sizes[1:] if sizes and sizes[0] == DYNAMIC_INDEX else sizes
        if not static or min(static) < 1:
            raise VerifyException("sizes are at least 1; only the batch, the first of four, may be ?")
        if len(static) < len(sizes) != 4:
            raise VerifyException("a feature map has 4 dimensions: ?xCxHxW")
        check_elements(static)
        if not bits[0] <= self.bits.data <= bits[1]:
            raise VerifyException(f"a width of {self.bits.data} bits, expected {bits[0]} to {bits[1]}")


def _parse_shape(parser: AttrParser) -> ArrayAttr[IntAttr]:
    return ArrayAttr(IntAttr(size) for size in parser.parse_dimension_list())


def _shape(sizes: Sequence[int]) -> ArrayAttr[IntAttr]:
    return ArrayAttr(IntAttr(size) for size in sizes)


@irdl_attr_definition
class FixedTensorType(FixedPointType):
    """`!fx.tensor<?x16x28x28, 8b, exp = tensor>`: mantissas of one width, exponents of one granularity."""

    name = "fx.tensor"
    shape: ArrayAttr[IntAttr]
    bits: IntAttr
    granularity: GranularityAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Read everything after the type's name."""
        with parser.in_angle_brackets():
            shape = _parse_shape(parser)
            parser.parse_punctuation(",")
            bits = parse_bits(parser)
            parser.parse_punctuation(",")
            parser.parse_keyword("exp")
            parser.parse_punctuation("=")
            granularity = GranularityAttr.parse_value(parser)
        return [shape, IntAttr(bits), GranularityAttr(granularity)]

    def print_parameters(self, printer: Printer) -> None:
        """Write everything after the type's name."""
        with printer.in_angle_brackets():
            printer.print_dimension_list(self.sizes)
            printer.print_string(f", {self.bits.data}b, exp = ")
            self.granularity.print_value(printer)

    def verify(self) -> None:
        """Sizes and width are in range."""
        self._verify_sizes(MANTISSA_BITS)


@irdl_attr_definition
class AccumulatorType(FixedPointType):
    """`!fx.acc<?x16x28x28, 40b>`: sums of one width before they are quantised."""

    name = "fx.acc"
    shape: ArrayAttr[IntAttr]
    bits: IntAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Read everything after the type's name."""
        with parser.in_angle_brackets():
            shape = _parse_shape(parser)
            parser.parse_punctuation(",")
            bits = parse_bits(parser)
        return [shape, IntAttr(bits)]

    def print_parameters(self, printer: Printer) -> None:
        """Write everything after the type's name."""
        with printer.in_angle_brackets():
            printer.print_dimension_list(self.sizes)
            printer.print_string(f", {self.bits.data}b")

    def verify(self) -> None:
        """Sizes and width are in range."""
        self._verify_sizes(ACCUMULATOR_BITS)


def fixed_feature_map(shape: Shape, bits: int, granularity: Granularity) -> FixedTensorType:
    """The type of a feature map of `bits`-bit mantissas."""
    return FixedTensorType(_shape((DYNAMIC_INDEX, *shape)), IntAttr(bits), GranularityAttr(granularity))


def fixed_parameter(shape: Sequence[int], bits: int, granularity: Granularity) -> FixedTensorType:
    """The type of a parameter of `bits`-bit mantissas."""
    return FixedTensorType(_shape(shape), IntAttr(bits), GranularityAttr(granularity))


def accumulator(shape: Shape, bits: int) -> AccumulatorType:
    """The type of the accumulators of a feature map."""
    return AccumulatorType(_shape((DYNAMIC_INDEX, *shape)), IntAttr(bits))


def parameter_accumulator(sizes: Sequence[int], bits: int) -> AccumulatorType:
    """The type of the accumulators of a parameter's gradient or update, or of sums over images."""
    return AccumulatorType(_shape(sizes), IntAttr(bits))


def sizes_of(value: SSAValue) -> tuple[int, ...]:
    """All sizes of a feature map, parameter or accumulators; the batch is DYNAMIC_INDEX."""
    if not isinstance(value.type, FixedPointType):
        raise VerifyException(f"{value.type} is no fixed-point type")
    return value.type.sizes


def check_sizes(expected: Sequence[int], found: Sequence[int], what: str) -> None:
    """Raise VerifyException unless all sizes are equal. The batch of two feature maps is not mentioned."""
    if tuple(expected) == tuple(found):
        return
    if expected[0] == found[0] == DYNAMIC_INDEX:
        expected, found = expected[1:], found[1:]
    raise VerifyException(f"{what} is {_text(found)}, expected {_text(expected)}")


def _text(sizes: Sequence[int]) -> str:
    return "x".join("?" if size == DYNAMIC_INDEX else str(size) for size in sizes)


def is_feature_map(value: SSAValue) -> bool:
    """Whether a value has a batch: a feature map or its accumulators."""
    return sizes_of(value)[0] == DYNAMIC_INDEX


def map_shape(value: SSAValue) -> Shape:
    """(C, H, W) of a feature map or of its accumulators. Raises VerifyException for any other type."""
    sizes = value.type.sizes if isinstance(value.type, FixedPointType) else ()
    if len(sizes) != 4 or sizes[0] != DYNAMIC_INDEX:
        raise VerifyException(f"{value.type} is no feature map: expected ?xCxHxW")
    return sizes[1], sizes[2], sizes[3]


def parameter_sizes(value: SSAValue) -> tuple[int, ...]:
    """The sizes of a parameter or of its accumulators. Raises VerifyException for any other type."""
    sizes = value.type.sizes if isinstance(value.type, FixedPointType) else ()
    if not sizes or sizes[0] == DYNAMIC_INDEX:
        raise VerifyException(f"{value.type} is no parameter: expected static sizes")
    return sizes


def width(value: SSAValue) -> int:
    """The width in bits of a tensor's mantissas or of an accumulator."""
    if not isinstance(value.type, FixedPointType):
        raise VerifyException(f"{value.type} is no fixed-point type")
    return value.type.bits.data

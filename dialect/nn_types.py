"""The types of the nn dialect: builtin tensors of f32."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DYNAMIC_INDEX, Float32Type, TensorType, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.shapes import Shape, check_elements


def feature_map_type(shape: Shape) -> TensorType[Float32Type]:
    """`tensor<?xCxHxWxf32>`."""
    return TensorType(f32, (DYNAMIC_INDEX, *shape))


def parameter_type(shape: Sequence[int]) -> TensorType[Float32Type]:
    """A static tensor of f32."""
    return TensorType(f32, shape)


def feature_map_shape(value: SSAValue) -> Shape:
    """(C, H, W) of a feature map. Raises VerifyException for any other type."""
    shape = _shape(value.type)
    if len(shape) != 4 or shape[0] != DYNAMIC_INDEX or min(shape[1:]) < 1:
        raise VerifyException(f"{value.type} is no feature map: expected tensor<?xCxHxWxf32>")
    check_elements(shape[1:])
    return shape[1], shape[2], shape[3]


def parameter_shape(value: SSAValue) -> tuple[int, ...]:
    """The shape of a parameter. Raises VerifyException for any other type."""
    shape = _shape(value.type)
    if not shape or min(shape) < 1:
        raise VerifyException(f"{value.type} is no parameter: expected static sizes")
    check_elements(shape)
    return shape


def _shape(type_: Attribute) -> tuple[int, ...]:
    if not isinstance(type_, TensorType) or type_.element_type != f32:
        raise VerifyException(f"{type_} is no tensor of f32")
    return type_.get_shape()

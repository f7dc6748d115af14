"""Expressions of the code over blocks: vectors of channels whose shifts differ from lane to lane."""

from __future__ import annotations

from tvm import tirx

from binpoint.backends.tensor_expression.arithmetic import Expression, clamp, constant, dtype_of, element_type, sign
from binpoint.support.numeric import Rounding


def vector(element: str, lanes: int) -> str:
    """The dtype of so many elements; one is a scalar."""
    return element if lanes == 1 else f"{element}x{lanes}"


def extent(size: int, block: int, index: Expression) -> Expression | int:
    """The length of block `index` of an axis that is cut into blocks: the last one may be shorter."""
    return block if size % block == 0 else tirx.min(tirx.const(block, "int64"), size - index * block)


def any_lane(condition: Expression) -> Expression:
    """Whether a condition holds on some lane."""
    if dtype_of(condition).lanes == 1:
        return condition
    return tirx.call_llvm_pure_intrin("bool", "llvm.vector.reduce.or", condition)


def lane_sum(value: Expression) -> Expression:
    """The sum of all lanes."""
    return _reduced(value, "add")


def lane_maximum(value: Expression) -> Expression:
    """The greatest lane."""
    return _reduced(value, "smax")


def _reduced(value: Expression, how: str) -> Expression:
    if dtype_of(value).lanes == 1:
        return value
    return tirx.call_llvm_pure_intrin(element_type(value), f"llvm.vector.reduce.{how}", value)


def outside(value: Expression, low: Expression, high: Expression) -> Expression:
    """1 where a value is below `low` or above `high`."""
    dtype = str(dtype_of(value))
    # Never both: the sum of the flags is their union, and needs no condition of its own.
    return (value < low).astype(dtype) + (value > high).astype(dtype)


def lift(value: Expression, low: Expression, high: Expression, shift: Expression) -> Expression:
    """value * 2^shift; what is past `low` or `high`, and saturates at every candidate, stops just behind it."""
    one = constant(1, value)
    return clamp(value, low - one, high + one) << shift


def shift_right(value: Expression, shift: Expression, rounding: Rounding) -> Expression:
    """value / 2^shift on each lane, rounded, for narrow values and 1 <= shift < the container's width."""
    if rounding is Rounding.FLOOR:
        return value >> shift
    one = constant(1, value)
    half = one << (shift - one)
    match rounding:
        case Rounding.HALF_UP:
            return (value + half) >> shift
        case Rounding.HALF_EVEN:
            return (value + (half - one) + ((value >> shift) & one)) >> shift
        case Rounding.HALF_AWAY:
            return (value + half + sign(value)) >> shift
    raise ValueError(f"{rounding} rounding needs random numbers")

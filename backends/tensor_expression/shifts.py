"""Shifts of any size as a few integers that code reads: computed on the host, so that code has no branches.

Names and values come in one order. Shifts are clamped here to what the container allows, so that nothing overflows for
exponents of any size.
"""

from __future__ import annotations

from binpoint.backends.oracle.fixed_point import deterministic, mantissa_range
from binpoint.backends.tensor_expression.plan import Container
from binpoint.support.numeric import Rounding

FAR_SHIFT = 32
"""Right shifts past this work on a value that was halved HALVINGS times (see `wide.fold`)."""

HALVINGS = 31

LARGEST_SHIFT = 255
"""Stochastic rounding treats all right shifts from 160 on alike: what is dropped is all sign."""


def alignment_names(prefix: str, rounding: Rounding) -> tuple[str, ...]:
    """What `arithmetic.align` reads."""
    return tuple(f"{prefix}{name}" for name in ("left_shift", *_right_names(deterministic(rounding))))


def alignment_values(left: int, rounding: Rounding, container: Container) -> tuple[int, ...]:
    """For a left shift of an operand; negative to the right."""
    return max(left, 0), *_right_values(max(-left, 0), deterministic(rounding), container)


def output_names(prefix: str, rounding: Rounding) -> tuple[str, ...]:
    """What `arithmetic.round_to_output` reads, and for stochastic rounding `stochastic.rounds_up`."""
    names = ["low", "high", "left_shift", *_right_names(rounding)]
    if rounding is Rounding.STOCHASTIC:
        names.append("shift")
    return tuple(f"{prefix}{name}" for name in names)


def output_values(shift: int, bits: int, rounding: Rounding, container: Container) -> tuple[int, ...]:
    """For a right shift to an output of `bits` bits; negative to the left."""
    low, high, left = *mantissa_range(container.bits), 0
    if shift < 0:
        # Shifting out all bits but the sign saturates every value except 0.
        left = min(-shift, bits)
        least, greatest = mantissa_range(bits)
        low, high = (least >> left) - 1, (greatest >> left) + 1
    right = max(shift, 0)
    if container is Container.WIDE and shift > FAR_SHIFT:
        right -= HALVINGS
    values = low, high, left, *_right_values(right, rounding, container)
    return (*values, min(max(shift, -1), LARGEST_SHIFT)) if rounding is Rounding.STOCHASTIC else values


def _right_names(rounding: Rounding) -> tuple[str, ...]:
    match rounding:
        case Rounding.HALF_EVEN | Rounding.HALF_AWAY:
            return "right_shift", "offset", "correction"
        case Rounding.HALF_UP:
            return "right_shift", "offset"
        case Rounding.FLOOR | Rounding.STOCHASTIC:
            return ("right_shift",)


def _right_values(shift: int, rounding: Rounding, container: Container) -> tuple[int, ...]:
    """What `arithmetic.shift_right` reads, for shift >= 0.

    Narrow values become the same (0, or -1 by floor) for each shift past the container's narrow width.
    """
    shift = min(shift, container.narrow_bits + 1)
    half, any_shift = (1 << shift) >> 1, int(shift > 0)
    match rounding:
        case Rounding.HALF_EVEN:
            return shift, half - any_shift, any_shift
        case Rounding.HALF_AWAY:
            return shift, half, -any_shift
        case Rounding.HALF_UP:
            return shift, half
        case Rounding.FLOOR | Rounding.STOCHASTIC:
            return (shift,)

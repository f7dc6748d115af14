"""The exponent at which terms meet before they are added, and the way there."""

from __future__ import annotations

from collections.abc import Sequence

from binpoint.backends.kernel import Accumulator
from binpoint.backends.oracle.exact import Integers, add
from binpoint.backends.oracle.fixed_point import align
from binpoint.support.numeric import Rounding


def meeting_exponent(terms: Sequence[tuple[int, int]], accumulator_bits: int) -> int:
    """The exponent at which terms, each (exponent, bits), meet in an accumulator that their sum must not overflow.

    The finest of them, unless that would push the term that reaches highest out of the accumulator: room is kept for
    as many terms as there are and for one bit of rounding.
    """
    carry_bits = (len(terms) - 1).bit_length()  # ceil(log2(number of terms))
    highest = max(exponent + bits for exponent, bits in terms)
    finest = min(exponent for exponent, _ in terms)
    return max(finest, highest + carry_bits + 1 - accumulator_bits)


def alignment_exponent(exponents: Sequence[int], bits: int, accumulator: Accumulator) -> int:
    """The exponent at which operands of an add or concat meet, the widest of which has `bits` bits."""
    return meeting_exponent([(exponent, bits) for exponent in exponents], accumulator.bits)


def aligned(operands: Sequence[Integers], exponents: Sequence[int], target: int, rounding: Rounding) -> list[Integers]:
    """Each operand, mantissas at its own exponent, at 2^target."""
    return [align(operand, exponent, target, rounding) for operand, exponent in zip(operands, exponents, strict=True)]


def total(operands: Sequence[Integers]) -> Integers:
    """The exact sum of operands at one exponent."""
    result = operands[0]
    for operand in operands[1:]:
        result = add(result, operand)
    return result

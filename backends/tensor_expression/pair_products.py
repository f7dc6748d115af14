"""Sums of products by AVX2's `vpmaddwd`: on 8 lanes at once, two products of int16 each, and their sum.

Where int32 does not hold a sum of such pairs it is split, which costs two more instructions a step: with p the sum of
two products, low = sum(p) mod 2^32 and high = sum(p >> 16), so that low - high * 2^16 is the sum of the lower halves,
below 2^32, and the exact sum has 48 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx

from binpoint.backends.tensor_expression.arithmetic import Expression, cast, constant
from binpoint.backends.tensor_expression.convolution_tiling import LANES


def multiply_add(word: Expression, vector: Expression) -> Expression:
    """x0 * w0 + x1 * w1 on each of 8 lanes, with (x0, x1) one word for all lanes and (w0, w1) a pair of each lane.

    It wraps only where all four are -32768.
    """
    pairs = tirx.reinterpret(f"int16x{2 * LANES}", tirx.Broadcast(word, LANES))
    return tirx.call_llvm_pure_intrin(f"int32x{LANES}", "llvm.x86.avx2.pmadd.wd", pairs, vector)


def split_sum(
    shape: Sequence[Expression], products: Callable[..., Expression], axes: Sequence[Expression], name: str
) -> tuple[Expression, Expression]:
    """(low, high) of the sums of products in int32."""

    def halves(*at: Expression) -> Expression:
        exact = products(*at)
        return sum_pairs((exact, exact >> constant(16, exact)), axis=axes)

    sum_pairs = te.comm_reducer(
        lambda left, right: (modulo("add", left[0], right[0]), left[1] + right[1]),
        lambda low, high: (tirx.const(0, low), tirx.const(0, high)),
        name="sum_pairs",
    )
    low, high = te.compute(shape, halves, name=name)
    return low, high


def join(low: Expression, high: Expression) -> Expression:
    """The exact sum in int64 from its two parts."""
    upper = cast(high, "int64")
    lower = modulo("sub", low, high << constant(16, high))
    return (upper << constant(16, upper)) + cast(tirx.reinterpret(f"uint32x{LANES}", lower), "int64")


def modulo(operation: str, left: Expression, right: Expression) -> Expression:
    """`add`, `sub` or `mul` of int32 modulo 2^32.

    TVM tells LLVM that its own operators never leave their range, signed or unsigned; the predicated form, with all
    lanes on, makes no such promise and becomes the same instruction.
    """
    all_lanes = tirx.Broadcast(tirx.const(1, "bool"), LANES)
    return tirx.call_llvm_pure_intrin(
        f"int32x{LANES}", f"llvm.vp.{operation}", left, right, all_lanes, tirx.const(LANES, "uint32")
    )


def modulo_sum(value: Expression, axes: Sequence[Expression]) -> Expression:
    """The sum of int32 vectors over reduction axes, modulo 2^32."""
    total = te.comm_reducer(
        lambda left, right: modulo("add", left, right), lambda dtype: tirx.const(0, dtype), name="modulo_sum"
    )
    return total(value, axis=axes)

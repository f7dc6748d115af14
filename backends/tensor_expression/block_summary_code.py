"""What the host wants to know of a map that was quantised block by block, in one pass over events and exponents."""

from typing import Any

from tvm import IRModule
from tvm.script import tirx as T  # noqa: N812 (TVMScript's name)


def build() -> Any:
    """The module; `main` takes flat arrays of events and exponents.

    It writes [saturated, underflowed, finest, coarsest]: sums, the least and the greatest exponent.
    """

    @T.prim_func(s_tir=True)
    def main(
        saturated_argument: T.handle,
        underflowed_argument: T.handle,
        exponents_argument: T.handle,
        summary_argument: T.handle,
    ):
        T.func_attr({"tirx.noalias": True})
        events, blocks = T.int64(), T.int64()
        saturated = T.match_buffer(saturated_argument, (events,), "int32")
        underflowed = T.match_buffer(underflowed_argument, (events,), "int32")
        exponents = T.match_buffer(exponents_argument, (blocks,), "int32")
        summary = T.match_buffer(summary_argument, (4,), "int64")
        sums = T.alloc_local((2,), "int64")
        ends = T.alloc_local((2,), "int32")
        sums[0] = T.int64(0)
        sums[1] = T.int64(0)
        for i in range(events):
            sums[0] = sums[0] + T.Cast("int64", saturated[i])
            sums[1] = sums[1] + T.Cast("int64", underflowed[i])
        ends[0] = exponents[0]
        ends[1] = exponents[0]
        for i in range(blocks):
            ends[0] = T.min(ends[0], exponents[i])
            ends[1] = T.max(ends[1], exponents[i])
        summary[0] = sums[0]
        summary[1] = sums[1]
        summary[2] = T.Cast("int64", ends[0])
        summary[3] = T.Cast("int64", ends[1])

    return IRModule({"main": main})

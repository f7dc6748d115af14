"""The statistics circuit as code: histograms of bit positions over the sampled (image, channel) pairs of a layer.

It walks the values that a layer's kernel left before quantisation. Each task fills a histogram of its own, which the
host adds, so counts do not depend on the number of threads. Row 0 of a histogram is the msb, row 1 the lsb; bin 0
counts values without a position (0 and -1), bin p + 1 position p.
"""

# TVMScript reads the functions below, so they follow its grammar: names are assigned once, sizes are declared.
# `clz` of 0 is undefined. Differing bits never reach the sign bit, so there is room to append a 1: with it the position
# plus one comes out, and 0 where nothing differs.

from typing import Any

from tvm import IRModule
from tvm.script import tirx as T  # noqa: N812 (TVMScript's name)

from binpoint.backends.tensor_expression.plan import Container, Form
from binpoint.backends.tensor_expression.statistics import BANKS, BINS


def build(container: Container, form: Form, leading_zeros: Any = T.clz) -> Any:
    """The module: `main` takes values, (P, 2) pairs (image, channel) and (tasks, BANKS, 2, bins) histograms.

    Values are [N, C blocks, H, W, block], two tensors (high, low) where the container is WIDE. All sizes are
    symbolic: one kernel serves all layers. Tasks run in parallel for a layer, one after the other for a tile.
    `leading_zeros` counts the zeros above the highest bit of a nonzero int32 or int64.
    """
    tasks = T.parallel if form is Form.LAYER else T.serial
    if container is Container.WIDE:
        return IRModule({"main": _wide(BINS[container], tasks, leading_zeros)})
    return IRModule({"main": _narrow(container.dtype, BINS[container], tasks, leading_zeros)})


def _narrow(dtype: str, bins: int, each_task: Any, leading_zeros: Any) -> Any:
    # Positions are found in 64 bits: LLVM would count zeros of 32 bits in vectors, which AVX2 has no instruction for.
    @T.prim_func(s_tir=True)
    def main(values_argument: T.handle, pairs_argument: T.handle, histograms_argument: T.handle):
        T.func_attr({"tirx.noalias": True})
        batch, blocks, height, width, block = T.int64(), T.int64(), T.int64(), T.int64(), T.int64()
        count, tasks = T.int64(), T.int64()
        values = T.match_buffer(values_argument, (batch, blocks, height, width, block), dtype)
        pairs = T.match_buffer(pairs_argument, (count, T.int64(2)), "int32")
        histograms = T.match_buffer(histograms_argument, (tasks, T.int64(BANKS), T.int64(2), T.int64(bins)), "int64")
        for task in each_task(tasks):
            for bank, kind, position in T.grid(BANKS, 2, bins):
                histograms[task, bank, kind, position] = T.int64(0)
            for index in range((task + 1) * count // tasks - task * count // tasks):
                for h, w in T.grid(height, width):
                    n = T.Cast("int64", pairs[task * count // tasks + index, 0])
                    c = T.Cast("int64", pairs[task * count // tasks + index, 1])
                    value = T.Cast("int64", values[n, c // block, h, w, c % block])
                    differing = value ^ (value >> T.int64(63))
                    lowest = differing & (T.int64(0) - differing)
                    msb = 63 - T.Cast("int32", leading_zeros((differing << T.int64(1)) | T.int64(1)))
                    lsb = 63 - T.Cast("int32", leading_zeros((lowest << T.int64(1)) | T.int64(1)))
                    histograms[task, w % BANKS, 0, msb] = histograms[task, w % BANKS, 0, msb] + T.int64(1)
                    histograms[task, w % BANKS, 1, lsb] = histograms[task, w % BANKS, 1, lsb] + T.int64(1)

    return main


def _wide(bins: int, each_task: Any, leading_zeros: Any) -> Any:
    @T.prim_func(s_tir=True)
    def main(high_argument: T.handle, low_argument: T.handle, pairs_argument: T.handle, histograms_argument: T.handle):
        T.func_attr({"tirx.noalias": True})
        batch, blocks, height, width, block = T.int64(), T.int64(), T.int64(), T.int64(), T.int64()
        count, tasks = T.int64(), T.int64()
        high = T.match_buffer(high_argument, (batch, blocks, height, width, block), "int64")
        low = T.match_buffer(low_argument, (batch, blocks, height, width, block), "int64")
        pairs = T.match_buffer(pairs_argument, (count, T.int64(2)), "int32")
        histograms = T.match_buffer(histograms_argument, (tasks, T.int64(BANKS), T.int64(2), T.int64(bins)), "int64")
        for task in each_task(tasks):
            for bank, kind, position in T.grid(BANKS, 2, bins):
                histograms[task, bank, kind, position] = T.int64(0)
            for index in range((task + 1) * count // tasks - task * count // tasks):
                for h, w in T.grid(height, width):
                    n = T.Cast("int64", pairs[task * count // tasks + index, 0])
                    c = T.Cast("int64", pairs[task * count // tasks + index, 1])
                    sign = high[n, c // block, h, w, c % block] >> T.int64(63)
                    upper = high[n, c // block, h, w, c % block] ^ sign
                    lower = low[n, c // block, h, w, c % block] ^ (sign & T.int64(0xFFFFFFFF))
                    upper_msb = 63 - T.Cast("int32", leading_zeros((upper << 1) | T.int64(1)))
                    lower_msb = 63 - T.Cast("int32", leading_zeros((lower << 1) | T.int64(1)))
                    upper_lsb = 63 - T.Cast("int32", leading_zeros(((upper & (T.int64(0) - upper)) << 1) | T.int64(1)))
                    lower_lsb = 63 - T.Cast("int32", leading_zeros(((lower & (T.int64(0) - lower)) << 1) | T.int64(1)))
                    msb = T.Select(upper_msb > 0, upper_msb + 32, lower_msb)
                    lsb = T.Select(T.Or(lower_lsb > 0, upper_lsb == 0), lower_lsb, upper_lsb + 32)
                    histograms[task, w % BANKS, 0, msb] = histograms[task, w % BANKS, 0, msb] + T.int64(1)
                    histograms[task, w % BANKS, 1, lsb] = histograms[task, w % BANKS, 1, lsb] + T.int64(1)

    return main

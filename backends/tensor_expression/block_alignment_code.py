"""Brings the mantissas of all blocks of a feature map to one exponent, as code: mantissa << (exponent - target)."""

from typing import Any

from tvm import IRModule, tirx
from tvm.script import tirx as T  # noqa: N812 (TVMScript's name)

from binpoint.backends.blocks import block_size, grid_shape
from binpoint.backends.kernel import TensorSpec
from binpoint.backends.tensor_expression.arithmetic import Expression, cast, constant
from binpoint.backends.tensor_expression.block_alignment import ALIGNED
from binpoint.backends.tensor_expression.block_arithmetic import extent, vector
from binpoint.backends.tensor_expression.block_plan import channel_vectors, vector_lanes
from binpoint.backends.tensor_expression.layout import feature_map_layout, storage_dtype

FACTOR, GREATEST, COMPLEMENT = range(3)
"""The variables of a task: vectors."""

VARIABLES = 3


def build(tensor: TensorSpec) -> Any:
    """The module; `main` takes mantissas [N, C blocks, H, W, vectors of a block], exponents, result, ranges, target.

    Exponents lie channels last, as in `block_code`; none is below the target, and the results fit their dtype. Each
    task, a row of blocks of a vector of channels, leaves the greatest of its results and 0, and of their complements,
    -1 minus the least: [tasks, 2].
    """
    layout, lanes, vectors = feature_map_layout(tensor), vector_lanes(tensor), channel_vectors(tensor)
    inner = layout.block // lanes
    shape = layout.blocks(tensor.channels), tensor.height, tensor.width, inner
    block, (_, rows, columns) = block_size(tensor), grid_shape(tensor)
    shared = not tensor.granularity.per_channel
    exponents_a_block = 1 if shared else vectors
    exponent = vector("int32", 1 if shared else lanes)
    stored, aligned = vector(storage_dtype(tensor.bits), lanes), vector(ALIGNED, lanes)
    zero = tirx.const(0, ALIGNED) if lanes == 1 else tirx.Broadcast(tirx.const(0, ALIGNED), lanes)

    def factor(exponent: Expression, target: Expression) -> Expression:
        """2^shift on all lanes: there is no instruction that shifts lanes of 16 bits by different amounts."""
        whole = target if shared or lanes == 1 else tirx.Broadcast(target, lanes)
        power = cast(constant(1, exponent) << (exponent - whole), ALIGNED)
        return tirx.Broadcast(power, lanes) if shared and lanes > 1 else power

    @T.prim_func(s_tir=True)
    def main(
        mantissas_argument: T.handle,
        exponents_argument: T.handle,
        result_argument: T.handle,
        ranges_argument: T.handle,
        target: T.int32,
    ):
        T.func_attr({"tirx.noalias": True})
        batch = T.int64()
        mantissas = T.match_buffer(mantissas_argument, (batch, *shape), stored)
        exponents = T.match_buffer(exponents_argument, (batch, rows, columns, exponents_a_block), exponent)
        result = T.match_buffer(result_argument, (batch, *shape), aligned)
        ranges = T.match_buffer(ranges_argument, (batch * vectors * rows, 2, 1), aligned)
        for task in T.parallel(batch * vectors * rows):
            n = task // (vectors * rows)
            v = task // rows % vectors
            row = task % rows
            state = T.alloc_local((VARIABLES,), aligned)
            state[GREATEST] = zero
            state[COMPLEMENT] = constant(-1, zero)
            for column in range(columns):
                state[FACTOR] = factor(exponents[n, row, column, v % exponents_a_block], target)
                for i, j in T.grid(extent(tensor.height, block[0], row), extent(tensor.width, block[1], column)):
                    h = row * block[0] + i
                    w = column * block[1] + j
                    value = cast(mantissas[n, v // inner, h, w, v % inner], ALIGNED) * state[FACTOR]
                    state[GREATEST] = T.max(state[GREATEST], value)
                    state[COMPLEMENT] = T.max(state[COMPLEMENT], value ^ constant(-1, value))
                    result[n, v // inner, h, w, v % inner] = value
            ranges[task, 0, 0] = state[GREATEST]
            ranges[task, 1, 0] = state[COMPLEMENT]

    return IRModule({"main": main})

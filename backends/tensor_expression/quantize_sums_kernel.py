"""From the sums of a parameter's gradient to its mantissas, as code: the accumulator's width, statistics, rounding.

The code does not know the parameter: sums come as rows of 16 vectors of 8, whatever they stand for. Only stochastic
rounding asks which element of the parameter one is, and gets the layout's sizes as scalars.
"""

from __future__ import annotations

from typing import Any

from tvm import IRModule, s_tir, te, tirx

from binpoint.backends.tensor_expression.arithmetic import Expression, Scalars
from binpoint.backends.tensor_expression.definition import scalar_variables
from binpoint.backends.tensor_expression.epilogue import finish
from binpoint.backends.tensor_expression.generic import schedule_layer
from binpoint.backends.tensor_expression.parameter_layout import ROW_VECTORS, VECTOR
from binpoint.backends.tensor_expression.plan import KernelPlan
from binpoint.backends.tensor_expression.tensors import INDEX, Part, sizes

SIZES = ("block_vectors", "taps", "stored_channels", "channels")
"""The scalars of stochastic rounding: vectors of a block, R * S, C rounded up, C."""


def build(plan: KernelPlan) -> Any:
    """The scheduled IRModule of a plan whose spec has no operation.

    `main` takes the sums, of the dtype `plan.reduction`, then as a layer does the output, the counts, the values and
    the scalars, then SIZES where the plan is stochastic.
    """
    scalars = scalar_variables(plan)
    sizes_of_layout = {name: tirx.Var(name, INDEX) for name in SIZES} if plan.stochastic else {}
    shape = sizes((tirx.Var("rows", INDEX), 1, 1, ROW_VECTORS, VECTOR))
    sums = te.placeholder(shape, plan.reduction, name="sums")
    zero = tirx.const(0, INDEX)
    part = Part(shape, lambda *_: (zero, zero, zero, zero), _elements(sizes_of_layout), zero, 1, False)
    # A stage of its own, as in other kernels: every later one then reads what its row has computed.
    total = te.compute(shape, lambda *index: sums(*index), name="total")
    stages = finish(plan, part, total, None, scalars)
    outputs = [stages.output, *stages.counts, *(stages.values if plan.values else ())]
    arguments = [sums, *outputs, *scalars.values(), *sizes_of_layout.values()]
    return schedule_layer(s_tir.Schedule(IRModule({"main": te.create_prim_func(arguments)})), lanewise=True)


def _elements(layout: Scalars) -> Any:
    """The number of an element within the parameter (K, C, R, S)."""

    def element(row: Expression, _b: Expression, _h: Expression, index: Expression, lane: Expression) -> Expression:
        vector = row * ROW_VECTORS + index
        within = vector % layout["block_vectors"]
        tap = vector // layout["block_vectors"] % layout["taps"]
        rest = vector // (layout["block_vectors"] * layout["taps"])
        c, block = rest % layout["stored_channels"], rest // layout["stored_channels"]
        k = (block * layout["block_vectors"] + within) * VECTOR + lane
        return (k * layout["channels"] + c) * layout["taps"] + tap

    return element

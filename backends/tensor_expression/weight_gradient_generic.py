"""The portable weight gradient: sums in their layout, without intrinsics."""

from __future__ import annotations

from typing import Any

from tvm import IRModule, s_tir, te, tirx

from binpoint.backends.kernel import Convolution, TensorSpec
from binpoint.backends.tensor_expression.arithmetic import Expression
from binpoint.backends.tensor_expression.gradient_operations import weight_gradient
from binpoint.backends.tensor_expression.layout import feature_map_layout, storage_dtype
from binpoint.backends.tensor_expression.parameter_layout import ParameterLayout
from binpoint.backends.tensor_expression.tensors import INDEX, Source, sizes


def build(
    convolution: Convolution, images: TensorSpec, gradient: TensorSpec, layout: ParameterLayout, reduction: str
) -> Any:
    """The scheduled IRModule; `main` takes x, dy and the sums, all as scalars."""
    batch = tirx.Var("N", INDEX)
    sources = _source("images", images, batch), _source("gradient", gradient, batch)
    products = weight_gradient(convolution, *sources, reduction)

    def body(k: Expression, c: Expression, r: Expression, s: Expression, lane: Expression) -> Expression:
        return products(k * layout.block + lane, c, r, s)

    sums = te.compute(sizes(layout.shape), body, name="sums")
    sch = s_tir.Schedule(IRModule({"main": te.create_prim_func([*(each.tensor for each in sources), sums])}))
    block = sch.get_sblock("sums")
    k, c, r, s, lane, *reduction_loops = sch.get_loops(block)
    sch.reorder(k, c, r, s, *reduction_loops, lane)
    sch.parallel(sch.fuse(k, c))
    sch.vectorize(lane)
    sch.vectorize(sch.get_loops(sch.decompose_reduction(block, reduction_loops[0]))[-1])
    return sch.mod


def _source(name: str, spec: TensorSpec, batch: Expression) -> Source:
    layout = feature_map_layout(spec)
    return Source(te.placeholder(sizes(layout.shape(spec, batch)), storage_dtype(spec.bits), name), layout, spec)

"""Channel sums as code: for each image and channel the sums of some products over all pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import IRModule, s_tir, te, tirx

from binpoint.backends.kernel import TensorSpec
from binpoint.backends.tensor_expression.arithmetic import Expression, cast
from binpoint.backends.tensor_expression.layout import feature_map_layout, storage_dtype
from binpoint.backends.tensor_expression.tensors import INDEX, reduce_axis, sizes


def build(inputs: tuple[TensorSpec, ...], terms: tuple[tuple[int, ...], ...], dtype: str) -> Any:
    """The scheduled IRModule; `main` takes the inputs and for each term [N, C blocks, block] sums of a dtype.

    A task is a channel block of an image: it reads every pixel once for all terms.
    """
    batch, spec = tirx.Var("N", INDEX), inputs[0]
    layout = feature_map_layout(spec)
    shape = sizes(layout.shape(spec, batch))
    sources = [te.placeholder(shape, storage_dtype(each.bits), f"input{i}") for i, each in enumerate(inputs)]
    h, w = reduce_axis(spec.height, "h"), reduce_axis(spec.width, "w")

    def factor(index: int, at: Sequence[Expression]) -> Expression:
        return cast(cast(sources[index](*at), "int32"), dtype)

    def body(n: Expression, block: Expression, lane: Expression) -> Any:
        at = n, block, h, w, lane
        products = []
        for first, *rest in terms:
            product = factor(first, at)
            for index in rest:
                product = product * factor(index, at)
            products.append(product)
        return add(tuple(products), axis=[h, w]) if len(terms) > 1 else te.sum(products[0], axis=[h, w])

    add = te.comm_reducer(
        lambda left, right: tuple(a + b for a, b in zip(left, right, strict=True)),
        lambda *dtypes: tuple(tirx.const(0, each) for each in dtypes),
        name="add",
    )
    sums = te.compute((*shape[:2], shape[-1]), body, name="sums")
    outputs = [sums] if len(terms) == 1 else list(sums)
    sch = s_tir.Schedule(IRModule({"main": te.create_prim_func([*sources, *outputs])}))
    stage = sch.get_sblock("sums")
    n, block, lane, *pixels = sch.get_loops(stage)
    sch.reorder(n, block, *pixels, lane)
    sch.parallel(sch.fuse(n, block))
    sch.vectorize(lane)
    sch.vectorize(sch.get_loops(sch.decompose_reduction(stage, pixels[0]))[-1])
    return sch.mod

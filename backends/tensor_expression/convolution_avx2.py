"""The design for convolution and linear layers on CPUs with AVX2; see `convolution_definition`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from binpoint.backends.kernel import IntArray
from binpoint.backends.tensor_expression.convolution_tiling import LANES, ConvolutionTiling
from binpoint.backends.tensor_expression.layout import feature_map_layout
from binpoint.backends.tensor_expression.packing import INT16_LEAST, may_wrap, pack_weights
from binpoint.backends.tensor_expression.plan import Form, KernelPlan
from binpoint.backends.tensor_expression.tile_choice import choose_tiling
from binpoint.backends.tensor_expression.weights import Weight


class Avx2ConvolutionDesign:
    """See `binpoint.backends.tensor_expression.design.Design`. Events are counted for each row of a channel block."""

    name = "avx2"
    weight_transform = None
    picks = True
    lanes: Mapping[str, int] = {
        "weight": 2 * LANES,
        "bias": LANES,
        "output": LANES,
        "events": LANES,
        "values": LANES,
    }

    def supports(self, plan: KernelPlan) -> bool:
        """Whether the design computes a plan.

        The plan's container and reduction are proofs that the caller has made: values and sums fit them.
        """
        return plan.form is Form.LAYER and not plan.stochastic and choose_tiling(plan) is not None

    def always_exact(self, plan: KernelPlan) -> bool:
        """Where sums are not split: then products do not wrap."""
        return not _tiling(plan).split

    def exact_with(self, plan: KernelPlan, weight: Weight) -> bool:
        """Whether no input can make a product wrap."""
        return self.always_exact(plan) or weight.least > INT16_LEAST or not may_wrap(_tiling(plan), weight.used)

    def build(self, plan: KernelPlan) -> Any:
        """The scheduled IRModule of a layer."""
        from binpoint.backends.tensor_expression.convolution_definition import define
        from binpoint.backends.tensor_expression.convolution_schedule import schedule

        tiling = _tiling(plan)
        return schedule(define(plan, tiling), tiling)

    def pack_weight(self, plan: KernelPlan, weight: IntArray) -> IntArray:
        """Pairs of elements for 8 output channels, in the order of the reduction."""
        return pack_weights(_tiling(plan), weight)

    def weight_rows(self, plan: KernelPlan) -> int:
        """The output channels of a register tile."""
        return _tiling(plan).tile.vectors * LANES

    def bias_length(self, plan: KernelPlan) -> int:
        """Output channels, rounded up to whole tiles."""
        return _tiling(plan).padded_vectors * LANES

    def images_per_call(self, plan: KernelPlan) -> int | None:
        """As many as keep their packed rows in the cache."""
        return _tiling(plan).images_per_call

    def event_shapes(self, plan: KernelPlan, batch: int) -> Sequence[tuple[int, ...]]:
        """[N, C blocks, H, block] for saturated, underflowed and, where the plan is checked, overflowed results."""
        spec = plan.spec.output
        *outer, _, block = feature_map_layout(spec).shape(spec, batch)
        return [(*outer, block)] * (3 if plan.checked else 2)


def _tiling(plan: KernelPlan) -> ConvolutionTiling:
    tiling = choose_tiling(plan)
    if tiling is None:
        raise ValueError(f"the AVX2 design does not fit {plan}")
    return tiling

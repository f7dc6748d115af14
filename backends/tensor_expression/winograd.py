"""The design for 3 x 3 convolutions of 8 bits on CPUs with AVX2, by Winograd's algorithm; see `winograd_transforms`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from binpoint.backends.kernel import IntArray, KernelExponents
from binpoint.backends.tensor_expression.bounds import Magnitudes, nominal_magnitudes, total_bound, weight_magnitudes
from binpoint.backends.tensor_expression.convolution_tiling import LANES, round_up
from binpoint.backends.tensor_expression.layout import feature_map_layout
from binpoint.backends.tensor_expression.plan import Form, KernelPlan
from binpoint.backends.tensor_expression.weights import Weight
from binpoint.backends.tensor_expression.winograd_choice import choose_winograd, instructions
from binpoint.backends.tensor_expression.winograd_tiling import WinogradTiling
from binpoint.backends.tensor_expression.winograd_transforms import F2, F4, Transform

NO_EXPONENTS = KernelExponents((0,), 0)
"""Bounds on a convolution's sums do not depend on exponents."""


def winograd_designs(plan: KernelPlan) -> list[WinogradDesign]:
    """The designs that are expected to compute a plan faster than the direct one does, the fastest first."""
    if plan.form is not Form.LAYER or plan.stochastic:
        return []
    tilings = [(design, choose_winograd(plan, design.weight_transform)) for design in WINOGRAD]
    costs = {design: instructions(tiling, plan) for design, tiling in tilings if tiling is not None}
    return sorted(costs, key=lambda design: costs[design])


class WinogradDesign:
    """See `binpoint.backends.tensor_expression.design.Design`. Events are counted for each row of a channel block."""

    picks = True
    lanes: Mapping[str, int] = {
        "weight": 2 * LANES,
        "bias": LANES,
        "output": LANES,
        "events": LANES,
        "values": LANES,
    }

    def __init__(self, transform: Transform) -> None:
        self.weight_transform = transform
        self.name = f"winograd{transform.results}"

    def always_exact(self, plan: KernelPlan) -> bool:
        """Whether the widths and the number of products keep results small enough for the transform."""
        return self._exact(plan, nominal_magnitudes(plan.spec))

    def exact_with(self, plan: KernelPlan, weight: Weight) -> bool:
        """Whether no input can give a result too large for the transform."""
        return self.always_exact(plan) or self._exact(plan, weight_magnitudes(plan.spec, weight))

    def _exact(self, plan: KernelPlan, magnitudes: Magnitudes) -> bool:
        return total_bound(plan.spec, magnitudes, NO_EXPONENTS) < self.weight_transform.exact_below

    def build(self, plan: KernelPlan) -> Any:
        """The scheduled IRModule of a layer."""
        from binpoint.backends.tensor_expression.winograd_definition import define
        from binpoint.backends.tensor_expression.winograd_schedule import schedule

        tiling = self._tiling(plan)
        return schedule(define(plan, tiling), tiling)

    def pack_weight(self, plan: KernelPlan, weight: IntArray) -> IntArray:
        """`weight_shape` before the transform, each vector 8 output channels x 2 input channels, in one last axis."""
        tiling = self._tiling(plan)
        outputs, terms, *taps = weight.shape
        pairs, vectors = tiling.weight_shape[-2:]
        rows = vectors * LANES
        padded = np.zeros((round_up(outputs, rows), 2 * tiling.channel_blocks * pairs, *taps), weight.dtype)
        padded[:outputs, :terms] = weight
        cut = padded.reshape(-1, vectors, LANES, tiling.channel_blocks, pairs, 2, *taps)
        packed = cut.transpose(0, 6, 7, 3, 4, 1, 2, 5)
        return np.ascontiguousarray(packed).reshape(*packed.shape[:5], rows * 2)

    def weight_rows(self, plan: KernelPlan) -> int:
        """The output channels of a register tile."""
        return self._tiling(plan).vectors * LANES

    def bias_length(self, plan: KernelPlan) -> int:
        """Output channels, rounded up to whole groups."""
        return self._tiling(plan).padded_vectors * LANES

    def images_per_call(self, plan: KernelPlan) -> int | None:
        """As many as keep what is transformed before in the cache."""
        return self._tiling(plan).images_per_call

    def event_shapes(self, plan: KernelPlan, batch: int) -> Sequence[tuple[int, ...]]:
        """[N, C blocks, H, block] for saturated, underflowed and, where the plan is checked, overflowed results."""
        spec = plan.spec.output
        *outer, _, block = feature_map_layout(spec).shape(spec, batch)
        return [(*outer, block)] * (3 if plan.checked else 2)

    def _tiling(self, plan: KernelPlan) -> WinogradTiling:
        tiling = choose_winograd(plan, self.weight_transform)
        if tiling is None:
            raise ValueError(f"Winograd's design does not fit {plan}")
        return tiling


WINOGRAD = WinogradDesign(F2), WinogradDesign(F4)

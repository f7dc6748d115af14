"""A design: one way to turn a plan into code, with the memory layout that the code expects.

The frame (`kernels`) calls every design's kernels with the arguments in one order: input feature maps; the operands
`weight`, `bias`, `reciprocals`, `table` that the operation has; picks where the plan has them; output; events; values
where the plan has them; the scalars of `runtime_scalars.scalar_names`. Feature maps, values, picks and bias have the
layout of `layout`; weights and events are the design's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from binpoint.backends.kernel import IntArray
from binpoint.backends.tensor_expression.plan import KernelPlan
from binpoint.backends.tensor_expression.weights import Weight, WeightTransform


class Design(Protocol):
    """How kernels of some plans are generated."""

    @property
    def name(self) -> str:
        """A word for file names and cache keys."""

    @property
    def lanes(self) -> Mapping[str, int]:
        """Arguments that the code takes as vectors, and how many elements of the last axis make one.

        Keys are `input`, `output`, `events`, `values` and the names of operands.
        """

    @property
    def picks(self) -> bool:
        """Whether the code can leave the values of picked channels alone (`KernelPlan.picked`)."""

    @property
    def weight_transform(self) -> WeightTransform | None:
        """What is computed from packed weights when they are loaded, None where the code reads them as they are."""

    def always_exact(self, plan: KernelPlan) -> bool:
        """Whether the code computes exactly with every weight of the plan's widths."""

    def exact_with(self, plan: KernelPlan, weight: Weight) -> bool:
        """Whether the code computes exactly with a weight, whatever the inputs."""

    def build(self, plan: KernelPlan) -> Any:
        """The scheduled IRModule; its function is `main`."""

    def weight_rows(self, plan: KernelPlan) -> int:
        """How many filters lie together in packed weights: their order is the same for each such tile."""

    def pack_weight(self, plan: KernelPlan, weight: IntArray) -> IntArray:
        """Filters (outputs, terms, R, S) as the code reads them, (tiles, ...); `bias_length` of them in all."""

    def bias_length(self, plan: KernelPlan) -> int:
        """How many biases the code reads: the layer's, then zeros."""

    def images_per_call(self, plan: KernelPlan) -> int | None:
        """The most images that one call should compute for the sake of caches, None for any number."""

    def event_shapes(self, plan: KernelPlan, batch: int) -> Sequence[tuple[int, ...]]:
        """Shapes of the int32 arrays whose sums are the events of a call of `batch` images.

        They are saturated, underflowed and, where the plan is checked, overflowed results.
        """

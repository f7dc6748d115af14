"""A design: one way to turn a plan into code, with the memory layout that the code expects.

The frame (`kernels`) calls every design's kernels with the arguments in one order: input feature maps; the operands
`weight`, `bias`, `reciprocals`, `table` that the operation has; output; events; values where the plan has them; the
scalars of `runtime_scalars.scalar_names`. Feature maps, values and bias have the layout of `layout`; weights and events
are the design's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from binpoint.backends.kernel import IntArray
from binpoint.backends.tensor_expression.plan import KernelPlan


@dataclass(frozen=True)
class EventCounts:
    """Totals of one call: see `binpoint.backends.kernel.Events`."""

    saturated: int
    underflowed: int
    accumulator_overflows: int = 0


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

    def build(self, plan: KernelPlan) -> Any:
        """The scheduled IRModule; its function is `main`."""

    def pack_weight(self, plan: KernelPlan, weight: IntArray) -> IntArray:
        """Weights (K, C / groups, R, S) as the code reads them."""

    def bias_length(self, plan: KernelPlan) -> int:
        """How many biases the code reads: the layer's, then zeros."""

    def images_per_call(self, plan: KernelPlan) -> int | None:
        """The most images that one call should compute for the sake of caches, None for any number."""

    def event_shapes(self, plan: KernelPlan, batch: int) -> Sequence[tuple[int, ...]]:
        """Shapes of the int32 event arrays for a call of `batch` images."""

    def count_events(self, plan: KernelPlan, arrays: Sequence[IntArray]) -> EventCounts:
        """Totals from the event arrays that a call has filled."""

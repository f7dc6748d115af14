"""What the compiler proved of the accumulators of a module's kernels."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from binpoint.compiler.bounds import fits_by_construction
from binpoint.dialect.fx_accumulate import AccumulateOp
from binpoint.dialect.fx_program import KernelOp
from binpoint.dialect.fx_types import width


@dataclass(frozen=True)
class AccumulatorProof:
    """What the compiler proved of a kernel's sums: the bits that hold all of them, and the bits that there are.

    `by_construction` says that the operation fits its values itself: see `bounds.fits_by_construction`.
    """

    kernel: str
    needed_bits: int
    accumulator_bits: int
    by_construction: bool

    @property
    def overflow_possible(self) -> bool:
        """Whether a sum can leave the accumulators."""
        return self.needed_bits > self.accumulator_bits


def accumulator_proofs(module: ModuleOp) -> tuple[AccumulatorProof, ...]:
    """The proofs of a module's kernels, in order."""
    return tuple(
        AccumulatorProof(kernel.label.data, step.needed.data, width(step.result), fits_by_construction(step))
        for kernel in module.walk()
        if isinstance(kernel, KernelOp)
        for step in kernel.steps()
        if isinstance(step, AccumulateOp) and step.needed is not None
    )

"""What kernels can hold, checked before anything is generated."""

from __future__ import annotations

from binpoint.backends.kernel import KernelSpec
from binpoint.backends.tensor_expression.layout import NARROWEST_BITS, WIDEST_BITS
from binpoint.backends.tensor_expression.runtime_scalars import leaky_slope, slope_integers
from binpoint.backends.tensor_expression.weights import weight_bits
from binpoint.support.diagnostics import Collector, Diagnostic

WIDEST_ACCUMULATOR = 64

SLOPE_BITS = 28
"""Slopes of leaky ReLUs: |multiplier| < 2^28 and at most 28 fraction bits, so that a product has at most 92 bits."""


def check_spec(spec: KernelSpec) -> None:
    """Raise UserError with every width of a kernel that the backend cannot hold."""
    collector = Collector()

    def check(what: str, bits: int, least: int, most: int) -> None:
        if not least <= bits <= most:
            collector.add(
                Diagnostic(
                    "unsupported-width",
                    f'kernel "{spec.name}": {what} does not fit the generated code',
                    found=f"{bits} bits",
                    expected=f"{least} to {most} bits",
                )
            )

    for index, tensor in enumerate(spec.inputs):
        check(f"input {index}", tensor.bits, NARROWEST_BITS, WIDEST_BITS)
    check("the output", spec.output.bits, NARROWEST_BITS, WIDEST_BITS)
    check("the accumulator", spec.accumulator.bits, NARROWEST_BITS, WIDEST_ACCUMULATOR)
    weight = weight_bits(spec)
    if weight is not None:
        check("the weight", weight, NARROWEST_BITS, WIDEST_BITS)
    slope = leaky_slope(spec)
    if slope is not None:
        multiplier, fraction_bits = slope_integers(slope)
        check("the slope's multiplier", abs(multiplier).bit_length(), 0, SLOPE_BITS)
        check("the slope's fraction", fraction_bits, 0, SLOPE_BITS)
    collector.raise_any()

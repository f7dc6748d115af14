"""Float parameters -> mantissas with exponents.

Each parameter has one exponent: the user's, or the one at which its largest value keeps its top bit
(msb-max, SEMANTICS section 5), within the declared range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import IntArray
from binpoint.backends.program import Program
from binpoint.runtime.conversion import quantize
from binpoint.runtime.exponents import clamp, exponent_of_top, record_of_floats
from binpoint.runtime.parameters import parameter_specs
from binpoint.runtime.tensors import mantissa_dtype

PIECE = 1 << 20
"""How many values are rounded at a time."""


@dataclass(frozen=True)
class QuantizedParameters:
    """Parameters of a program by name.

    `saturated` counts the values that an exponent given by the user, or clamped into its range, put past the
    width; names without any are left out.
    """

    mantissas: Mapping[str, IntArray]
    exponents: Mapping[str, int]
    saturated: Mapping[str, int]
    clamped: tuple[str, ...]


def quantize_parameters(program: Program, floats: Mapping[str, NDArray[np.float32]]) -> QuantizedParameters:
    """Round every parameter of a program half-even to its width. `floats` has one array for each."""
    mantissas: dict[str, IntArray] = {}
    exponents: dict[str, int] = {}
    saturated: dict[str, int] = {}
    clamped: list[str] = []
    for name, spec in parameter_specs(program).items():
        policy = program.policies[name]
        if policy.initial is not None:
            exponents[name], moved = policy.initial, False
        else:
            exponents[name], moved = clamp(largest_exponent(floats[name], spec.bits), policy.exponent_range)
        if moved:
            clamped.append(name)
        mantissas[name], count = _round(floats[name], exponents[name], spec.bits)
        if count and (moved or policy.initial is not None):
            saturated[name] = count
    return QuantizedParameters(mantissas, exponents, saturated, tuple(clamped))


def _round(values: NDArray[np.float32], exponent: int, bits: int) -> tuple[IntArray, int]:
    """Mantissas of values, and how many saturated; in pieces, because rounding takes float64."""
    flat = values.reshape(-1)
    mantissas: IntArray = np.empty(flat.size, mantissa_dtype(bits))
    saturated = 0
    for start in range(0, flat.size, PIECE):
        piece = slice(start, start + PIECE)
        mantissas[piece], events = quantize(flat[piece], exponent, bits)
        saturated += events.saturated
    return mantissas.reshape(values.shape), saturated


def largest_exponent(values: NDArray[np.float32], bits: int) -> int:
    """The exponent at which the largest value keeps its top bit; that of values below 2 where all are 0."""
    extremes = np.array([values.max(initial=0), values.min(initial=0)])
    return exponent_of_top(max(record_of_floats(extremes).msb, default=0), bits)

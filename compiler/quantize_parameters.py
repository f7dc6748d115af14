"""Float parameters -> mantissas with exponents.

Each parameter, or each output channel of weights per channel, has one exponent: the user's, or the one at which its
largest value keeps its top bit (msb-max, SEMANTICS section 5), within the declared range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import IntArray
from binpoint.backends.program import Program
from binpoint.runtime.conversion import quantize
from binpoint.runtime.exponents import clamp, exponent_of_top, record_of_floats
from binpoint.runtime.parameters import parameter_specs
from binpoint.runtime.tensors import mantissa_dtype
from binpoint.support.numeric import TensorPolicy

PIECE = 1 << 20
"""How many values are rounded at a time."""


@dataclass(frozen=True)
class QuantizedParameters:
    """Parameters of a program by name.

    `exponents` holds those of tensors, `channel_exponents` those of the output channels of weights per channel.
    `saturated` counts the values that an exponent given by the user, or clamped into its range, put past the
    width; names without any are left out.
    """

    mantissas: Mapping[str, IntArray]
    exponents: Mapping[str, int]
    saturated: Mapping[str, int]
    clamped: tuple[str, ...]
    channel_exponents: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def shown_exponent(self, name: str) -> str:
        """The exponent of a parameter, or the range of those of its output channels."""
        channels = self.channel_exponents.get(name)
        if channels is None:
            return str(self.exponents[name])
        return str(channels[0]) if len(set(channels)) == 1 else f"{min(channels)} to {max(channels)}"


def quantize_parameters(program: Program, floats: Mapping[str, NDArray[np.float32]]) -> QuantizedParameters:
    """Round every parameter of a program half-even to its width. `floats` has one array for each."""
    mantissas: dict[str, IntArray] = {}
    exponents: dict[str, int] = {}
    channel_exponents: dict[str, tuple[int, ...]] = {}
    saturated: dict[str, int] = {}
    clamped: list[str] = []
    for name, spec in parameter_specs(program).items():
        policy = program.policies[name]
        parts = list(floats[name]) if spec.per_channel else [floats[name]]
        found, rounded, count, moved = [], [], 0, False
        for part in parts:
            exponent, part_moved = _exponent(part, spec.bits, policy)
            part_mantissas, part_count = _round(part, exponent, spec.bits)
            found.append(exponent)
            rounded.append(part_mantissas)
            count, moved = count + part_count, moved or part_moved
        if moved:
            clamped.append(name)
        if count and (moved or policy.initial is not None):
            saturated[name] = count
        if spec.per_channel:
            mantissas[name], channel_exponents[name] = np.stack(rounded), tuple(found)
        else:
            mantissas[name], exponents[name] = rounded[0], found[0]
    return QuantizedParameters(mantissas, exponents, saturated, tuple(clamped), channel_exponents)


def _exponent(values: NDArray[np.float32], bits: int, policy: TensorPolicy) -> tuple[int, bool]:
    """The exponent of some values, and whether it had to be moved into the declared range."""
    if policy.initial is not None:
        return policy.initial, False
    return clamp(largest_exponent(values, bits), policy.exponent_range)


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

"""What the parameters of a program must be: shapes and widths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from binpoint.backends.kernel import Convolution
from binpoint.backends.program import KernelCall, Program


@dataclass(frozen=True)
class ParameterSpec:
    """One parameter: its shape, weight (K, C / groups, R, S) or bias (K,), and the mantissas' width in bits."""

    shape: tuple[int, ...]
    bits: int
    per_channel: bool = False
    """Whether each output channel has an exponent of its own."""

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest mantissa."""
        return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1


def parameter_specs(program: Program) -> dict[str, ParameterSpec]:
    """Every parameter of a program by name, in the order of the calls that read them."""
    return {name: spec for call in program.calls for name, spec in _specs_of(call)}


def _specs_of(call: KernelCall) -> Iterator[tuple[str, ParameterSpec]]:
    operation = call.spec.operation
    if not isinstance(operation, Convolution):
        return
    channels = call.spec.output.channels
    if call.weight is not None:
        inner = call.spec.inputs[0].channels // operation.groups
        yield (
            call.weight,
            ParameterSpec((channels, inner, *operation.kernel), operation.weight_bits, call.weight_per_channel),
        )
    if call.bias is not None and operation.bias_bits is not None:
        yield call.bias, ParameterSpec((channels,), operation.bias_bits)

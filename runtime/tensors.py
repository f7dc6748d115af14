"""The tensors of an artifact: mantissas, exponents and float parameters, checked against the program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import IntArray
from binpoint.backends.program import Program
from binpoint.runtime.parameters import ParameterSpec, parameter_specs
from binpoint.support.diagnostics import Collector, Diagnostic, Location, did_you_mean, user_error
from binpoint.support.json_text import JsonText

Floats = NDArray[np.float32]


def write_tensors(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Tensors as a safetensors file, always the same for the same contents."""
    from safetensors.numpy import save

    data: bytes = save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})
    return data


def read_mantissas(data: bytes, program: Program, member: str, file: str) -> dict[str, IntArray]:
    """The mantissas of every parameter.

    Raises:
        UserError: with every parameter that is missing, unknown, or does not have the program's shape, type and width.
    """
    tensors = _read(data, member, file)
    specs = parameter_specs(program)
    faults = _Faults(member, file)
    faults.check_names(tensors, specs)
    for name, spec in specs.items():
        if name in tensors and faults.check_form(name, tensors[name], spec.shape, mantissa_dtype(spec.bits)):
            faults.check_range(name, tensors[name], spec)
    faults.raise_any()
    return tensors


def read_floats(data: bytes, program: Program, member: str, file: str) -> dict[str, Floats]:
    """The float32 values of every parameter.

    Raises:
        UserError: with every parameter that is missing, unknown, of another shape or type, or not finite.
    """
    tensors = _read(data, member, file)
    specs = parameter_specs(program)
    faults = _Faults(member, file)
    faults.check_names(tensors, specs)
    for name, spec in specs.items():
        if name in tensors and faults.check_form(name, tensors[name], spec.shape, np.float32):
            faults.check_finite(name, tensors[name])
    faults.raise_any()
    return tensors


@dataclass(frozen=True)
class Exponents:
    """Exponents by tensor name: of whole tensors, and of the output channels of weights per channel."""

    tensors: Mapping[str, int]
    channels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def print_exponents(exponents: Exponents) -> str:
    """Exponents by tensor name as JSON, sorted by name."""
    both = {**exponents.tensors, **{name: list(each) for name, each in exponents.channels.items()}}
    return json.dumps(dict(sorted(both.items())), indent=2, ensure_ascii=False) + "\n"


def parse_exponents(text: str, program: Program, member: str, file: str) -> Exponents:
    """Exponents by tensor name: those of every parameter, and of any other tensor that has one of its own.

    Raises:
        UserError: with every exponent that is missing, unknown, no integer, or outside of its declared range.
    """
    document = JsonText(text, file, member).data
    if not isinstance(document, dict):
        raise user_error("bad-exponents", f"{member} is no object", location=Location(file))
    specs = parameter_specs(program)
    faults = _Faults(member, file)
    faults.check_names(document, specs, optional=program.policies)
    channels: dict[str, tuple[int, ...]] = {}
    for name, value in document.items():
        spec = specs.get(name)
        if spec is not None and spec.per_channel:
            if not isinstance(value, list) or len(value) != spec.shape[0]:
                faults.add(f'the exponents of "{name}" are no list', str(value)[:40], f"{spec.shape[0]} integers")
                continue
            channels[name] = tuple(value)
        for exponent in channels.get(name, (value,)):
            if not isinstance(exponent, int) or isinstance(exponent, bool):
                faults.add(f'the exponent of "{name}" is no integer', str(exponent)[:40])
            elif name in program.policies:
                low, high = program.policies[name].exponent_range
                if not low <= exponent <= high:
                    faults.add(f'the exponent of "{name}" is outside of its range', str(exponent), f"{low} to {high}")
    faults.raise_any()
    return Exponents({name: value for name, value in document.items() if name not in channels}, channels)


def mantissa_dtype(bits: int) -> type[np.signedinteger[Any]]:
    """The type of mantissas in arrays and files: int8 up to 8 bits, int16 up to 16, else int32."""
    return np.int8 if bits <= 8 else np.int16 if bits <= 16 else np.int32


class _Faults:
    """Gathers what is wrong with the tensors of one member."""

    def __init__(self, member: str, file: str) -> None:
        self._member, self._file = member, file
        self._collector = Collector()

    def add(self, message: str, found: str | None, expected: str | None = None, hint: str | None = None) -> None:
        message = f"{self._member}: {message}"
        self._collector.add(Diagnostic("bad-tensor", message, Location(self._file), found, expected, hint))

    def raise_any(self) -> None:
        self._collector.raise_any()

    def check_names(self, found: Iterable[str], wanted: Iterable[str], optional: Iterable[str] = ()) -> None:
        known = {*wanted, *optional}
        for name in found:
            if name not in known:
                self.add(f'the network has no tensor "{name}"', name, hint=did_you_mean(name, known))
        for name in wanted:
            if name not in found:
                self.add(f'"{name}" is missing', None)

    def check_form(self, name: str, tensor: NDArray[Any], shape: tuple[int, ...], dtype: type[np.generic]) -> bool:
        if tensor.shape == shape and tensor.dtype == dtype:
            return True
        expected = f"{np.dtype(dtype)} of shape {shape}"
        self.add(f'"{name}" does not fit the network', f"{tensor.dtype} of shape {tensor.shape}", expected)
        return False

    def check_range(self, name: str, mantissas: IntArray, spec: ParameterSpec) -> None:
        least, greatest = spec.range
        low, high = int(mantissas.min(initial=0)), int(mantissas.max(initial=0))
        if low < least or high > greatest:
            self.add(f'"{name}" exceeds {spec.bits} bits', f"{low} to {high}", f"{least} to {greatest}")

    def check_finite(self, name: str, values: Floats) -> None:
        if not np.isfinite(values).all():
            self.add(f'"{name}" holds NaN or infinity', None, "numbers")


def _read(data: bytes, member: str, file: str) -> dict[str, NDArray[Any]]:
    import safetensors
    from safetensors.numpy import load

    try:
        tensors: dict[str, NDArray[Any]] = load(data)
    # KeyError: a type of elements that NumPy has not.
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise user_error(
            "damaged-artifact",
            f"{member} is not a usable safetensors file",
            location=Location(file),
            found=str(error),
        ) from None
    return tensors

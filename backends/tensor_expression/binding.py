"""A spec with its parameters: what the host computes before a call, kept for as long as exponents stay the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from binpoint.backends.kernel import (
    AveragePool,
    Convolution,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    Sigmoid,
    Softmax,
)
from binpoint.backends.memory import aligned_copy
from binpoint.backends.oracle.accumulate import accumulator_exponent, reciprocals
from binpoint.backends.oracle.fixed_point import deterministic, mantissa_range, quantize
from binpoint.backends.tables import exponential_table, sigmoid_table
from binpoint.backends.tensor_expression.bounds import (
    choose_container,
    choose_reduction,
    total_bound,
    weight_magnitude,
)
from binpoint.backends.tensor_expression.buffers import argument
from binpoint.backends.tensor_expression.compiler import Compiler, choose_design
from binpoint.backends.tensor_expression.design import Design
from binpoint.backends.tensor_expression.library import Function
from binpoint.backends.tensor_expression.plan import Form, KernelPlan, nameless
from binpoint.backends.tensor_expression.runtime_scalars import exponent_scalars, value_exponent

REMEMBERED_SETTINGS = 8
"""How many settings of exponents a binding keeps prepared."""


@dataclass(frozen=True)
class Setting:
    """What one setting of exponents decides: code, operands and scalars of a call.

    `value_exponent` is the exponent of the values before quantisation.
    """

    plan: KernelPlan
    design: Design
    function: Function
    operands: tuple[Any, ...]
    scalars: tuple[int, ...]
    value_exponent: int


class Binding:
    """A kernel's spec and parameters in one form: a layer's kernel or a PE program."""

    def __init__(self, spec: KernelSpec, parameters: KernelParameters, form: Form, compiler: Compiler) -> None:
        self.spec = spec
        self.form = form
        self.compiler = compiler
        _check_parameters(spec, parameters)
        self._parameters = parameters
        self._settings: dict[tuple[KernelExponents, bool], Setting] = {}
        self._weights: dict[str, Any] = {}

    def setting(self, exponents: KernelExponents, *, values: bool) -> Setting:
        """What the exponents decide. `values` says whether the values before quantisation are an output too."""
        key = exponents, values
        setting = self._settings.get(key)
        if setting is None:
            if len(self._settings) >= REMEMBERED_SETTINGS:
                del self._settings[next(iter(self._settings))]
            setting = self._settings[key] = self._prepare(exponents, values)
        return setting

    def _prepare(self, exponents: KernelExponents, values: bool) -> Setting:
        bias = self._aligned_bias(exponents)
        plan = self._plan(exponents, 0 if bias is None else int(np.abs(bias).max(initial=0)), values)
        design = choose_design(plan, self._parameters.weight, self.compiler.capability)
        return Setting(
            plan,
            design,
            self.compiler.kernel(plan, design),
            tuple(self._operands(plan, design, bias, exponents)),
            exponent_scalars(plan, exponents),
            0 if self.spec.exact else value_exponent(self.spec, exponents),
        )

    def _plan(self, exponents: KernelExponents, bias: int, values: bool) -> KernelPlan:
        total = total_bound(self.spec, self._magnitude, exponents)
        container = choose_container(self.spec, total, bias)
        reduction = choose_reduction(self.spec, container, total)
        return KernelPlan(nameless(self.spec), container, reduction, values, self.form)

    @cached_property
    def _magnitude(self) -> int:
        weight = self._parameters.weight
        return 0 if weight is None else weight_magnitude(weight)

    def _aligned_bias(self, exponents: KernelExponents) -> IntArray | None:
        """The bias at the accumulator's exponent, in its width."""
        if self._parameters.bias is None:
            return None
        shift = accumulator_exponent(self.spec, exponents) - exponents.bias
        bias = self._parameters.bias.astype(np.int64)
        return quantize(bias, shift, self.spec.accumulator.bits, deterministic(self.spec.rounding))[0]

    def _operands(
        self, plan: KernelPlan, design: Design, bias: IntArray | None, exponents: KernelExponents
    ) -> list[Any]:
        """The operands' arguments, in the order of `definition.operand_shapes`."""
        match self.spec.operation:
            case Convolution():
                weight = self._weight(plan, design)
                if bias is None:
                    return [weight]
                padded = np.zeros(design.bias_length(plan), plan.container.dtype)
                padded[: len(bias)] = bias
                return [weight, argument(aligned_copy(padded), design.lanes.get("bias", 1))]
            case AveragePool() as pool:
                return [argument(aligned_copy(reciprocals(pool, self.spec.inputs[0])[0].astype(np.int32)))]
            case Sigmoid():
                table = sigmoid_table(self.spec.inputs[0].bits, exponents.inputs[0])
            case Softmax():
                table = exponential_table(self.spec.inputs[0].bits, exponents.inputs[0])
            case _:
                return []
        return [argument(aligned_copy(table.astype(np.int32)))]

    def _weight(self, plan: KernelPlan, design: Design) -> Any:
        """The packed weight; plans that differ in `values` alone share it."""
        key = f"{design.name} {replace(plan, values=False)!r}"
        packed = self._weights.get(key)
        if packed is None:
            assert self._parameters.weight is not None
            array = aligned_copy(design.pack_weight(plan, self._parameters.weight))
            packed = self._weights[key] = argument(array, design.lanes.get("weight", 1))
        return packed


def _check_parameters(spec: KernelSpec, parameters: KernelParameters) -> None:
    """Parameters that are missing or too wide are a programming error: the code would wrap them silently."""
    if not isinstance(spec.operation, Convolution):
        return
    if parameters.weight is None or (parameters.bias is None) != (spec.operation.bias_bits is None):
        raise ValueError(f"kernel {spec.name}: the parameters are not the ones that the spec names")
    least, greatest = mantissa_range(spec.operation.weight_bits)
    if parameters.weight.min(initial=0) < least or parameters.weight.max(initial=0) > greatest:
        raise ValueError(f"kernel {spec.name}: weights outside {spec.operation.weight_bits} bits")

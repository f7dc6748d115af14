"""A spec with its parameters: what the host computes before a call, kept for as long as it stays the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from binpoint.backends.gradients import AveragePoolGradient, SigmoidGradient, sigmoid_gradient_fraction_bits
from binpoint.backends.kernel import (
    AveragePool,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    Sigmoid,
    Softmax,
)
from binpoint.backends.memory import aligned_copy, aligned_zeros
from binpoint.backends.oracle.accumulate import accumulator_exponent
from binpoint.backends.oracle.fixed_point import deterministic, mantissa_range, quantize
from binpoint.backends.oracle.pools import reciprocals
from binpoint.backends.tables import exponential_table, sigmoid_gradient_table, sigmoid_table
from binpoint.backends.tensor_expression.bounds import (
    choose_container,
    choose_reduction,
    may_fold,
    nominal_magnitudes,
    total_bound,
    weight_magnitudes,
)
from binpoint.backends.tensor_expression.buffers import argument
from binpoint.backends.tensor_expression.compiler import Compiler, designs
from binpoint.backends.tensor_expression.design import Design
from binpoint.backends.tensor_expression.layout import storage_dtype
from binpoint.backends.tensor_expression.library import Function
from binpoint.backends.tensor_expression.plan import Container, Form, KernelPlan, nameless
from binpoint.backends.tensor_expression.runtime_scalars import exponent_scalars, value_exponent
from binpoint.backends.tensor_expression.weights import (
    Filters,
    PackedWeight,
    Weight,
    bias_bits,
    weight_bits,
    weight_filters,
)

REMEMBERED_SETTINGS = 8
"""How many settings of exponents a binding keeps prepared."""


@dataclass(frozen=True)
class Request:
    """What a call wants of the code besides its exponents.

    `values` says whether the values before quantisation are an output too, `picked` whether those of one channel of
    each group of 8 are enough, `batch` how many images there are, where the kernel sums over them.
    """

    values: bool = False
    picked: bool = False
    batch: int = 1


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


@dataclass
class Code:
    """A plan's code, with its packed weight: memory that stays in place while its numbers change."""

    plan: KernelPlan
    design: Design
    function: Function | None = None
    weight: PackedWeight | None = None
    weight_argument: Any = None
    loaded: int = -1
    """Which of the binding's parameters the packed weight holds."""


@dataclass(frozen=True)
class _Choice:
    """What a setting decides for any parameters within bounds."""

    code: Code
    scalars: tuple[int, ...]
    value_exponent: int


class Binding:
    """A kernel's spec and parameters in one form: a layer's kernel or a PE program.

    `filters` says how the kernel reads its weight; None for what `weights.weight_filters` says.
    """

    def __init__(
        self,
        spec: KernelSpec,
        parameters: KernelParameters,
        form: Form,
        compiler: Compiler,
        filters: Filters | None = None,
    ) -> None:
        self.spec = spec
        self.form = form
        self.compiler = compiler
        self._filters = filters or weight_filters(spec)
        self._settings: dict[tuple[KernelExponents, Request], Setting] = {}
        self._codes: dict[tuple[Container, str, bool, bool, bool], list[Code]] = {}
        self._choices: dict[tuple[KernelExponents, Request, int], _Choice] = {}
        self._nominal = nominal_magnitudes(spec)
        self._bound = -1
        self.bind(parameters)

    def bind(self, parameters: KernelParameters) -> None:
        """Take other parameters of the same shapes and widths."""
        _check_parameters(self.spec, parameters)
        self._bias = parameters.bias
        self._weight = None if parameters.weight is None else Weight(parameters.weight, self._filters)
        self._settings.clear()
        self._bound += 1

    def setting(self, exponents: KernelExponents, request: Request) -> Setting:
        """What the exponents decide."""
        key = exponents, request
        setting = self._settings.get(key)
        if setting is None:
            if len(self._settings) >= REMEMBERED_SETTINGS:
                del self._settings[next(iter(self._settings))]
            setting = self._settings[key] = self._prepare(exponents, request)
        return setting

    def _prepare(self, exponents: KernelExponents, request: Request) -> Setting:
        bias = self._aligned_bias(exponents)
        # A bound that few biases move: what was chosen for it holds for most of them.
        bound = 0 if bias is None else (1 << int(np.abs(bias).max(initial=0)).bit_length()) - 1
        choice = self._choices.get((exponents, request, bound))
        if choice is None:
            choice = self._chosen(self._code(exponents, bound, request), exponents)
            proven = choice.code.design.always_exact(choice.code.plan)
            if self._weight is None or (proven and self._holds_for_widths(exponents, bound, request)):
                if len(self._choices) >= REMEMBERED_SETTINGS:
                    del self._choices[next(iter(self._choices))]
                self._choices[exponents, request, bound] = choice
        return self._made(choice, bias, exponents)

    def _completed(self, code: Code, bias: IntArray | None, exponents: KernelExponents) -> Setting:
        return self._made(self._chosen(code, exponents), bias, exponents)

    def _chosen(self, code: Code, exponents: KernelExponents) -> _Choice:
        position = 0 if self.spec.exact else value_exponent(self.spec, exponents, folded=code.plan.folded)
        return _Choice(code, exponent_scalars(code.plan, exponents), position)

    def _made(self, choice: _Choice, bias: IntArray | None, exponents: KernelExponents) -> Setting:
        code = choice.code
        assert code.function is not None
        operands = tuple(self._operands(code, bias, exponents))
        return Setting(code.plan, code.design, code.function, operands, choice.scalars, choice.value_exponent)

    def _code(self, exponents: KernelExponents, bias: int, request: Request) -> Code:
        """The code that bounds on the values justify."""
        magnitudes = self._nominal
        total = total_bound(self.spec, magnitudes, exponents, request.batch)
        container = choose_container(self.spec, total, bias)
        if container is not Container.INT32 and self._weight is not None:
            # The weights as they are may prove more than their width does.
            magnitudes = weight_magnitudes(self.spec, self._weight)
            total = total_bound(self.spec, magnitudes, exponents, request.batch)
            container = choose_container(self.spec, total, bias)
        folded = container is not Container.INT32 and not request.values and self._folds(exponents, total + bias)
        if folded:
            container = Container.INT32
        reduction = choose_reduction(self.spec, container, total)
        plan = KernelPlan(nameless(self.spec), container, reduction, request.values, self.form, folded=folded)
        return self._planned(plan, picked=request.picked)

    def _holds_for_widths(self, exponents: KernelExponents, bias: int, request: Request) -> bool:
        """Whether code is chosen by the weight's width alone: all values and sums fit 32 bits, whatever the weights."""
        total = total_bound(self.spec, self._nominal, exponents, request.batch)
        container = choose_container(self.spec, total, bias)
        return container is Container.INT32 and choose_reduction(self.spec, container, total) == "int32"

    def _folds(self, exponents: KernelExponents, value: int) -> bool:
        """Whether values below a bound may be folded: those of a leaky ReLU, of which statistics see nothing."""
        if not isinstance(self.spec.activation, LeakyRelu):
            return False
        return may_fold(self.spec, value, exponents.output - accumulator_exponent(self.spec, exponents))

    def _planned(self, plan: KernelPlan, *, picked: bool = False) -> Code:
        """The code of a plan, by the fastest design that is exact with the weights."""
        key = plan.container, plan.reduction, plan.values, picked, plan.folded
        codes = self._codes.get(key)
        if codes is None:
            codes = self._codes[key] = [
                Code(replace(plan, picked=picked and design.picks), design)
                for design in designs(plan, self.compiler.capability)
            ]
        code = next(each for each in codes if self._weight is None or each.design.exact_with(each.plan, self._weight))
        if code.function is None:
            code.function = self.compiler.kernel(code.plan, code.design)
        return code

    def _aligned_bias(self, exponents: KernelExponents) -> IntArray | None:
        """The bias at the accumulator's exponent, in its width."""
        if self._bias is None:
            return None
        shift = accumulator_exponent(self.spec, exponents) - exponents.bias
        bias = self._bias.astype(np.int64)
        return quantize(bias, shift, self.spec.accumulator.bits, deterministic(self.spec.rounding))[0]

    def _operands(self, code: Code, bias: IntArray | None, exponents: KernelExponents) -> list[Any]:
        """The operands' arguments, in the order of `definition.operand_shapes`."""
        if self._weight is not None:
            weight = self._load_weight(code, self._weight)
            if bias is None:
                return [weight]
            return [weight, argument(padded_bias(code.plan, code.design, bias), code.design.lanes.get("bias", 1))]
        source = self.spec.inputs[0]
        match self.spec.operation:
            case AveragePool() as pool:
                table = reciprocals(pool, source)[0]
            case AveragePoolGradient(pool):
                table = reciprocals(pool, self.spec.output)[0]
            case Sigmoid():
                table = sigmoid_table(source.bits, exponents.inputs[0])
            case SigmoidGradient():
                table = sigmoid_gradient_table(
                    source.bits, exponents.inputs[0], sigmoid_gradient_fraction_bits(self.spec)
                )
            case Softmax():
                table = exponential_table(source.bits, exponents.inputs[0])
            case _:
                return []
        return [argument(aligned_copy(table.astype(np.int32)))]

    def _load_weight(self, code: Code, weight: Weight) -> Any:
        if code.weight is None:
            design, plan = code.design, code.plan
            bits = weight_bits(self.spec)
            assert bits is not None
            rows = design.weight_rows(plan)
            code.weight = PackedWeight(
                weight.filters,
                weight.mantissas.shape,
                rows,
                design.bias_length(plan) // rows,
                lambda filters: design.pack_weight(plan, filters),
                storage_dtype(bits),
                design.weight_transform,
            )
            code.weight_argument = argument(code.weight.array, design.lanes.get("weight", 1))
        if code.loaded != self._bound:
            code.weight.load(weight.mantissas)
            code.loaded = self._bound
        return code.weight_argument


def padded_bias(plan: KernelPlan, design: Design, bias: IntArray) -> IntArray:
    """A bias as a design's code reads it."""
    padded = aligned_zeros((design.bias_length(plan),), plan.container.dtype)
    padded[: len(bias)] = bias
    return padded


def _check_parameters(spec: KernelSpec, parameters: KernelParameters) -> None:
    """Parameters that are missing or too wide are a programming error: the code would wrap them silently."""
    bits = weight_bits(spec)
    if bits is None:
        return
    if parameters.weight is None or (parameters.bias is None) != (bias_bits(spec) is None):
        raise ValueError(f"kernel {spec.name}: the parameters are not the ones that the spec names")
    least, greatest = mantissa_range(bits)
    if np.iinfo(parameters.weight.dtype).min >= least:
        return
    if parameters.weight.min(initial=0) < least or parameters.weight.max(initial=0) > greatest:
        raise ValueError(f"kernel {spec.name}: weights outside {bits} bits")

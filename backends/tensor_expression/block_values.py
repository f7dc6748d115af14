"""The exact values of a layer over blocks, before quantisation, by the kernels of plain layers.

With the finest exponents selected and nothing past the accumulator's width a value is an exact real number, whatever
exponents its operands had and in whatever order they were added. So all mantissas of an input may be brought to the
finest exponent of the whole map, and one integer kernel computes the layer there. `ValuesBinding.values` gives it,
or None where that is not proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat
from typing import Any

import numpy as np

from binpoint.backends.blocks import WHOLE_MAP, BlockExponents
from binpoint.backends.kernel import (
    Add,
    Clip,
    Concat,
    Convolution,
    IntArray,
    KernelExponents,
    KernelParameters,
    KernelSpec,
)
from binpoint.backends.memory import aligned_copy, aligned_zeros
from binpoint.backends.oracle.accumulate import accumulator_exponent
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.tensor_expression.binding import Binding, Code, Setting, padded_bias
from binpoint.backends.tensor_expression.block_plan import ValueFormat
from binpoint.backends.tensor_expression.block_ranges import ChannelRanges, FilterSums, coarse_bound
from binpoint.backends.tensor_expression.bounds import (
    choose_container,
    choose_reduction,
    may_fold,
    nominal_magnitudes,
    total_bound,
    weight_magnitudes,
)
from binpoint.backends.tensor_expression.buffers import argument
from binpoint.backends.tensor_expression.compiler import Compiler, centred_designs
from binpoint.backends.tensor_expression.convolution_tiling import LANES
from binpoint.backends.tensor_expression.layout import WIDEST_BITS, feature_map_layout, storage_dtype
from binpoint.backends.tensor_expression.plan import Container, Form, KernelPlan, nameless
from binpoint.backends.tensor_expression.runtime_scalars import value_fraction_bits
from binpoint.backends.tensor_expression.winograd import WINOGRAD, WinogradDesign
from binpoint.backends.tensor_expression.winograd_transforms import Transform

REMEMBERED_VALUES = 16
"""How many settings of exponents a binding keeps prepared."""


@dataclass(frozen=True)
class Seen:
    """What the aligned mantissas of a convolution prove: a bound on its sums, and which transforms are exact."""

    total: int
    exact: tuple[WinogradDesign, ...]


@dataclass(frozen=True)
class Operands:
    """What the exponents of a call's inputs come to.

    An entry for each input: `finest`, the exponent to which all its mantissas are brought, `coarsest`, and `bits`, the
    width that they then have. `seen` is what a look at the input of a convolution has found.
    """

    finest: tuple[int, ...]
    coarsest: tuple[int, ...]
    bits: tuple[int, ...]
    seen: Seen | None = None

    @property
    def mixed(self) -> bool:
        """Whether some input has more than one exponent."""
        return self.finest != self.coarsest

    @property
    def spread(self) -> int:
        """How far the exponents of all inputs lie apart."""
        return max(self.coarsest) - min(self.finest)


@dataclass(frozen=True, eq=False)
class Centred:
    """A kernel about centres: its transform, and its bias where all centres are 0, as code reads it."""

    transform: Transform
    bias: IntArray


@dataclass(frozen=True)
class Values:
    """The code that computes values, their exponents, one for each output channel, and how they are stored.

    `centred` is there where the kernel is. `faster` says that there is faster code, which a look at the inputs may
    justify.
    """

    setting: Setting
    exponents: tuple[int, ...]
    format: ValueFormat
    centred: Centred | None
    faster: bool


def plain_spec(spec: KernelSpec, *, aligned: bool) -> KernelSpec:
    """A layer without its blocks, on inputs as they are or on aligned ones."""
    inputs = tuple(
        replace(tensor, granularity=WHOLE_MAP, bits=WIDEST_BITS if aligned else tensor.bits) for tensor in spec.inputs
    )
    return replace(spec, inputs=inputs, output=replace(spec.output, granularity=WHOLE_MAP), blocks=None)


SMALL_TOTAL = 1 << 28
"""Bounds on sums below this need not be better."""


class ValuesBinding(Binding):
    """A kernel's spec and parameters, for its values alone; the spec is a `plain_spec`."""

    def __init__(self, spec: KernelSpec, parameters: KernelParameters, compiler: Compiler) -> None:
        self._values: dict[tuple[Operands, BlockExponents], Values | None] = {}
        self._centred: dict[tuple[KernelPlan, str], Code] = {}
        super().__init__(spec, parameters, Form.LAYER, compiler)

    def values(self, operands: Operands, exponents: BlockExponents) -> Values | None:
        """The code for a call, None where nothing proves its results exact."""
        key = operands, exponents
        if key not in self._values:
            if len(self._values) >= REMEMBERED_VALUES:
                del self._values[next(iter(self._values))]
            self._values[key] = self._prove(operands, exponents)
        return self._values[key]

    def _prove(self, operands: Operands, exponents: BlockExponents) -> Values | None:
        spec = self.spec
        settings, units = self._units(operands, exponents)
        if units is None:
            return None
        bias = self._exact_bias(operands, exponents, units)
        if (self._bias is not None and bias is None) or not self._exact_limit(operands, units):
            return None
        plan = self._plan(operands, bias, settings, exponents.candidates[-1] - max(units))
        if plan is None:
            return None
        code, transform, faster = self._fastest(plan, operands)
        setting = self._completed(code, bias, settings)
        centred = None
        if transform is not None and bias is not None:
            setting = replace(setting, operands=(*setting.operands, self._centres(np.zeros(0, np.int32))))
            centred = Centred(transform, padded_bias(code.plan, code.design, bias))
        drop = 0 if spec.exact else value_fraction_bits(spec, folded=code.plan.folded)
        # Exact operations leave mantissas.
        dtype = storage_dtype(spec.inputs[0].bits) if spec.exact else code.plan.container.dtype
        value_exponents = tuple(unit - drop for unit in spread_channels(units, spec))
        return Values(setting, value_exponents, ValueFormat(code.plan.container, dtype), centred, faster)

    def look(self, ranges: ChannelRanges) -> Seen:
        """What the aligned mantissas of a convolution prove."""
        sums, exact = self._filter_sums, []
        for design in WINOGRAD:
            transform = design.weight_transform
            if ranges.widest <= 2 * transform.largest:
                total = sums.bound(ranges, transform.largest, transform.exact_below)
                if total < transform.exact_below:
                    exact.append(design)
        return Seen(coarse_bound(sums.bound(ranges, ranges.largest, SMALL_TOTAL)), tuple(exact))

    def about_centres(self, values: Values, ranges: ChannelRanges) -> tuple[Any, ...]:
        """The operands of the kernel for channels with these ranges: the bias makes up for their centres."""
        operands, centred = values.setting.operands, values.centred
        centres = None if centred is None else ranges.centres(centred.transform.largest)
        if centred is None or centres is None:
            return operands
        bias, missing = aligned_copy(centred.bias), self._filter_sums.of_constants(centres)
        bias[: len(missing)] += missing
        return operands[0], argument(bias, LANES), self._centres(centres)

    @cached_property
    def _filter_sums(self) -> FilterSums:
        assert self._weight is not None
        return FilterSums(self._weight.mantissas, self.spec.inputs[0].channels)

    def _centres(self, centres: IntArray) -> Any:
        """Words of the centres of two channels, for all channels of the layout."""
        source = self.spec.inputs[0]
        layout = feature_map_layout(source)
        words = aligned_zeros((layout.blocks(source.channels), layout.block // 2), "int32")
        flat, upper = words.reshape(-1), centres[1::2] << 16
        flat[: len(upper)] = upper
        flat[: -(-len(centres) // 2)] += centres[::2]
        return argument(words)

    def _units(self, operands: Operands, exponents: BlockExponents) -> tuple[KernelExponents, Sequence[int] | None]:
        """The exponents of the plain kernel of the values, and those of its accumulators: one, or one a channel.

        None in place of the latter where operands would not be aligned exactly.
        """
        spec = self.spec
        match spec.operation:
            case Concat():
                # Each element stays as it is, so inputs need no common exponent: the kernel is told that there is one.
                settings = KernelExponents((0,) * len(spec.inputs), 0)
                channels = (tensor.channels for tensor in spec.inputs)
                return settings, list(chain.from_iterable(map(repeat, operands.finest, channels)))
            case Convolution():
                weights = exponents.weight
                settings = KernelExponents(operands.finest, 0, weights[0])
                return settings, [operands.finest[0] + weight for weight in weights]
        settings = KernelExponents(operands.finest, 0)
        if spec.exact:
            return settings, operands.finest
        unit = accumulator_exponent(spec, settings)
        return settings, None if isinstance(spec.operation, Add) and unit != min(operands.finest) else [unit]

    def _exact_bias(self, operands: Operands, exponents: BlockExponents, units: Sequence[int]) -> IntArray | None:
        """The bias at the accumulators' exponents; None where there is none, or it is not exact at the coarsest."""
        if self._bias is None:
            return None
        shifts = np.subtract(spread_channels(exponents.bias, self.spec), spread_channels(units, self.spec))
        if not operands.spread:
            # There is one position, and the PE rounds the bias to it.
            floored = self._bias.astype(np.int64) >> np.clip(-shifts, 0, Container.INT64.bits - 1)
            return self._shifted(floored, np.maximum(shifts, 0))
        return None if shifts.min() < operands.spread else self._shifted(self._bias.astype(np.int64), shifts)

    @staticmethod
    def _shifted(bias: IntArray, shifts: IntArray) -> IntArray | None:
        """bias * 2^shift, None where 64 bits do not hold it."""
        width = int(np.abs(bias).max(initial=0)).bit_length()
        return None if width + int(shifts.max()) > Container.INT64.narrow_bits else bias << shifts

    def _exact_limit(self, operands: Operands, units: Sequence[int]) -> bool:
        """Whether a clip's limit is the same number at each position that an accumulator can have."""
        if not isinstance(self.spec.activation, Clip):
            return True
        limit = self.spec.activation.limit
        dropped = operands.spread + units[0] + limit.fraction_bits
        return len(set(units)) == 1 and (dropped <= 0 or limit.multiplier % (1 << dropped) == 0)

    def _fastest(self, plan: KernelPlan, operands: Operands) -> tuple[Code, Transform | None, bool]:
        """The code of a plan by the fastest design that is exact, and its transform where it is centred.

        And whether a look at the inputs could justify faster code.
        """
        if not operands.mixed or not isinstance(self.spec.operation, Convolution):
            return self._planned(plan), None, False
        possible: list[WinogradDesign] = []
        if plan.container is Container.INT32 and self._bias is not None:
            plan = replace(plan, centred=True)
            possible = centred_designs(plan, self.compiler.capability)
        seen, bits = operands.seen, operands.bits[0]
        exact = seen.exact if seen else [each for each in possible if self._holds(each, 1 << (bits - 1))]
        design = next((each for each in possible if each in exact), None)
        # A block takes the coarsest exponent for a mantissa in the upper half: centres bring that only so far.
        better = possible[: possible.index(design)] if design else possible
        hopeful = any(1 << (bits - 2) <= 2 * each.weight_transform.largest for each in better)
        faster = seen is None and (hopeful or plan.container is not Container.INT32)
        if design is None:
            return self._planned(replace(plan, centred=False)), None, faster
        code = self._centred.setdefault((plan, design.name), Code(plan, design))
        if code.function is None:
            code.function = self.compiler.kernel(plan, design)
        return code, design.weight_transform, faster

    def _holds(self, design: WinogradDesign, magnitude: int) -> bool:
        """Whether a transform is exact with all mantissas that have no larger magnitude."""
        transform = design.weight_transform
        return magnitude <= transform.largest and magnitude * self._filter_sums.largest < transform.exact_below

    def _plan(
        self, operands: Operands, bias: IntArray | None, settings: KernelExponents, shift: int
    ) -> KernelPlan | None:
        """The narrowest plan that bounds on the values justify; `shift` is the least one to a candidate."""
        if self.spec.exact:
            if max(operands.bits) > self.spec.accumulator.bits:
                return None
            return KernelPlan(nameless(self.spec), Container.INT32, "int32", values=False)
        inputs = tuple(replace(each, bits=bits) for each, bits in zip(self.spec.inputs, operands.bits, strict=True))
        spec = replace(self.spec, inputs=inputs)
        offset = 0 if bias is None else int(np.abs(bias).max(initial=0))
        totals = [total_bound(spec, nominal_magnitudes(spec), settings)]
        if self._weight is not None:
            totals.append(total_bound(spec, weight_magnitudes(spec, self._weight), settings))
        if operands.seen is not None:
            totals.append(operands.seen.total)
        plans = []
        for total in totals:
            if total + offset > mantissa_range(spec.accumulator.bits)[1]:
                continue
            container = choose_container(spec, total, offset)
            folded = container is not Container.INT32 and may_fold(spec, total + offset, shift)
            if folded:
                container = Container.INT32
            reduction = choose_reduction(spec, container, total)
            plan = KernelPlan(nameless(self.spec), container, reduction, True, raw=True, folded=folded)
            plans.append(plan)
            if container is Container.INT32:
                return plan
        return next((plan for plan in reversed(plans) if plan.container is not Container.WIDE), None)


def spread_channels(numbers: Sequence[int], spec: KernelSpec) -> list[int]:
    """One number for each output channel of a layer."""
    return list(numbers) * spec.output.channels if len(numbers) == 1 else list(numbers)

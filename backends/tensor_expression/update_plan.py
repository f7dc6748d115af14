"""One step of SGD as data: its sums, their terms, and the scalars that a call's exponents and constants give.

See `binpoint.backends.gradients.UpdateSpec`. Tensors are `master`, `velocity`, `gradient`, and `new_velocity`, which
the step computes itself; a result is `velocity`, `master` or `working`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from binpoint.backends.generator import draw_key
from binpoint.backends.gradients import UpdateSpec
from binpoint.backends.kernel import Draw
from binpoint.backends.oracle.alignment import meeting_exponent
from binpoint.backends.oracle.update import ACCUMULATOR_BITS, CONSTANT_BITS
from binpoint.backends.tensor_expression.plan import Container
from binpoint.backends.tensor_expression.runtime_scalars import signed64
from binpoint.backends.tensor_expression.shifts import alignment_names, alignment_values, output_names, output_values
from binpoint.backends.training_backend import UpdateExponents
from binpoint.support.numeric import FixedConstant, Rounding

CONTAINER = Container.INT64

NARROW_TERM_BITS = CONTAINER.narrow_bits + 1
"""Terms of up to so many bits are narrow; a wider one is halved before it is aligned."""


@dataclass(frozen=True)
class Term:
    """A tensor times the constants named: exact in `bits` bits."""

    name: str
    tensor: str
    bits: int
    constants: tuple[str, ...] = ()

    @property
    def halvings(self) -> int:
        """How often the product is halved, the last bit kept as a sticky one, to be narrow."""
        return max(0, self.bits - NARROW_TERM_BITS)


@dataclass(frozen=True)
class Result:
    """What the step stores: the sum of its terms, quantised to `bits` bits."""

    name: str
    bits: int
    terms: tuple[Term, ...]

    def exponent(self, exponents: Mapping[str, int]) -> int:
        """The exponent where the terms meet; `exponents` are those of tensors, and of constants."""
        reach = [(_term_exponent(term, exponents), term.bits) for term in self.terms]
        return reach[0][0] if len(reach) == 1 else meeting_exponent(reach, ACCUMULATOR_BITS)


@dataclass(frozen=True)
class UpdatePlan:
    """Everything that decides an update's code."""

    spec: UpdateSpec
    rounding: Rounding

    @cached_property
    def results(self) -> tuple[Result, ...]:
        """In the order in which they are computed and drawn for."""
        spec = self.spec
        weight = Term("weight", "master", spec.master_bits)
        gradient = Term("gradient", "gradient", spec.gradient_bits)
        decay = [] if spec.decay is None else [_scaled("decay", weight, "decay")]
        results = []
        if spec.velocity_bits is None:
            directions = [gradient, *decay]
        else:
            momentum = _scaled("momentum", Term("", "velocity", spec.velocity_bits), "momentum")
            results.append(Result("velocity", spec.velocity_bits, (momentum, gradient, *decay)))
            directions = [Term("step", "new_velocity", spec.velocity_bits)]
        steps = [_scaled(f"{direction.name}_step", direction, "rate") for direction in directions]
        results.append(Result("master", spec.master_bits, (weight, *steps)))
        results.append(Result("working", spec.working_bits, (Term("kept", "new_master", spec.master_bits),)))
        return tuple(results)

    @cached_property
    def scalar_names(self) -> tuple[str, ...]:
        """The scalars of the code, all int64, in the order of its arguments."""
        names: list[str] = []
        for result in self.results:
            for term in result.terms:
                prefix = f"{result.name}_{term.name}_"
                names += [f"{prefix}multiplier"] if term.constants else []
                names += alignment_names(prefix, self.rounding) if len(result.terms) > 1 else ()
            names += output_names(f"{result.name}_", self.rounding)
            if self.rounding is Rounding.STOCHASTIC:
                names.append(f"{result.name}_key")
        return tuple(names)

    def scalars(self, exponents: UpdateExponents, rate: FixedConstant, draw: Draw | None) -> tuple[int, ...]:
        """Their values for a call."""
        constants = self._constants(rate)
        known = self._exponents(exponents, constants)
        stored = {"velocity": exponents.new_velocity, "master": exponents.new_master, "working": exponents.working}
        values: list[int] = []
        for number, result in enumerate(self.results, start=0 if self.spec.velocity_bits else 1):
            meeting = result.exponent(known)
            for term in result.terms:
                if term.constants:
                    values.append(_multiplier(term, constants))
                if len(result.terms) > 1:
                    left = _term_exponent(term, known) + term.halvings - meeting
                    values += alignment_values(left, self.rounding, CONTAINER)
            values += output_values(stored[result.name] - meeting, result.bits, self.rounding, CONTAINER)
            if self.rounding is Rounding.STOCHASTIC:
                if draw is None:
                    raise ValueError(f"{self.spec.name}: stochastic rounding needs a draw")
                values.append(signed64(draw_key(Draw(draw.seed, draw.tensor + number, draw.step))))
        return tuple(values)

    def value_exponents(self, exponents: UpdateExponents, rate: FixedConstant) -> tuple[int, ...]:
        """The exponent of each result's value before it is quantised."""
        known = self._exponents(exponents, self._constants(rate))
        return tuple(result.exponent(known) for result in self.results)

    def _constants(self, rate: FixedConstant) -> dict[str, FixedConstant]:
        constants = {"momentum": self.spec.momentum, "decay": self.spec.decay, "rate": rate}
        found = {name: constant for name, constant in constants.items() if constant is not None}
        for constant in found.values():
            if not 0 <= constant.multiplier < 1 << CONSTANT_BITS:
                raise ValueError(f"the constant {constant} of an update does not fit {CONSTANT_BITS} bits")
        return found

    @staticmethod
    def _exponents(exponents: UpdateExponents, constants: Mapping[str, FixedConstant]) -> dict[str, int]:
        return {
            "master": exponents.master,
            "velocity": exponents.velocity,
            "gradient": exponents.gradient,
            "new_velocity": exponents.new_velocity,
            "new_master": exponents.new_master,
            **{name: -constant.fraction_bits for name, constant in constants.items()},
        }


def _scaled(name: str, term: Term, constant: str) -> Term:
    return Term(name, term.tensor, term.bits + CONSTANT_BITS, (*term.constants, constant))


def _term_exponent(term: Term, exponents: Mapping[str, int]) -> int:
    return exponents[term.tensor] + sum(exponents[constant] for constant in term.constants)


def _multiplier(term: Term, constants: Mapping[str, FixedConstant]) -> int:
    """The product of a term's constants; a step goes against the gradient."""
    product = -1 if "rate" in term.constants else 1
    for constant in term.constants:
        product *= constants[constant].multiplier
    return product

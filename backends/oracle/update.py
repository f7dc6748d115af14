"""One step of SGD on mantissas: velocity, masters and the working copy of the next mini-batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.generator import draw_key, draws
from binpoint.backends.gradients import UpdateSpec
from binpoint.backends.kernel import BoolArray, Draw, Events, IntArray
from binpoint.backends.oracle.alignment import aligned, meeting_exponent, total
from binpoint.backends.oracle.exact import Integers, multiply
from binpoint.backends.oracle.fixed_point import container, quantize
from binpoint.backends.oracle.statistics import record
from binpoint.backends.training_backend import Updated, UpdateExponents, UpdateResult
from binpoint.support.numeric import FixedConstant, Rounding

ACCUMULATOR_BITS = 63
"""The accumulator of an update: sums fit into int64 whatever the terms."""

CONSTANT_BITS = 16
"""Width of the multipliers of momentum, decay and rate; they are not negative."""

Sample = BoolArray | None


@dataclass(frozen=True)
class Term:
    """One term of a sum: exact mantissas at 2^exponent, of a width that is known without looking at them."""

    mantissas: Integers
    exponent: int
    bits: int

    def times(self, constant: FixedConstant, sign: int = 1) -> Term:
        """The exact product with a constant, or with its negative."""
        if not 0 <= constant.multiplier < 1 << CONSTANT_BITS:
            raise ValueError(f"the constant {constant} of an update does not fit {CONSTANT_BITS} bits")
        product = multiply(self.mantissas, np.asarray(sign * constant.multiplier))
        return Term(product, self.exponent - constant.fraction_bits, self.bits + CONSTANT_BITS)


@dataclass(frozen=True)
class OracleUpdate:
    """The update of one parameter, elementwise; arrays are (K, C, R, S)."""

    spec: UpdateSpec
    rounding: Rounding

    def __call__(
        self,
        master: IntArray,
        velocity: IntArray | None,
        gradient: IntArray,
        exponents: UpdateExponents,
        rate: FixedConstant,
        *,
        sample: BoolArray | None = None,
        draw: Draw | None = None,
    ) -> UpdateResult:
        """One step; `velocity` is None exactly where the spec has no momentum."""
        spec = self.spec
        if (velocity is None) != (spec.momentum is None) or (spec.momentum is None) != (spec.velocity_bits is None):
            raise ValueError(f"{spec.name}: momentum and a velocity belong together")
        weight = Term(master.astype(np.int64), exponents.master, spec.master_bits)
        directions = [Term(gradient.astype(np.int64), exponents.gradient, spec.gradient_bits)]
        if spec.decay is not None:
            directions.append(weight.times(spec.decay))
        new_velocity = None
        if velocity is not None and spec.momentum is not None and spec.velocity_bits is not None:
            old = Term(velocity.astype(np.int64), exponents.velocity, spec.velocity_bits)
            moved = self._sum([old.times(spec.momentum), *directions])
            new_velocity = self._store(moved, exponents.new_velocity, spec.velocity_bits, sample, _numbered(draw, 0))
            directions = [Term(new_velocity.mantissas.astype(np.int64), exponents.new_velocity, spec.velocity_bits)]
        stepped = self._sum([weight, *(direction.times(rate, sign=-1) for direction in directions)])
        new_master = self._store(stepped, exponents.new_master, spec.master_bits, sample, _numbered(draw, 1))
        kept = new_master.mantissas.astype(np.int64), exponents.new_master
        working = self._store(kept, exponents.working, spec.working_bits, sample, _numbered(draw, 2))
        return UpdateResult(new_master, new_velocity, working)

    def _sum(self, terms: list[Term]) -> tuple[Integers, int]:
        """The sum of the terms at the exponent where they meet, and that exponent."""
        exponent = meeting_exponent([(term.exponent, term.bits) for term in terms], ACCUMULATOR_BITS)
        mantissas, exponents = [term.mantissas for term in terms], [term.exponent for term in terms]
        return total(aligned(mantissas, exponents, exponent, self.rounding)), exponent

    def _store(
        self, value: tuple[Integers, int], exponent: int, bits: int, sample: Sample, draw: Draw | None
    ) -> Updated:
        """Statistics of a value, then the value quantised."""
        values, from_exponent = value
        random = self._random(values.shape, draw) if self.rounding is Rounding.STOCHASTIC else None
        mantissas, saturated = quantize(values, exponent - from_exponent, bits, self.rounding, random)
        events = Events(
            results=values.size,
            saturated=int(np.count_nonzero(saturated)),
            underflowed=int(np.count_nonzero((values != 0) & (mantissas == 0))),
        )
        statistics = None if sample is None else record(values[sample], from_exponent)
        return Updated(mantissas.astype(container(bits)), statistics, events)

    def _random(self, shape: tuple[int, ...], draw: Draw | None) -> NDArray[np.uint64]:
        """The random number of each element, by its index in the tensor."""
        if draw is None:
            raise ValueError(f"{self.spec.name}: stochastic rounding needs a draw")
        return draws(draw_key(draw), np.arange(np.prod(shape)).reshape(shape))


def _numbered(draw: Draw | None, number: int) -> Draw | None:
    """The draw of one of the three results: velocity, master, working copy."""
    return None if draw is None else Draw(draw.seed, draw.tensor + number, draw.step)

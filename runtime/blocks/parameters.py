"""The parameters of kernels over blocks: exponents of weights, and biases where every sum can take them.

A PE adds the bias to a sum whose exponent it knows only then. So a bias is brought, once, to an exponent that no sum
is coarser than; from there it is shifted left, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from binpoint.backends.kernel import IntArray, KernelParameters, KernelSpec
from binpoint.backends.oracle.fixed_point import align
from binpoint.backends.program import KernelCall, Program
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.blocks.candidates import Candidates
from binpoint.support.numeric import Rounding


@dataclass(frozen=True)
class BoundCall:
    """A call with its parameters and their exponents: one for all output channels, or one each."""

    call: KernelCall
    parameters: KernelParameters
    weight_exponents: tuple[int, ...] = (0,)
    bias_exponents: tuple[int, ...] = (0,)

    @property
    def spec(self) -> KernelSpec:
        """What the kernel computes."""
        return self.call.spec


def bind(artifact: Artifact, program: Program, candidates: Mapping[str, Candidates]) -> Iterator[BoundCall]:
    """Every call of a program with its parameters, in order.

    Args:
        artifact: the parameters.
        program: the network.
        candidates: what inputs and quantised results can take.
    """
    coarsest = {name: each.exponents[0] for name, each in candidates.items()}
    for call in program.calls:
        source = call.inputs[0]
        if call.spec.name not in coarsest:
            coarsest[call.spec.name] = coarsest[source]
        weight = None if call.weight is None else artifact.mantissas[call.weight]
        exponents = (0,) if call.weight is None else _exponents(artifact, call.weight)
        if call.bias is None:
            yield BoundCall(call, KernelParameters(weight), exponents)
            continue
        stored, sums = artifact.exponents[call.bias], [coarsest[source] + exponent for exponent in exponents]
        targets = tuple(max(stored, exponent) for exponent in sums)
        bias = _aligned(artifact.mantissas[call.bias], stored, targets, call.spec.rounding)
        yield BoundCall(call, KernelParameters(weight, bias), exponents, targets)


def _exponents(artifact: Artifact, name: str) -> tuple[int, ...]:
    return artifact.channel_exponents.get(name) or (artifact.exponents[name],)


def _aligned(bias: IntArray, stored: int, targets: tuple[int, ...], rounding: Rounding) -> IntArray:
    """Mantissas at coarser exponents, rounded as the kernel rounds, stochastic ones half-even; they still fit."""
    aligned = np.empty_like(bias)
    each = np.broadcast_to(np.asarray(targets), bias.shape)
    for target in set(targets):
        chosen = each == target
        aligned[chosen] = align(bias[chosen].astype(np.int64), stored, target, rounding)
    return aligned

"""Where training starts from: the first masters, working copies and velocities (JP7367595B2 fig. 9, S2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.training_program import TrainingProgram, UpdateStep
from binpoint.runtime.conversion import dequantize, quantize
from binpoint.runtime.tensors import mantissa_dtype
from binpoint.runtime.training.host import StoredTensor
from binpoint.runtime.training.names import master_of, velocity_of


def first_tensors(
    program: TrainingProgram, parameters: Mapping[str, NDArray[Any]], exponents: Mapping[str, int]
) -> dict[str, StoredTensor]:
    """Masters from float parameters, working copies from the masters, velocities of 0; each rounded half-even.

    Args:
        program: names and widths.
        parameters: floats by name, with the elements of the program's shapes in that order.
        exponents: of masters, working copies and velocities.
    """
    velocity_bits = {step.parameter: step.spec.velocity_bits for step in program.steps if isinstance(step, UpdateStep)}
    tensors = {}
    for parameter in program.parameters:
        name, master, velocity = parameter.name, master_of(parameter.name), velocity_of(parameter.name)
        values = np.asarray(parameters[name]).reshape(parameter.shape)
        tensors[master] = _stored(values, exponents[master], parameter.master_bits)
        kept = dequantize(tensors[master].mantissas, exponents[master])
        tensors[name] = _stored(kept, exponents[name], parameter.bits)
        bits = velocity_bits.get(name)
        if bits is not None:
            zeros = np.zeros(parameter.shape, mantissa_dtype(bits))
            tensors[velocity] = StoredTensor(zeros, exponents[velocity])
    return tensors


def _stored(values: NDArray[Any], exponent: int, bits: int) -> StoredTensor:
    return StoredTensor(quantize(values, exponent, bits)[0], exponent)

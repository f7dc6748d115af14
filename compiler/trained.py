"""A trained network -> an artifact for inference, compiled as any other.

Batch normalisations are folded from their running statistics; what is folded starts from the masters, the most exact
numbers that there are. All other parameters are the working copies of training, mantissa by mantissa, and results keep
the exponents that training ended with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.program import KernelCall, Program
from binpoint.backends.training_program import KernelStep, Phase, TrainingProgram
from binpoint.compiler.block_defaults import with_one_exponent
from binpoint.compiler.network import NetworkGraph
from binpoint.compiler.parameters import Parameters
from binpoint.compiler.pipeline import CompileOptions, compile_network
from binpoint.runtime.conversion import quantize
from binpoint.runtime.manifest import Origin, Source
from binpoint.runtime.parameters import parameter_specs
from binpoint.support.diagnostics import user_error
from binpoint.support.target import Target

if TYPE_CHECKING:
    from binpoint.runtime.artifact import Artifact
    from binpoint.runtime.training.engine import TrainedNetwork


def compile_trained(
    network: NetworkGraph,
    program: TrainingProgram,
    first: Parameters,
    trained: TrainedNetwork,
    target: Target,
    batch: int,
) -> Artifact:
    """The artifact of a trained network.

    Args:
        network: the graph that was trained.
        program: what a mini-batch of its training did.
        first: parameters before training: those that do not lie before the loss still have these values.
        trained: parameters, running statistics and exponents.
        target: the PE array.
        batch: the images of a mini-batch in inference.

    Raises:
        UserError: a parameter or a running statistic has no value in float32, or a running variance is negative.
    """
    floats = _floats(network, first, trained)
    artifact = compile_network(with_one_exponent(network), floats, target, CompileOptions(batch)).artifact(
        Origin(Source.TRAINING)
    )
    if not trained.exponents:
        return artifact
    mantissas, exponents = dict(artifact.mantissas), dict(artifact.exponents)
    specs = parameter_specs(artifact.program)
    for name in _unfolded(network, artifact.program):
        if name not in trained.parameters:
            continue
        values, exponent = trained.parameters[name], trained.exponents[name]
        mantissas[name], _ = quantize(values.reshape(specs[name].shape), exponent, specs[name].bits)
        exponents[name] = exponent
    exponents |= _result_exponents(artifact.program, program, trained.exponents)
    return replace(artifact, mantissas=mantissas, exponents=exponents)


def _floats(network: NetworkGraph, first: Parameters, trained: TrainedNetwork) -> dict[str, NDArray[np.float32]]:
    """Masters and running statistics by the names and in the shapes of the network."""
    values: dict[str, NDArray[np.floating[Any]]] = {**first, **trained.masters, **trained.running}
    with np.errstate(over="ignore"):  # reported below, with the parameter's name
        floats = {
            name: values[name].reshape(shape).astype(np.float32) for name, shape in network.parameter_shapes().items()
        }
    for name, array in floats.items():
        if not np.isfinite(array).all():
            raise user_error(
                "diverged",
                f'training has left "{name}" without a value in float32',
                found=float(values[name].flat[int(np.argmin(np.isfinite(array)))]),
                expected="magnitudes below 2^128",
                hint="smaller input data, or a smaller learning rate, may help",
            )
    return floats


def _unfolded(network: NetworkGraph, program: Program) -> list[str]:
    """The parameters that a kernel reads as the network has them: no batch normalisation is folded into them."""
    norms = {name for name, layer in network.layers.items() if layer.kind == "batch_norm"}
    return [
        name
        for call in program.calls
        if norms.isdisjoint(call.fused)
        for name in (call.weight, call.bias)
        if name is not None
    ]


def _result_exponents(program: Program, training: TrainingProgram, exponents: Mapping[str, int]) -> dict[str, int]:
    """The exponents of inputs, and of results by the last layer that their kernels compute."""
    names = [declared.name for declared in program.inputs]
    found = {name: exponents[name] for name in names if name in exponents}
    forward = [step.call for step in training.steps if isinstance(step, KernelStep) and step.phase is Phase.FORWARD]
    by_layer = {_last_layer(call): exponents[call.spec.name] for call in forward if call.spec.name in exponents}
    return found | {
        call.spec.name: by_layer[_last_layer(call)]
        for call in program.calls
        if not call.spec.exact and _last_layer(call) in by_layer
    }


def _last_layer(call: KernelCall) -> str:
    return call.fused[-1] if call.fused else call.spec.name

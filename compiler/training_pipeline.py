"""Compiling for training: network graph -> nn dialect -> a training program of the fx dialect.

The program is read back from the verified IR: what is executed is what can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from xdsl.passes import ModulePass

from binpoint.backends.training_from_ir import training_program_from_module
from binpoint.backends.training_program import TrainingProgram
from binpoint.compiler.block_defaults import with_one_exponent
from binpoint.compiler.frontends.dsl.printer import print_network
from binpoint.compiler.network import NetworkGraph
from binpoint.compiler.pass_runner import Timing, Watcher
from binpoint.compiler.passes.canonicalize import Canonicalize
from binpoint.compiler.passes.differentiate import Differentiate
from binpoint.compiler.passes.fuse_activations import FuseActivations
from binpoint.compiler.passes.insert_loss import InsertLoss
from binpoint.compiler.passes.insert_statistics import InsertStatistics
from binpoint.compiler.passes.insert_updates import InsertUpdates
from binpoint.compiler.passes.lower_nn_to_training import LowerNnToTraining
from binpoint.compiler.passes.outline_kernels import OutlineKernels
from binpoint.compiler.passes.prove_accumulators import ProveAccumulators
from binpoint.compiler.pipeline import DEFAULT_BATCH, check_fit
from binpoint.compiler.proofs import AccumulatorProof, accumulator_proofs
from binpoint.compiler.stages import Stages
from binpoint.dialect.text import print_module
from binpoint.support.diagnostics import Diagnostic
from binpoint.support.target import Target

COEFFICIENT_BITS = 16
"""The width of the coefficients of batch normalisation, where the target's registers hold them."""

NN_PASSES: tuple[ModulePass, ...] = (InsertLoss(), Canonicalize())
"""The passes over real numbers, in order. Batch normalisations stay."""


@dataclass(frozen=True)
class TrainingOptions:
    """What a user may say beyond network and target.

    Attributes:
        batch: images of a mini-batch; the proofs of accumulators hold for it.
        momentum: of SGD, less than 1; without it there are no velocities.
        decay: weight decay of weights (not of biases, gamma and beta), less than 1.
        scale_exponent: the gradient of the loss is multiplied by 2^scale_exponent.
        watch: sees what every stage and pass leaves.
    """

    batch: int = DEFAULT_BATCH
    momentum: Fraction = Fraction(0)
    decay: Fraction = Fraction(0)
    scale_exponent: int = 0
    watch: Watcher | None = None


@dataclass(frozen=True)
class TrainingCompilation:
    """A network compiled for training.

    Attributes:
        nn: the network over real numbers, with its loss, as text.
        ir: the training program as text; `program` is read from it.
        proofs: one for every kernel that accumulates.
        missing: the statistics that the target lacks for the network's update rules.
        timings: one for every pass, and for every stage without passes.
    """

    program: TrainingProgram
    nn: str
    ir: str
    target: Target
    proofs: tuple[AccumulatorProof, ...]
    missing: tuple[Diagnostic, ...]
    timings: tuple[Timing, ...]


def training_passes(target: Target, options: TrainingOptions) -> tuple[ModulePass, ...]:
    """The passes to a training program and over it, in order."""
    bits, wraps = target.accumulator_bits, target.accumulator_wraps
    coefficient_bits = min(COEFFICIENT_BITS, target.register_bits)
    statistics = (InsertStatistics(target.acquires),) if target.statistics_pes else ()
    return (
        LowerNnToTraining(bits, wraps, target.name, options.batch, coefficient_bits, options.scale_exponent),
        FuseActivations(),
        OutlineKernels(),
        Differentiate(bits, wraps),
        InsertUpdates(str(options.momentum), str(options.decay)),
        ProveAccumulators(),
        *statistics,
    )


def compile_training(
    network: NetworkGraph, target: Target, options: TrainingOptions | None = None
) -> TrainingCompilation:
    """Compile a network to what one mini-batch of training computes on a target.

    Args:
        network: the graph.
        target: the PE array.
        options: batch, optimiser, watcher.

    Raises:
        UserError: the network does not fit the target, has no single loss or no parameter, or a layer has no gradient.
    """
    options = options or TrainingOptions()
    missing = check_fit(network, target, trained=True)
    network = with_one_exponent(network)
    stages = Stages(options.watch)
    stages.show("network.bp", lambda: print_network(network))
    module = stages.build(network, NN_PASSES)
    nn = print_module(module)
    stages.run(module, training_passes(target, options), "fx")
    with stages.timed("kernels", "read-steps"):
        program = training_program_from_module(module)
    return TrainingCompilation(
        program=program,
        nn=nn,
        ir=print_module(module),
        target=target,
        proofs=accumulator_proofs(module),
        missing=tuple(missing),
        timings=tuple(stages.timings),
    )

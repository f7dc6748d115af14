"""The stages of the compiler: network graph -> nn dialect -> fx dialect -> kernels -> schedule -> artifact.

Every stage is a function that takes the result of the one before. Reading the network file comes before
them, writing the artifact after; both belong to the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from binpoint.backends.from_ir import program_from_module
from binpoint.backends.program import Program
from binpoint.backends.workload import layer_workloads
from binpoint.compiler.block_defaults import has_blocks, pe_block, with_target_blocks
from binpoint.compiler.fit import target_misfits
from binpoint.compiler.frontends.dsl.printer import print_network
from binpoint.compiler.loose_prediction import LoosePrediction, loose_prediction
from binpoint.compiler.materialize import materialize_parameters
from binpoint.compiler.network import NetworkGraph
from binpoint.compiler.pass_runner import Timing, Watcher
from binpoint.compiler.passes.canonicalize import Canonicalize
from binpoint.compiler.passes.count_positions import CountPositions
from binpoint.compiler.passes.fold_batch_norm import FoldBatchNorm
from binpoint.compiler.passes.fuse_activations import FuseActivations
from binpoint.compiler.passes.insert_statistics import InsertStatistics
from binpoint.compiler.passes.lower_nn_to_fx import LowerNnToFx
from binpoint.compiler.passes.outline_kernels import OutlineKernels
from binpoint.compiler.passes.prove_accumulators import ProveAccumulators
from binpoint.compiler.passes.strip_loss import StripLoss
from binpoint.compiler.position_report import PositionReport, position_report
from binpoint.compiler.proofs import AccumulatorProof, accumulator_proofs
from binpoint.compiler.quantize_parameters import QuantizedParameters, quantize_parameters
from binpoint.compiler.stages import Stages
from binpoint.dialect.nn_network import NetworkOp
from binpoint.dialect.text import print_module
from binpoint.scheduling.allocation import schedule_network
from binpoint.scheduling.document import parse_schedule, print_schedule
from binpoint.scheduling.schedule import Schedule
from binpoint.support.detector import Detector
from binpoint.support.diagnostics import Diagnostic, UserError
from binpoint.support.files import read_text
from binpoint.support.numeric import NumericPolicy
from binpoint.support.target import Target

if TYPE_CHECKING:
    from binpoint.runtime.artifact import Artifact
    from binpoint.runtime.manifest import Origin

DEFAULT_BATCH = 64
"""Images of a mini-batch where the user says nothing."""

MISSING_STATISTICS = "missing-statistics"
"""The code of what only a run that follows statistics needs."""

NN_PASSES: tuple[ModulePass, ...] = (StripLoss(), FoldBatchNorm(), Canonicalize())
"""The passes over real numbers, in order."""


def fx_passes(target: Target, numeric: NumericPolicy | None = None) -> tuple[ModulePass, ...]:
    """The passes to fixed point and over it, in order, for one target and a network's whole policy.

    Without a policy they are those of a network that knows no blocks.
    """
    numeric = numeric or NumericPolicy()
    acquire = target.statistics_pes and not has_blocks(numeric)
    statistics = (InsertStatistics(target.acquires),) if acquire else ()
    return (
        LowerNnToFx(target.accumulator_bits, target.accumulator_wraps, target.name),
        FuseActivations(),
        ProveAccumulators(),
        CountPositions(*pe_block(target, numeric)),
        *statistics,
        OutlineKernels(),
    )


@dataclass(frozen=True)
class CompileOptions:
    """What a user may say beyond network, parameters and target.

    `batch` is the number of images of a mini-batch; None takes the edited schedule's, else DEFAULT_BATCH.
    `edited_schedule` is a schedule to obey; `watch` sees what every stage and pass leaves.
    """

    batch: int | None = None
    edited_schedule: Path | None = None
    watch: Watcher | None = None


@dataclass(frozen=True)
class Compilation:
    """A compiled network: the IR of both dialects as text, the program, its parameters, its schedule.

    Attributes:
        floats: the parameters in float32, by the names of the mantissas.
        detector: how to read detections out of the program's outputs, None where it detects nothing.
        edited: the schedule that the user gave, None where the target's allocation holds.
        positions: what the positions of blocks take, and how many a PE meets.
        proofs: one for every kernel that accumulates.
        missing: the statistics that the target lacks for the network's update rules.
        loose: the prediction of exponents that tolerates too much, if any.
        timings: one for every pass, and for every stage without passes.
    """

    program: Program
    nn: str
    fx: str
    target: Target
    parameters: QuantizedParameters
    floats: Mapping[str, NDArray[np.float32]]
    schedule: Schedule
    edited: Schedule | None
    proofs: tuple[AccumulatorProof, ...]
    missing: tuple[Diagnostic, ...]
    timings: tuple[Timing, ...]
    detector: Detector | None = None
    positions: PositionReport = PositionReport()
    loose: LoosePrediction | None = None

    def artifact(self, origin: Origin | None = None) -> Artifact:
        """What is written to a file; `origin` says where the parameters come from."""
        from binpoint.runtime.artifact import Artifact

        starts = {name: policy.initial for name, policy in self.program.policies.items() if policy.initial is not None}
        return Artifact(
            program=self.program,
            ir=self.fx,
            target=self.target,
            batch=self.schedule.images,
            mantissas=self.parameters.mantissas,
            exponents=starts | dict(self.parameters.exponents),
            floats=self.floats,
            schedule=self.edited,
            origin=origin,
            detector=self.detector,
            channel_exponents=self.parameters.channel_exponents,
        )


def lower_network(network: NetworkGraph, target: Target) -> Program:
    """The kernels of a network on a target, without parameters. Raises UserError."""
    network = with_target_blocks(network, target)
    check_fit(network, target)
    stages = _Stages()
    module = stages.nn(network)
    return stages.fx(module, target)


def compile_network(
    network: NetworkGraph,
    parameters: Mapping[str, NDArray[np.float32]],
    target: Target,
    options: CompileOptions | None = None,
) -> Compilation:
    """Compile a network for a target.

    Args:
        network: the graph.
        parameters: float32 arrays by the names and of the shapes of `network.parameter_shapes()`.
        target: the PE array.
        options: batch, edited schedule, watcher.

    Raises:
        UserError: the network does not fit the target, a parameter has no finite value after folding, the edited
            schedule does not fit.
    """
    options = options or CompileOptions()
    numeric = network.numeric
    network = with_target_blocks(network, target)
    missing = check_fit(network, target)
    stages = _Stages(options.watch)
    stages.show("network.bp", lambda: print_network(network))
    module = stages.nn(network)
    nn = print_module(module)
    with stages.timed("parameters", "materialize"):
        floats = materialize_parameters(_network_op(module), parameters)
    program = stages.fx(module, target)
    with stages.timed("parameters", "quantize"):
        quantized = quantize_parameters(program, floats)
    schedule, edited = stages.schedule(program, target, options)
    return Compilation(
        program=program,
        nn=nn,
        fx=print_module(module),
        target=target,
        parameters=quantized,
        floats=floats,
        schedule=schedule,
        edited=edited,
        proofs=accumulator_proofs(module),
        missing=tuple(missing),
        timings=tuple(stages.timings),
        detector=_detector(network, program),
        positions=position_report(program, module),
        loose=loose_prediction(program, numeric),
    )


class _Stages(Stages):
    """The stages of inference."""

    def nn(self, network: NetworkGraph) -> ModuleOp:
        """The graph as layers over real numbers, simplified."""
        return self.build(network, NN_PASSES)

    def fx(self, module: ModuleOp, target: Target) -> Program:
        """The layers as kernels; the module holds them afterwards."""
        self.run(module, fx_passes(target, _network_op(module).numeric.data), "fx")
        with self.timed("kernels", "read-kernels"):
            return program_from_module(module)

    def schedule(self, program: Program, target: Target, options: CompileOptions) -> tuple[Schedule, Schedule | None]:
        """The schedule of all layers, and the edited one that it obeys."""
        with self.timed("schedule", "schedule"):
            workloads = layer_workloads(program)
            edited, batch = None, options.batch
            if options.edited_schedule is not None:
                text = read_text(options.edited_schedule, "schedule")
                edited = parse_schedule(text, str(options.edited_schedule), program.name, workloads, target, batch)
                batch = edited.images
            schedule = schedule_network(program.name, workloads, batch or DEFAULT_BATCH, target, edited)
        self.show("schedule.json", lambda: print_schedule(schedule, target, {}))
        return schedule, edited


def _detector(network: NetworkGraph, program: Program) -> Detector | None:
    """The network's detector, with its heads under the names of the program's outputs."""
    if network.detector is None:
        return None
    names = dict(zip(network.outputs, program.outputs, strict=True))
    heads = tuple(replace(head, output=names[head.output]) for head in network.detector.heads)
    return replace(network.detector, heads=heads)


def _network_op(module: ModuleOp) -> NetworkOp:
    """The network that `build_nn` made."""
    return next(op for op in module.ops if isinstance(op, NetworkOp))


def check_fit(network: NetworkGraph, target: Target, trained: bool = False) -> list[Diagnostic]:
    """What the target lacks for a network but a run with fixed exponents does not need: statistics.

    `trained` says whether the network is compiled for training.

    Raises:
        UserError: with everything else that does not fit: operands and accumulators too wide.
    """
    misfits = target_misfits(network, target, trained)
    fatal = [misfit for misfit in misfits if misfit.code != MISSING_STATISTICS]
    if fatal:
        raise UserError(*fatal)
    return misfits

"""What `binpoint run` runs: an artifact, or a network compiled on the spot, in a session that fits its exponents."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from binpoint.cli.set_option import add_set_argument

if TYPE_CHECKING:
    from binpoint.backends.blocks import BlockBackend
    from binpoint.cli.backend_options import AnyBackend
    from binpoint.cli.run_report import Way
    from binpoint.runtime.artifact import Artifact
    from binpoint.runtime.blocks.session import BlockSession
    from binpoint.runtime.controllers import Controller
    from binpoint.runtime.execution import Executor
    from binpoint.runtime.session import Session

ARTIFACT = ".bpz"

FIXED, STATISTICS, BLOCKS, FRAME, CURRENT = EXPONENTS = ("fixed", "statistics", "blocks", "frame", "current")
"""Where exponents come from."""


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, and where its exponents come from."""
    parser.add_argument("artifact", type=Path, metavar="FILE", help="what `binpoint compile` wrote, or a network")
    network = parser.add_argument_group("a network instead of an artifact")
    network.add_argument("-t", "--target", help="compile it for this target (see `targets list`)")
    network.add_argument("--weights", type=Path, metavar="WEIGHTS", help="its weights (default: what it names)")
    add_set_argument(network)
    parser.add_argument(
        "--exponents",
        choices=EXPONENTS,
        help="keep the first exponents (fixed), let them follow statistics, one mini-batch late, find them block by "
        "block as compiled (blocks), or one a layer from the overflows of the previous frame (frame) or of a first "
        "pass over the same one (current); default blocks where the network has them, else fixed",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of stochastic rounding (default 0)")


def load_artifact(arguments: argparse.Namespace) -> Artifact:
    """The artifact that is run. Raises UserError."""
    from binpoint.runtime.artifact import read_artifact
    from binpoint.support.diagnostics import user_error

    path: Path = arguments.artifact
    given = [name for name, value in (("-t", arguments.target), ("--weights", arguments.weights)) if value]
    given += ["--set"] if arguments.set else []
    if path.suffix.lower() == ARTIFACT or not (given or _is_network(path)):
        if given:
            message, hint = (
                "an artifact is compiled already",
                "give the network instead: binpoint run NET -t TARGET ...",
            )
            raise user_error("contradicting-options", message, found=", ".join(given), hint=hint)
        return read_artifact(path)
    if arguments.target is None:
        message, expected = "a network needs a target to run on", "-t TARGET, or an artifact"
        raise user_error("needs-target", message, found=str(path), expected=expected)
    return _compiled(arguments)


def _is_network(path: Path) -> bool:
    return path.suffix.lower() in (".bp", ".onnx")


def _compiled(arguments: argparse.Namespace) -> Artifact:
    """The network, compiled in memory as `binpoint compile` does."""
    from binpoint.cli.compile import read_network, read_parameters
    from binpoint.compiler.pipeline import compile_network
    from binpoint.compiler.settings import apply_settings, parse_settings
    from binpoint.runtime.manifest import Origin, Source
    from binpoint.support.diagnostics import printable
    from binpoint.support.target_file import load_target

    settings = parse_settings(arguments.set)
    target = load_target(arguments.target)
    network, parameters = read_network(arguments.artifact, arguments.weights)
    network, target = apply_settings(network, target, settings)
    file = arguments.artifact if parameters is not None else arguments.weights or network.weights
    origin = Origin(Source.DRAW, seed=0) if file is None else Origin(Source.FILE, file=file.name)
    if parameters is None:
        parameters = read_parameters(network, arguments.weights, 0)
    compilation = compile_network(network, parameters, target)
    if compilation.loose is not None and arguments.exponents in (None, BLOCKS):
        print(f"warning: {printable(str(compilation.loose))}", file=sys.stderr)
    return compilation.artifact(origin)


def check_exponents(arguments: argparse.Namespace, artifact: Artifact) -> str:
    """Where exponents come from: as asked for, else as the network wants. Raises UserError for what cannot be."""
    from binpoint.support.diagnostics import Collector, Diagnostic

    has_blocks = artifact.program.has_blocks
    chosen: str = arguments.exponents or (BLOCKS if has_blocks else FIXED)
    collector, found = Collector(), f"--exponents {chosen}"
    if chosen == BLOCKS and not has_blocks:
        message = f'the network "{artifact.program.name}" has no blocks'
        hint = "compile it with --set 'numeric.exponent=block<4x4>', or for a target with blocks"
        collector.add(Diagnostic("no-blocks", message, found=found, hint=hint))
    if chosen == STATISTICS and has_blocks:
        message = "exponents of blocks follow what each block loses, not statistics"
        collector.add(
            Diagnostic("contradicting-options", message, found=found, expected="blocks, fixed, frame, current")
        )
    if arguments.literal and arguments.threads is not None and over_blocks(chosen, artifact):
        message, hint = "the literal PE has one thread", "leave --threads away"
        collector.add(Diagnostic("contradicting-options", message, found="--literal --threads", hint=hint))
    if arguments.snr and not over_blocks(chosen, artifact):
        message = "the signal-to-noise ratio of layers is measured in sessions over blocks"
        hint = "--exponents frame, or compile with blocks = analyse(candidates = 1)"
        collector.add(Diagnostic("contradicting-options", message, found=f"--snr {found}", hint=hint))
    collector.raise_any()
    return chosen


def over_blocks(exponents: str, artifact: Artifact) -> bool:
    """Whether a session over blocks is needed."""
    return artifact.program.has_blocks or exponents in (FRAME, CURRENT)


def open_session(
    artifact: Artifact, exponents: str, arguments: argparse.Namespace
) -> tuple[Session | BlockSession, Way]:
    """The session that fits, and how it executes the network."""
    from binpoint.cli.backend_options import chosen_threads, make_backend
    from binpoint.cli.run_report import Way

    blocks, batch = over_blocks(exponents, artifact), arguments.batch or artifact.batch
    if blocks and arguments.literal:
        from binpoint.backends.oracle.pe_backend import LiteralPeBackend

        pe = LiteralPeBackend()
        return _block_session(artifact, pe, exponents, arguments), Way(pe.name, 1, batch, literal=True)
    threads = chosen_threads(arguments.backend, arguments.threads)
    backend = make_backend(arguments.backend, threads)
    way = Way(backend.name, threads, batch, literal=arguments.literal)
    if blocks:
        return _block_session(artifact, backend, exponents, arguments), way
    return _plain_session(artifact, backend, exponents, arguments), way


def _block_session(
    artifact: Artifact, backend: BlockBackend, exponents: str, arguments: argparse.Namespace
) -> BlockSession:
    from binpoint.runtime.blocks.methods import Method
    from binpoint.runtime.blocks.session import BlockSession

    return BlockSession(artifact, backend, Method(exponents), seed=arguments.seed, compare=arguments.snr)


def _plain_session(artifact: Artifact, backend: AnyBackend, exponents: str, arguments: argparse.Namespace) -> Session:
    from binpoint.runtime.session import Session

    executor = _executor(backend, artifact, literal=arguments.literal)
    statistics = not arguments.no_statistics
    return Session(artifact, executor, _controller(exponents, artifact), seed=arguments.seed, statistics=statistics)


def _controller(name: str, artifact: Artifact) -> Controller:
    from binpoint.runtime.controllers import FixedController, StatisticsController

    if name == StatisticsController.name:
        return StatisticsController(artifact.program, artifact.floats, artifact.exponents, artifact.target)
    return FixedController(artifact.program, artifact.floats, artifact.exponents)


def _executor(backend: AnyBackend, artifact: Artifact, *, literal: bool) -> Executor:
    from binpoint.runtime.execution import LayerExecutor
    from binpoint.runtime.literal import LiteralExecutor

    if literal:
        return LiteralExecutor(backend, artifact.program, artifact.mantissas, artifact.target.tile)
    return LayerExecutor(backend, artifact.program, artifact.mantissas)

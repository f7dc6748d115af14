"""`binpoint train`: train a network in dynamic fixed point on a PE array, and write it as an artifact."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from binpoint.cli.backend_options import limit_blas
from binpoint.cli.train_options import add_train_arguments, check_options

if TYPE_CHECKING:
    from binpoint.cli.train_setup import Setup
    from binpoint.runtime.training.checkpoint import Checkpoint, CheckpointFolder
    from binpoint.runtime.training.engine import Engine
    from binpoint.runtime.training.line_file import LineFile

LOG, TRACE = "json", "trace"
"""The line files, as checkpoints name their positions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    add_train_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train, write the artifact, print what came out."""
    if arguments.float:
        limit_blas(arguments.threads)

    from binpoint.cli.train_report import Screen, facts, print_result
    from binpoint.cli.train_setup import counted_tensors, make_engine, set_up
    from binpoint.runtime.training.journal import Journal, LoggedDecisions
    from binpoint.runtime.training.loop import Hooks, TrainingLoop
    from binpoint.runtime.training.progress import Progress

    check_options(arguments)
    setup = set_up(arguments)
    folder = _folder(arguments, setup)
    checkpoint = None if folder is None else _checkpoint(folder, resume=arguments.resume)
    files = _open_files(arguments, checkpoint)
    with nullcontext() if folder is None or checkpoint is None else folder.restoring():
        engine = make_engine(arguments, setup, files.get(TRACE), None if checkpoint is None else checkpoint.snapshot)
        progress = Progress() if checkpoint is None else Progress.of_document(checkpoint.progress)
    counted = counted_tensors(arguments, setup)
    journal = Journal(files.get(LOG), setup.program.formats, counted, LoggedDecisions(arguments.log_decisions))
    if checkpoint is None:
        journal.start(facts(setup), engine.exponents)

    def keep(progress: Progress) -> None:
        if folder is not None:
            snapshot = engine.snapshot()  # which the trace shows: it ends behind
            positions = {name: file.position() for name, file in files.items()}
            folder.write(snapshot, progress.document(), positions)

    with Screen(setup, progress) as screen:
        hooks = Hooks(screen.show_step, screen.show_epoch, keep, arguments.checkpoint_every)
        loop = TrainingLoop(engine, setup.training, setup.testing, setup.options, journal, counted, hooks)
        progress = loop.run(progress)
    if arguments.output is not None:
        _write(arguments.output, setup, engine)
    for file in files.values():
        file.close()
    print_result(setup, progress, arguments.output)
    for warning in screen.warnings():
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def _folder(arguments: argparse.Namespace, setup: Setup) -> CheckpointFolder | None:
    from binpoint.cli.train_setup import identity
    from binpoint.runtime.training.checkpoint import CheckpointFolder

    if arguments.checkpoint is None:
        return None
    return CheckpointFolder(arguments.checkpoint, identity(arguments, setup))


def _checkpoint(folder: CheckpointFolder, *, resume: bool) -> Checkpoint | None:
    """The checkpoint to go on from, None to start anew. An old one is never overwritten by a new training."""
    from binpoint.support.diagnostics import Location, user_error

    if resume:
        return folder.read()
    if folder.path.exists():
        hint = "go on with --resume, or remove it"
        message = "there is a checkpoint already"
        raise user_error("checkpoint-exists", message, location=Location(str(folder.path)), hint=hint)
    return None


def _open_files(arguments: argparse.Namespace, checkpoint: Checkpoint | None) -> dict[str, LineFile]:
    """The log and the trace, cut to where the checkpoint was taken."""
    from binpoint.runtime.training.line_file import LineFile

    positions = {} if checkpoint is None else checkpoint.positions
    paths: dict[str, Path | None] = {LOG: arguments.json, TRACE: arguments.trace}
    return {name: LineFile(path, positions.get(name)) for name, path in paths.items() if path is not None}


def _write(path: Path, setup: Setup, engine: Engine) -> None:
    from binpoint.compiler.trained import compile_trained
    from binpoint.runtime.artifact import write_artifact

    trained, batch = engine.trained(), setup.options.batch
    artifact = compile_trained(setup.network, setup.program, setup.parameters, trained, setup.target, batch)
    write_artifact(path, artifact)

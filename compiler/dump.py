"""`--dump-dir`: what every stage and pass leaves, as numbered files, and how long each took."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from binpoint.compiler.pass_registry import ALL_PASSES
from binpoint.support.diagnostics import Location, user_error
from binpoint.support.files import make_directory, remove_file, write_atomically

if TYPE_CHECKING:
    from binpoint.compiler.pass_runner import Timing

TIMES = "times.json"

_STAGES = ("network.bp", "nn.mlir", "schedule.json", *(f"{name}.mlir" for name in ALL_PASSES))
"""What the numbers of files are followed by."""


def check_dump(directory: Path, inputs: Iterable[Path]) -> None:
    """Refuse, before any work is done, to replace an input that an earlier dump has left. Raises UserError."""
    for path in inputs:
        if path.exists() and path.resolve() in [file.resolve() for file in _earlier_files(directory)]:
            message, hint = "the dump would replace an input", "copy the file to another place, or dump into another"
            raise user_error("same-file", message, location=Location(str(path)), hint=hint)


def _earlier_files(directory: Path) -> list[Path]:
    """The files of the directory that a dump has written: a number and what it is of."""
    if not directory.is_dir():
        return []
    parts = ((path, re.fullmatch(r"[0-9]{2,}-(.+)", path.name)) for path in sorted(directory.iterdir()))
    stages = [path for path, match in parts if match is not None and match[1] in _STAGES and path.is_file()]
    return [*stages, *(path for path in (directory / TIMES,) if path.is_file())]


class DumpDirectory:
    """A watcher that writes 00-network.bp, 01-nn.mlir, 02-strip-loss.mlir and so on.

    Args:
        directory: is created where it does not exist. The files of an earlier dump are removed, so that what is
            there afterwards is of one compilation; files of other names stay.

    Raises:
        UserError: the directory cannot be created, or a file in it not be removed.
    """

    def __init__(self, directory: Path) -> None:
        make_directory(directory)
        for path in _earlier_files(directory):
            remove_file(path)
        self.directory = directory
        self._count = 0

    def __call__(self, name: str, text: Callable[[], str]) -> None:
        """Write the next file. Raises UserError."""
        write_atomically(self.directory / f"{self._count:02}-{name}", text())
        self._count += 1

    def write_times(self, timings: Sequence[Timing]) -> None:
        """Write the time of each step, in seconds. Raises UserError."""
        steps = [asdict(timing) for timing in timings]
        write_atomically(self.directory / TIMES, json.dumps(steps, indent=2) + "\n")

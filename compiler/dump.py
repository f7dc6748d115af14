"""`--dump-dir`: what every stage and pass leaves, as numbered files, and how long each took."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from binpoint.support.files import make_directory, write_atomically

if TYPE_CHECKING:
    from binpoint.compiler.pass_runner import Timing

TIMES = "times.json"


class DumpDirectory:
    """A watcher that writes 00-network.bp, 01-nn.mlir, 02-strip-loss.mlir and so on.

    Args:
        directory: is created where it does not exist; files of the same names are replaced.
    """

    def __init__(self, directory: Path) -> None:
        make_directory(directory)
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

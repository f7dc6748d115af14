"""What `train` shows: a live table on standard error while it runs, and the epochs at its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from math import prod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from binpoint.cli.output import console, print_table

if TYPE_CHECKING:
    from rich.table import Table

    from binpoint.cli.train_setup import Setup
    from binpoint.runtime.training.loop import StepReport
    from binpoint.runtime.training.progress import EpochResult, EpochSums, Progress

REFRESH_SECONDS = 0.25
"""The live table changes so often at most."""

LIVE_COLUMNS = ("epoch", "step", "loss", "accuracy", "test", "saturation", "exponent changes", "images/s")
COLUMNS = LIVE_COLUMNS[:-1]


class Screen:
    """The live table: a row for each epoch that is over, one for the one that runs. Shown only on a terminal."""

    def __init__(self, setup: Setup, progress: Progress) -> None:
        from rich.live import Live

        screen = console(stderr=True)
        self._progress = progress
        self._title = f"{setup.program.name} on {setup.target.name}"
        self._report: StepReport | None = None
        self._clamps, self._overflows = Counter[str](), Counter[str]()
        self._ranges = {name: each.policy.exponent_range for name, each in setup.program.formats.items()}
        self._shown = 0.0
        self._live = Live(console=screen, auto_refresh=False, transient=True) if screen.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show_step(self, report: StepReport) -> None:
        """Take one more mini-batch."""
        self._report = report
        self._clamps.update(name for name, decision in report.batch.decisions.items() if decision.clamped)
        overflows = {name: each.accumulator_overflows for name, each in report.batch.events.items()}
        self._overflows.update({name: count for name, count in overflows.items() if count})
        now = time.monotonic()
        if self._live is not None and now - self._shown >= REFRESH_SECONDS:
            self._shown = now
            self._live.update(self._table(), refresh=True)

    def show_epoch(self, result: EpochResult) -> None:
        """An epoch is over."""
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def warnings(self) -> Iterator[str]:
        """What the user should know: clamped exponents, overflows of accumulators."""
        for name, times in self._clamps.items():
            low, high = self._ranges[name]
            yield f'the exponent of "{name}" was kept between {low} and {high} {times} time{"s" * (times > 1)}'
        for name, count in self._overflows.items():
            yield f'{count} result{"s" * (count > 1)} of "{name}" overflowed the accumulator'

    def _table(self) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(title=self._title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
        for column in LIVE_COLUMNS:
            table.add_column(column, justify="right", no_wrap=True)
        for result in self._progress.epochs:
            table.add_row(*_row(result), "")
        report, sums = self._report, self._progress.sums
        if report is not None and sums.images:
            table.add_row(*_running_row(report, sums), f"{report.images_per_second:,.0f}")
        return table


def facts(setup: Setup) -> dict[str, Any]:
    """What is trained and how, for the log."""
    from binpoint.runtime.training.areas import plan_areas, total_bytes

    options = setup.options
    return {
        "network": setup.program.name,
        "target": setup.target.name,
        "training_images": len(setup.training),
        "test_images": None if setup.testing is None else len(setup.testing),
        "batch": options.batch,
        "learning_rate": str(options.rate),
        "learning_rate_schedule": str(options.schedule),
        "seed": options.seed,
        "epochs": options.epochs,
        "steps": options.steps,
        "target_accuracy": None if options.target_accuracy is None else float(options.target_accuracy),
        "parameters": sum(prod(each.shape) for each in setup.program.parameters),
        "dram_bytes": total_bytes(plan_areas(setup.program, options.batch)),
    }


def print_result(setup: Setup, progress: Progress, output: Path | None) -> None:
    """The epochs, why training ended, and what was written."""
    title = f"{setup.program.name} on {setup.target.name}"
    print_table(title, COLUMNS, [_row(result) for result in progress.epochs])
    why = {
        "epochs": "all epochs are over",
        "steps": "all steps are over",
        "target-accuracy": "the target accuracy is reached",
    }
    reason = "" if progress.ending is None else f": {why[progress.ending]}"
    batch = min(setup.options.batch, len(setup.training))
    print(f"{_counted(progress.step, 'mini-batch', 'es')} of {_counted(batch, 'image', 's')}{reason}")
    if output is not None:
        print(f"wrote {output} ({output.stat().st_size:,} bytes)")


def _counted(count: int, noun: str, ending: str) -> str:
    return f"{count:,} {noun}{ending if count != 1 else ''}"


def _row(result: EpochResult) -> tuple[str, ...]:
    return (
        str(result.epoch),
        f"{result.step:,}",
        f"{result.loss:.4f}",
        f"{result.accuracy:.2%}",
        "-" if result.test_accuracy is None else f"{result.test_accuracy:.2%}",
        f"{result.saturation:.1e}",
        f"{result.exponent_changes:,}",
    )


def _running_row(report: StepReport, sums: EpochSums) -> tuple[str, ...]:
    return (
        str(report.epoch),
        f"{report.step:,} of {report.steps:,}",
        f"{sums.loss / sums.images:.4f}",
        f"{sums.correct / sums.images:.2%}",
        "",
        f"{sums.saturated / sums.results if sums.results else 0.0:.1e}",
        f"{sums.exponent_changes:,}",
    )

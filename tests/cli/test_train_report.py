from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from binpoint.backends.kernel import Events
from binpoint.cli.train_report import Screen
from binpoint.runtime.training.engine import MiniBatch
from binpoint.runtime.training.loop import StepReport
from binpoint.runtime.training.progress import Progress
from tests.training_programs import TARGET, trainable

SETUP = SimpleNamespace(program=trainable(), target=TARGET)


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    """What two mini-batches and the end of an epoch leave on the screen."""
    stream = io.StringIO()
    screen = Console(file=stream, force_terminal=terminal, width=120)
    monkeypatch.setattr("binpoint.cli.train_report.console", lambda **_: screen)
    monkeypatch.setattr("binpoint.cli.train_report.REFRESH_SECONDS", 0.0)
    progress = Progress()
    with Screen(SETUP, progress) as live:
        for number, loss in enumerate((2.0, 1.0), 1):
            batch = MiniBatch(loss, 4, 8, {"conv": Events(100, saturated=1)})
            progress.add(batch, {"conv"})
            live.show_step(StepReport(number, 16, 1, batch, 1234.5))
        live.show_epoch(progress.end_epoch(1, 0.75))
    return stream.getvalue()


def test_a_terminal_shows_the_running_epoch_and_those_that_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True)
    assert "plain on tests" in text
    running = text.index("2 of 16")
    for part in ("1.5000", "50.00%", "1.0e-02", "1,234"):
        assert part in text[running:], part
    assert "75.00%" in text


def test_nothing_is_shown_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, terminal=False) == ""


def test_overflows_of_accumulators_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("binpoint.cli.train_report.console", lambda **_: Console(file=io.StringIO()))
    screen = Screen(SETUP, Progress())
    for overflows in (0, 1, 2):
        batch = MiniBatch(1.0, 0, 8, {"conv": Events(9, accumulator_overflows=overflows)})
        screen.show_step(StepReport(1, 2, 1, batch, 1.0))
    assert list(screen.warnings()) == ['3 results of "conv" overflowed the accumulator']

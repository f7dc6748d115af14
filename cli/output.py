"""What verbs print: JSON, tables and progress, the same way everywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from binpoint.support.diagnostics import printable

if TYPE_CHECKING:
    from rich.console import Console


class Advance(Protocol):
    """Called after each step of a long operation."""

    def __call__(self, steps: int = 1) -> None:
        """Move the bar by that many steps."""


def console(*, stderr: bool = False) -> Console:
    """A rich console; it respects NO_COLOR, and is plain where the stream is no terminal.

    Texts are shown as they are: nothing in them is markup.
    """
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to `main`; rich would exit with 1."""
            raise BrokenPipeError

    return Screen(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_json(value: object) -> None:
    """One JSON document on standard output, with escapes where its encoding has not all characters."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    print(text)


MAXIMUM_WIDTH = 10_000
"""Columns of the widest table that is printed whole."""


def print_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on standard output; columns whose cells are all numbers are right-aligned.

    Nothing is cut: a table wider than the terminal runs over its edge. Control characters in names are replaced.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    cells = [["" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    title = None if title is None else printable(title)
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(cells) and all(not row[index] or row[index][0] in "+-0123456789" for row in cells)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in cells:
        table.add_row(*row)
    screen = console()
    table.width = screen.measure(table, options=screen.options.update(max_width=MAXIMUM_WIDTH)).maximum
    screen.width = max(screen.width, table.width)  # rich prints nothing at all where COLUMNS is 0
    screen.print(table)


@contextmanager
def progress(description: str, total: int) -> Iterator[Advance]:
    """A progress bar on standard error, shown only on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, disable=not screen.is_terminal, transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda steps=1: bar.advance(task, steps)

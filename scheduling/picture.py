"""The allocation as text, in the manner of JP7367595B2 figs. 4, 7 and 8: a cell a PE, statistics PEs in brackets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from binpoint.scheduling.schedule import LayerSchedule
from binpoint.support.target import Target

if TYPE_CHECKING:
    from rich.text import Text

MAXIMUM_ROWS = 24
"""Rows of PEs that are shown of one round; the ones in between are elided."""

IMAGE_STYLES = ("cyan", "green", "yellow", "magenta", "blue")
"""Colours that tell neighbouring images apart, used in turn. Nothing is said by colour alone."""

_IDLE = "."


@dataclass(frozen=True)
class Cell:
    """What the picture says of one PE in one round: its images and channels, empty where it idles."""

    images: str
    channels: str
    colour: int


NO_WORK = Cell("", "", 0)
"""The cell of a PE that idles."""


def draw_round(schedule: LayerSchedule, target: Target, number: int, width: int) -> Text:
    """One round of a layer as a rich text of at most `width` columns.

    A row holds a row of the target's grid where that fits, else as many PEs as fit, preferably a divisor or
    multiple of the spacing of the statistics PEs, so that these stand below each other. Rows in the middle of a
    long round and idle rows at its end are elided.
    """
    from rich.text import Text

    cells = busy_cells(schedule, number)
    widths = max(len(cell.images) for cell in cells.values()), max(len(cell.channels) for cell in cells.values())
    margin = len(f"PE {schedule.pes - 1}") + 1
    row_length = _row_length(target, (width - margin) // (sum(widths) + 3))
    busy = 1 + max(cells) // row_length
    text = Text(_heading(schedule, target, number), style="bold", end="")
    for index in _shown_rows(busy):
        start = 0 if index is None else index * row_length
        text.append(f"\n{'...' if index is None else f'PE {start}':<{margin}}", style="dim")
        for pe in [] if index is None else range(start, min(start + row_length, schedule.pes)):
            text.append_text(_draw_cell(cells.get(pe, NO_WORK), bool(target.statistics_mask[pe]), *widths))
    if busy * row_length < schedule.pes:
        text.append(f"\nPE {busy * row_length} to {schedule.pes - 1} idle", style="dim")
    text.append(f"\nimage:channel   [image:channel] on a PE with a statistics circuit   {_IDLE} idle", style="dim")
    return text


def busy_cells(schedule: LayerSchedule, number: int) -> dict[int, Cell]:
    """The cells of the PEs that have work in one round, by the number of the PE."""
    cells = {}
    for i, j in np.argwhere(schedule.round == number).tolist():
        images, channels = schedule.tiling.pairs_of((i, j))
        cells[int(schedule.pe[i, j])] = Cell(_span(images), _span(channels), i)
    return cells


def _heading(schedule: LayerSchedule, target: Target, number: int) -> str:
    rounds = "its only round" if schedule.rounds == 1 else f"round {number} of 0 to {schedule.rounds - 1}"
    size = f"{schedule.images} images x {schedule.channels} channels"
    return f"{schedule.layer} ({size}) on {target.name}, {rounds}"


def _draw_cell(cell: Cell, statistics: bool, images_width: int, channels_width: int) -> Text:
    from rich.text import Text

    opening, closing = ("[", "]") if statistics else (" ", " ")
    style = IMAGE_STYLES[cell.colour % len(IMAGE_STYLES)] if cell.images else "dim"
    if statistics:
        style += " bold reverse"
    middle = f"{cell.images:>{images_width}}:{cell.channels:<{channels_width}}"
    if not cell.images:
        middle = f"{_IDLE:^{images_width + 1 + channels_width}}"
    return Text.assemble((f"{opening}{middle}{closing}", style))


def _row_length(target: Target, fitting: int) -> int:
    """How many PEs stand in a row when `fitting` would fit."""
    if target.grid[1] <= fitting:
        return target.grid[1]
    most = max(1, min(fitting, target.pes))
    spacing = target.statistics_spacing
    if spacing is None:
        return most
    aligned = [length for length in range(1, most + 1) if spacing % length == 0 or length % spacing == 0]
    return aligned[-1] if 2 * aligned[-1] > most else most


def _shown_rows(rows: int) -> list[int | None]:
    """The rows to show, with None where some are left out."""
    if rows <= MAXIMUM_ROWS:
        return list(range(rows))
    tail = MAXIMUM_ROWS // 4
    return [*range(MAXIMUM_ROWS - tail), None, *range(rows - tail, rows)]


def _span(numbers: range) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"

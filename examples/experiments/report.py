"""What experiments share: their options, and the CSV and the plot that each leaves."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binpoint.support.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
NETWORKS = ROOT / "examples" / "networks"
MNIST = f"mnist:{ROOT / 'examples' / 'data' / 'mnist'}"
RESULTS = ROOT / "examples" / "experiments" / "results"

RESOLUTION_DPI = 100


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every experiment has; the description is the module's docstring."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=formatter)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help=f"folder of the results (default {RESULTS})")
    return parser


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows with their keys as columns, whole or not at all; what a row lacks stays empty."""
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue())


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a file that `write_csv` wrote, none where there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_plot(path: Path, figure: Figure) -> None:
    """Write a figure as PNG of 256 colours, whole or not at all; the same figure gives the same bytes."""
    from PIL import Image

    drawn, stream = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=RESOLUTION_DPI)
    Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(stream, format="png", optimize=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, stream.getvalue())


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows as an aligned table on standard output."""
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

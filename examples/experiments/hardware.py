"""What exponents of blocks cost in hardware, in both embodiments of JP7819764B2.

    python -m examples.experiments.hardware [--map 16x448x448 ...] [--inputs 16]

The shipped targets, with positions shared by channels and per channel. The figures are those of `binpoint targets
hardware`; docs/targets.md has their formulas. hardware.csv has a row for each design and map; hardware.png draws what
differs between the designs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import floor, log10
from typing import TYPE_CHECKING, Any

from binpoint.scheduling.block_hardware import BlockWork, block_hardware
from binpoint.support.target import Target
from binpoint.support.target_file import load_target
from examples.experiments.report import options, print_table, write_csv, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]

TARGETS = {"block16": "analyse", "block16-neighbour": "predict"}
SHARING = {False: "shared", True: "per channel"}

PANELS = {
    "delay_buffer_bits_array": ("results that wait for their position: delay buffers of all PEs", "bits"),
    "analysis_storage_bits_array": ("what neighbouring blocks lost: storage of the array", "bits"),
    "position_bits_frame": ("positions of a frame's map", "bits"),
    "latency_cycles_block": ("a block from its first product to its results", "cycles"),
}
"""The figures that differ between the designs."""

COMMON = {"multipliers": "multipliers", "shifters": "barrel shifters", "comparators": "comparators"}
"""Those that do not."""

COLOURS = ("#1f78b4", "#6baed6", "#1b7837", "#5aae61")


def main() -> None:
    """Write hardware.csv and hardware.png."""
    parser = options(__doc__)
    default = [(16, 448, 448), (64, 112, 112), (256, 28, 28), (1024, 14, 14)]
    parser.add_argument("--map", type=_shape, nargs="+", default=default, metavar="CxHxW", help="maps of results")
    parser.add_argument("--inputs", type=int, metavar="C", help="input channels (default: half as many as results)")
    parser.add_argument("--bits", type=int, default=8, help="of a result (default 8)")
    arguments = parser.parse_args()
    rows = [
        row(design, BlockWork(shape, arguments.inputs or max(1, shape[0] // 2), arguments.bits))
        for shape in arguments.map
        for design in designs()
    ]
    shown = ("map", "inputs", "target", "sharing", *PANELS, "position_share")
    print_table([{name: each[name] for name in shown} for each in rows])
    write_csv(arguments.output / "hardware.csv", rows)
    write_plot(arguments.output / "hardware.png", draw(rows))
    print(f"results are in {arguments.output}")


def designs() -> list[Target]:
    """Each shipped target with both kinds of sharing."""
    found = []
    for name in TARGETS:
        target = load_target(name)
        if target.blocks is None:
            raise ValueError(f"{name} has no blocks")
        found += [replace(target, blocks=replace(target.blocks, per_channel=each)) for each in SHARING]
    return found


def row(target: Target, work: BlockWork) -> Row:
    """One design and one map."""
    if target.blocks is None:
        raise ValueError(f"{target.name} has no blocks")
    found = block_hardware(target, work)
    shape = "x".join(map(str, work.map))
    names = {"map": shape, "inputs": work.input_channels, "target": target.name}
    figures = {**asdict(found), "shifters": found.shifters}
    share = 100 * found.position_bits_frame / found.mantissa_bits_frame
    return {**names, "sharing": SHARING[target.blocks.per_channel], **figures, "position_share": share}


def draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A plot a figure, a group a map, a bar a design."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8.4), layout="constrained")
    counts = ", ".join(f"{rows[0][name]:,} {label}" for name, label in COMMON.items())
    figure.suptitle(f"An exponent a block in hardware (JP7819764B2); a PE of any design has {counts}", fontsize=11)
    axes = figure.subplots(2, 2).ravel()
    for ax, (name, (title, unit)) in zip(axes, PANELS.items(), strict=True):
        _draw_panel(ax, rows, name)
        ax.set_title(title, fontsize=10)
        ax.set_ylabel(unit)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw_panel(ax: Axes, rows: Sequence[Mapping[str, Any]], name: str) -> None:
    maps = list(dict.fromkeys(row["map"] for row in rows))
    kinds = list(dict.fromkeys((row["target"], row["sharing"]) for row in rows))
    width = 0.8 / len(kinds)
    for index, kind in enumerate(kinds):
        values = [float(row[name]) for row in rows if (row["target"], row["sharing"]) == kind]
        places = [group + width * (index - (len(kinds) - 1) / 2) for group in range(len(maps))]
        ax.bar(places, values, width, color=COLOURS[index % len(COLOURS)], label=f"{TARGETS[kind[0]]}, {kind[1]}")
        for place, value in zip(places, values, strict=True):
            if not value:
                text = ax.text(place, 0.01, "none", rotation=90, ha="center", va="bottom", fontsize=7, color="dimgrey")
                text.set_transform(ax.get_xaxis_transform())
    ax.set_yscale("log")
    smallest = min((float(row[name]) for row in rows if row[name]), default=1.0)
    ax.set_ylim(bottom=10 ** floor(log10(smallest) - 0.2))
    ax.set_xticks(range(len(maps)), maps, fontsize=9)
    ax.set_xlabel("map of results, channels x height x width", fontsize=9)
    ax.grid(alpha=0.3, axis="y")


def _shape(text: str) -> tuple[int, int, int]:
    """CxHxW."""
    try:
        channels, height, width = (int(part) for part in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not of the form 16x448x448") from None
    return channels, height, width


if __name__ == "__main__":
    main()

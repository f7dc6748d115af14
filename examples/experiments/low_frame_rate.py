"""Positions from the previous frame (WO2022/003855), when frames follow each other fast and when they do not.

    python -m examples.experiments.low_frame_rate yolov3-tiny.cfg yolov3-tiny.weights FOLDER... [--bits 8 6]
        [--ways previous-frame current-frame shared channel ...]

Each folder is a stream of numbered frames. Every way runs on every stream. What a way loses by a low frame rate shows
beside `current-frame`, which chooses by the same rule from the frame itself: positions of a layer that differ, results
that saturate, decibels and detections that are lost.

low_frame_rate.csv has a row for each way, width and stream, low_frame_rate_frames.csv for each frame of them.
low_frame_rate.png draws both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from binpoint.runtime.blocks.report import MapReport, snr_db
from binpoint.runtime.detection.agreement import Agreement, agreement
from binpoint.runtime.detection.frames import list_frames
from examples.experiments.block_plots import MEASURES
from examples.experiments.detector import CHANNEL, COLOURS, LAYER, WAYS, Case, Subject, detector_options, load_subject
from examples.experiments.report import print_table, write_csv, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]

PREVIOUS, CURRENT = "previous-frame", "current-frame"
DEFAULT_WAYS = ("calibrated", PREVIOUS, CURRENT, "shared", "channel")


@dataclass(frozen=True)
class Frame:
    """What one frame gave.

    Attributes:
        found: how its detections agree with those of floating point.
        positions: the exponents that blocks of each map took, and how often.
        saturated, results: counts over all maps.
        snr_db: of each of the network's outputs.
    """

    found: Agreement
    positions: Mapping[str, Counter[int]]
    saturated: int
    results: int
    snr_db: tuple[float, ...]


def main() -> None:
    """Run every way on every stream, write and draw."""
    parser = detector_options(__doc__)
    parser.add_argument(
        "streams", type=Path, nargs="+", metavar="FOLDER", help="numbered frames, as run --frames reads"
    )
    parser.add_argument("--bits", type=int, nargs="+", default=[8, 6], help="of activations (default 8 and 6)")
    parser.add_argument("--weights-per", choices=[LAYER, CHANNEL], default=CHANNEL)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(DEFAULT_WAYS))
    arguments = parser.parse_args()
    streams = {folder.name: list_frames(folder) for folder in arguments.streams}
    subject = load_subject(arguments, [path for paths in streams.values() for path in paths])
    found: dict[tuple[str, int, str], list[Frame]] = {}
    for bits in arguments.bits:
        for way in arguments.ways:
            for stream, paths in streams.items():
                found[way, bits, stream] = run(subject, Case(way, bits, arguments.weights_per), paths)
                print(f"{stream}: {way}, {bits} bits", flush=True)
    rows = [summarise(key, frames, found.get((CURRENT, *key[1:]))) for key, frames in found.items()]
    print_table(rows)
    write_csv(arguments.output / "low_frame_rate.csv", rows)
    write_csv(arguments.output / "low_frame_rate_frames.csv", frame_rows(found))
    write_plot(arguments.output / "low_frame_rate.png", draw(rows, subject.name))
    print(f"results are in {arguments.output}")


def run(subject: Subject, case: Case, paths: Sequence[Path]) -> list[Frame]:
    """All frames of a stream, in order, through one session."""
    frames = []
    before: dict[str, MapReport] = {}
    for result, session in subject.run(case, paths):
        reports = {each.name: each for each in (*session.inputs, *session.layers) if each.candidates is not None}
        found = agreement(result.detections, result.in_float or ())
        frames.append(_frame(found, reports, before, session.program.outputs))
        before = reports
    return frames


def _frame(
    found: Agreement, reports: Mapping[str, MapReport], before: Mapping[str, MapReport], outputs: Sequence[str]
) -> Frame:
    """What the last frame added to the reports of a session."""

    def added(name: str) -> MapReport:
        return before.get(name, MapReport(name, reports[name].tensor, None))

    return Frame(
        found,
        {name: report.blocks - added(name).blocks for name, report in reports.items()},
        sum(report.events.saturated - added(name).events.saturated for name, report in reports.items()),
        sum(report.events.results - added(name).events.results for name, report in reports.items()),
        tuple(
            snr_db(reports[name].signal - added(name).signal, reports[name].noise - added(name).noise) or 0.0
            for name in outputs
        ),
    )


def summarise(key: tuple[str, int, str], frames: Sequence[Frame], current: Sequence[Frame] | None) -> Row:
    """A way on a stream as a row, from its second frame on: the first has none before it."""
    way, bits, stream = key
    later = frames[1:] or frames
    total = sum((frame.found for frame in later), Agreement())
    row: Row = {
        "way": way,
        "bits": bits,
        "stream": stream,
        "frames": len(later),
        "float_detections": total.reference,
        "f1": total.f1,
        "precision": total.precision,
        "recall": total.recall,
        "snr_db": mean(mean(frame.snr_db) for frame in later),
        "lowest_snr_db": min(mean(frame.snr_db) for frame in later),
        "saturated": sum(frame.saturated for frame in later) / sum(frame.results for frame in later),
        "stale_positions": "",
    }
    if current is not None and way == PREVIOUS:
        pairs = [(own, best) for own, best in zip(later, current[1:] or current, strict=True)]
        stale = [own.positions[name] != best.positions[name] for own, best in pairs for name in own.positions]
        row["stale_positions"] = mean(map(float, stale))
    return row


def frame_rows(found: Mapping[tuple[str, int, str], Sequence[Frame]]) -> list[Row]:
    """A row for each frame of every way and stream."""
    return [
        {
            "way": way,
            "bits": bits,
            "stream": stream,
            "frame": number,
            "float_detections": frame.found.reference,
            "detections": frame.found.found,
            "matched": frame.found.matched,
            "snr_db": mean(frame.snr_db),
            "saturated": frame.saturated / frame.results,
        }
        for (way, bits, stream), frames in found.items()
        for number, frame in enumerate(frames)
    ]


def draw(rows: Sequence[Row], network: str) -> Figure:
    """A column of plots a width, a group of bars a stream, a bar a way."""
    from matplotlib.figure import Figure

    measures = {**MEASURES, "saturated": "saturated results"}
    widths = list(dict.fromkeys(row["bits"] for row in rows))
    figure = Figure(figsize=(6.4 * len(widths), 9.5), layout="constrained")
    figure.suptitle(f"{network} on streams of frames: where positions come from")
    axes = figure.subplots(len(measures), len(widths), squeeze=False, sharey="row")
    for line, (measure, label) in zip(axes, measures.items(), strict=True):
        for ax, bits in zip(line, widths, strict=True):
            _draw_bars(ax, [row for row in rows if row["bits"] == bits], measure)
        line[0].set_ylabel(label)
    for ax, bits in zip(axes[0], widths, strict=True):
        ax.set_title(f"{bits} bits", fontsize=10)
    for ax in axes[-1]:
        if any(row["saturated"] for row in rows):
            ax.set_yscale("log")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _draw_bars(ax: Axes, rows: Sequence[Row], measure: str) -> None:
    streams = list(dict.fromkeys(row["stream"] for row in rows))
    ways = list(dict.fromkeys(row["way"] for row in rows))
    width = 0.8 / len(ways)
    for index, way in enumerate(ways):
        values = [row[measure] for row in rows if row["way"] == way]
        places = [group + width * (index - (len(ways) - 1) / 2) for group in range(len(streams))]
        ax.bar(places, values, width, color=COLOURS[way], label=WAYS[way].title)
    ax.set_xticks(range(len(streams)), streams)
    ax.grid(alpha=0.3, axis="y")


if __name__ == "__main__":
    main()

"""`binpoint schedule`: print, export, draw or check the schedule of a network on a target."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from binpoint.cli.schedule_options import add_plan_arguments, make_plan

if TYPE_CHECKING:
    from binpoint.scheduling.report import LayerReport
    from binpoint.scheduling.schedule import Schedule
    from binpoint.support.target import Target

STDOUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    add_plan_arguments(parser)
    parser.add_argument("--layer", action="append", default=[], help="only this layer; may be repeated")
    exports = parser.add_argument_group(
        "exports", "FILE may be - for standard output, the default where it is optional"
    )
    exports.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="FILE", help="summary and explicit schedule as JSON"
    )
    exports.add_argument("--csv", metavar="FILE", help="layer,image,channel,pe,round,sampled: a line a pair")
    exports.add_argument(
        "--picture", nargs="?", const=STDOUT, metavar="FILE", help="draw one round: as text, or into .png, .svg or .pdf"
    )
    exports.add_argument("--round", type=int, default=0, metavar="R", help="the round to draw (default 0)")


def run(arguments: argparse.Namespace) -> int:
    """Schedule the network and show it in the ways asked for."""
    from binpoint.scheduling.document import print_csv, print_schedule
    from binpoint.scheduling.report import coverage_warnings, report_layer
    from binpoint.scheduling.workload import select_workloads

    data_on_stdout = _check_outputs(arguments)
    plan = make_plan(arguments)
    chosen = select_workloads(plan.workloads, arguments.layer)
    layers = tuple(layer for workload, layer in plan.layers() if workload in chosen)
    schedule = replace(plan.schedule, layers=layers)
    _check_round(arguments.round, schedule)
    reports = [report_layer(layer, workload, plan.target) for workload, layer in zip(chosen, layers, strict=True)]
    without_statistics = {workload.layer for workload in chosen if not workload.statistics}
    if not data_on_stdout:
        _print_table(schedule, plan.target, reports)
    if arguments.json is not None:
        facts = {report.workload.layer: report.facts() for report in reports}
        _write(arguments.json, print_schedule(schedule, plan.target, facts))
    if arguments.csv is not None:
        _write(arguments.csv, print_csv(schedule, without_statistics))
    if arguments.picture is not None:
        _draw(arguments.picture, schedule, plan.target, arguments.round, without_statistics)
    sys.stdout.flush()
    for warning in coverage_warnings(reports, plan.target):
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def _check_outputs(arguments: argparse.Namespace) -> bool:
    """Whether data goes to standard output; refuses what cannot be written before anything is computed."""
    from binpoint.scheduling.plot import FORMATS
    from binpoint.support.diagnostics import user_error
    from binpoint.support.files import check_writable

    inputs = [arguments.network, Path(arguments.target), *([] if arguments.use is None else [arguments.use])]
    options_by_place: dict[str, list[str]] = {}
    for name in ("json", "csv", "picture"):
        place = getattr(arguments, name)
        if place is not None:
            options_by_place.setdefault(place, []).append(f"--{name}")
        if place not in (None, STDOUT):
            check_writable(Path(place), inputs)
    for place, options in options_by_place.items():
        if len(options) > 1:
            message = f"only one of them can go to {'standard output' if place == STDOUT else place}"
            hint = f"give one of them {'a' if place == STDOUT else 'another'} file"
            raise user_error("two-outputs", message, found=" ".join(options), hint=hint)
    if arguments.picture not in (None, STDOUT) and _format(arguments.picture) not in FORMATS:
        raise user_error(
            "unknown-picture-format",
            "a picture is written in the format that its name says",
            found=arguments.picture,
            expected=f"a name that ends in .{', .'.join(FORMATS)}",
        )
    return STDOUT in (arguments.json, arguments.csv)


def _check_round(number: int, schedule: Schedule) -> None:
    from binpoint.support.diagnostics import user_error

    most = max(layer.rounds for layer in schedule.layers)
    if not 0 <= number < most:
        raise user_error("no-such-round", f"no layer has a round {number}", found=number, expected=f"0 to {most - 1}")


def _print_table(schedule: Schedule, target: Target, reports: Sequence[LayerReport]) -> None:
    from binpoint.cli.output import print_table
    from binpoint.scheduling.allocation import mini_batches_per_cycle
    from binpoint.support.target import RotationCount

    # Gradients of parameters and updates have output channels in the place of images.
    images = "images" if all(report.workload.rows is None for report in reports) else "rows"
    columns = ("layer", "pairs", "rounds", "utilisation", "sampled", images, "channels", "cycles", "DRAM bytes")
    rows = [_row(report) for report in reports]
    print_table(f"{schedule.network} on {target.name}, {schedule.images} images a mini-batch", columns, rows)
    if target.statistics_pes and target.allocation.rotation is RotationCount.CONTINUOUS:
        batches = mini_batches_per_cycle(target)
        print(f"the rotation goes on: in {batches} mini-batches in a row each pair is sampled at least once")
    cycles = sum(report.cost.cycles for report in reports)
    operations = sum(report.cost.operations for report in reports)
    seconds = sum(report.cost.seconds for report in reports)
    busy = operations / (cycles * target.pes)
    print(
        f"{cycles} cycles, {busy:.1%} of the PEs' operations used; {_duration(seconds)} a mini-batch at "
        f"{target.clock_hz / 1e6:g} MHz and {target.dram_bytes_per_second / 1e9:g} GB/s of DRAM"
    )


def _row(report: LayerReport) -> tuple[object, ...]:
    coverage = report.coverage
    sampled: tuple[str, ...] = ("-", "-", "-")
    if report.workload.statistics:
        sampled = (
            str(coverage.sampled_pairs),
            f"{coverage.sampled_images}/{coverage.images}",
            f"{coverage.sampled_channels}/{coverage.channels}",
        )
    size = f"{coverage.images} x {coverage.channels}"
    busy = f"{coverage.utilisation:.1%}"
    return report.workload.layer, size, coverage.rounds, busy, *sampled, report.cost.cycles, report.cost.dram_bytes


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def _draw(place: str, schedule: Schedule, target: Target, number: int, without_statistics: Collection[str]) -> None:
    if place == STDOUT:
        from binpoint.cli.output import console
        from binpoint.scheduling.picture import draw_round

        screen = console()
        for layer in schedule.layers:
            screen.print(draw_round(layer, target, min(number, layer.rounds - 1), screen.width), end="\n\n")
        return
    from binpoint.cli.output import progress
    from binpoint.scheduling.plot import plot_schedule

    with progress("drawing", len(schedule.layers)) as advance:
        picture = plot_schedule(schedule.layers, target, number, _format(place), advance, without_statistics)
    _write(place, picture)


def _format(place: str) -> str:
    return Path(place).suffix[1:].lower()


def _write(place: str, content: str | bytes) -> None:
    """Write to a file, or text to standard output."""
    from binpoint.support.files import write_atomically

    if place == STDOUT:
        sys.stdout.write(str(content))
        return
    write_atomically(Path(place), content)
    print(f"wrote {place}", file=sys.stderr)

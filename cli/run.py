"""`binpoint run`: run an artifact on data, bit-exactly, and report accuracy, exponents and throughput."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binpoint.cli.backend_options import add_backend_arguments
from binpoint.cli.detection_options import add_detection_arguments, detects
from binpoint.cli.run_session import (
    STATISTICS,
    add_session_arguments,
    check_exponents,
    load_artifact,
    open_session,
)
from binpoint.cli.schedule_options import count

if TYPE_CHECKING:
    from binpoint.cli.run_report import Report
    from binpoint.runtime.artifact import Artifact
    from binpoint.runtime.data import Samples

ARRAY, ARRAYS = ".npy", ".npz"
"""The formats of outputs: one array, or one for each output of the network."""

SHOWN_SAMPLES = 16
"""Up to so many samples without labels are shown one by one."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    add_session_arguments(parser)
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument(
        "--data", metavar="DATA", help="mnist:DIR (test set), mnist:DIR#train, a .npz file, or a folder of images"
    )
    data.add_argument(
        "--input",
        nargs="+",
        action="extend",
        metavar="FILE",
        help="one .npy file or image files; NAME=FILE for an input; may be repeated",
    )
    add_detection_arguments(parser, data)
    parser.add_argument("--batch", type=count, metavar="N", help="images of a mini-batch (default: as compiled)")
    parser.add_argument("--limit", type=count, metavar="N", help="only the first N images")
    parser.add_argument("--resize", action="store_true", help="scale image files to the network's input")
    add_backend_arguments(parser)
    parser.add_argument("--literal", action="store_true", help="execute PE by PE, as the array would; slow")
    parser.add_argument("--no-statistics", action="store_true", help="let no PE take statistics; faster")
    parser.add_argument("--no-float", action="store_true", help="do not run the float network beside")
    parser.add_argument("--snr", action="store_true", help="compare every layer with the float network (over blocks)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the output as .npy, or all outputs as .npz")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the artifact and print what came out."""
    from binpoint.cli.detect import detect_pictures, load_stream
    from binpoint.cli.output import print_json, progress
    from binpoint.cli.run_report import Report, facts, print_report, print_samples
    from binpoint.runtime.evaluation import evaluate, float_accuracy

    _check_options(arguments)
    artifact = load_artifact(arguments)
    exponents = check_exponents(arguments, artifact)
    _check_output(arguments.output, _read_files(arguments), artifact.program.outputs)
    stream = load_stream(arguments, artifact) if detects(arguments, artifact) else None
    samples = _load(arguments, artifact) if stream is None else stream.samples
    session, way = open_session(artifact, exponents, arguments)
    if stream is not None:
        report, outputs = detect_pictures(arguments, stream, session, way)
        if arguments.output is not None:
            _write_outputs(arguments.output, outputs)
        _warn(report)
        return 0
    show = samples.labels is None and len(samples) <= SHOWN_SAMPLES and not arguments.json
    with progress("fixed point", len(samples)) as advance:
        evaluation = evaluate(
            artifact.program,
            session,
            samples,
            way.batch,
            keep_outputs=show or arguments.output is not None,
            warm_up=not arguments.literal,
            advance=advance,
        )
    if arguments.output is not None:
        _write_outputs(arguments.output, evaluation.outputs)
    beside = None
    if samples.labels is not None and not arguments.no_float:
        with progress("floating point", len(samples)) as advance:
            beside = float_accuracy(artifact, samples, way.batch, advance)
    report = Report(artifact, session, samples, evaluation, beside, way)
    if arguments.json:
        print_json(facts(report))
    else:
        print_report(report)
    if show:
        print_samples(report)
    _warn(report)
    return 0


def _warn(report: Report) -> None:
    from binpoint.cli.run_report import warnings
    from binpoint.support.diagnostics import printable

    for warning in warnings(report):
        print(f"warning: {printable(warning)}", file=sys.stderr)


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse options that contradict each other, all at once."""
    from binpoint.support.diagnostics import Collector, Diagnostic

    collector = Collector()
    if arguments.no_statistics and arguments.exponents == STATISTICS:
        message = "exponents cannot follow statistics that nobody takes"
        found = "--exponents statistics --no-statistics"
        collector.add(Diagnostic("contradicting-options", message, found=found))
    if arguments.threads is not None and arguments.backend == "oracle":
        message, hint = "the oracle has one thread", "leave --threads away, or use --backend te"
        found = "--backend oracle --threads"
        collector.add(Diagnostic("contradicting-options", message, found=found, hint=hint))
    collector.raise_any()


def _check_output(path: Path | None, inputs: Sequence[Path], outputs: tuple[str, ...]) -> None:
    """Refuse a file that could not hold the outputs, before anything is computed."""
    from binpoint.support.diagnostics import Location, user_error
    from binpoint.support.files import check_writable

    if path is None:
        return
    suffix = path.suffix.lower()
    if suffix not in (ARRAY, ARRAYS):
        expected = f"a name that ends in {ARRAY} or {ARRAYS}"
        raise user_error("unknown-format", "outputs are NumPy files", found=path, expected=expected)
    if suffix == ARRAY and len(outputs) > 1:
        raise user_error(
            "several-outputs",
            f"a {ARRAY} file holds one array, and the network has {len(outputs)} outputs",
            location=Location(str(path)),
            found=", ".join(outputs),
            hint=f"write a {ARRAYS} file",
        )
    check_writable(path, inputs)


def _read_files(arguments: argparse.Namespace) -> list[Path]:
    """The data files that the options name; NAME=FILE may be a file of that whole name."""
    if arguments.frames is not None:
        return [arguments.frames]
    words = [arguments.data] if arguments.input is None else arguments.input
    return [Path(part) for word in words for part in (word, word.partition("=")[2]) if part]


def _load(arguments: argparse.Namespace, artifact: Artifact) -> Samples:
    from binpoint.runtime.data import load_data, load_inputs

    inputs = artifact.program.inputs
    if arguments.data is not None:
        samples = load_data(arguments.data, inputs, resize=arguments.resize)
    else:
        samples = load_inputs(arguments.input, inputs, resize=arguments.resize)
    return samples.limited(arguments.limit)


def _write_outputs(path: Path, outputs: Mapping[str, Any]) -> None:
    """Write one array, or each under the name of its output; the same values give the same bytes."""
    from binpoint.runtime.archive import pack
    from binpoint.runtime.arrays import npy_bytes
    from binpoint.support.files import write_atomically

    members = {f"{name}{ARRAY}": npy_bytes(values) for name, values in outputs.items()}
    write_atomically(path, pack(members) if path.suffix.lower() == ARRAYS else next(iter(members.values())))

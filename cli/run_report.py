"""What `binpoint run` prints: the result as JSON, as tables, and what deserves a warning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.cli.output import print_table
from binpoint.cli.run_blocks_report import map_facts, print_maps
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.blocks.report import MapReport
from binpoint.runtime.blocks.session import BlockSession
from binpoint.runtime.data import Samples
from binpoint.runtime.evaluation import Evaluation, top_classes
from binpoint.runtime.manifest import Source, origin_facts
from binpoint.runtime.session import Session, TensorReport

TOP_CLASSES = 3
"""How many classes of a sample are shown."""


@dataclass(frozen=True)
class Way:
    """How a network was executed: by what, on how many threads, in mini-batches of how many images."""

    backend: str
    threads: int
    batch: int
    literal: bool


@dataclass(frozen=True)
class Report:
    """A finished run: what ran, on what data, how, and what came out."""

    artifact: Artifact
    session: Session | BlockSession
    data: Samples
    evaluation: Evaluation
    float_accuracy: float | None
    way: Way


def facts(report: Report) -> dict[str, Any]:
    """The result as JSON. Rates are shares of all results, 0 to 1; histograms count sampled results."""
    evaluation, way = report.evaluation, report.way
    return {
        "network": report.artifact.program.name,
        "target": report.artifact.target.name,
        "weights": origin_facts(report.artifact.origin),
        "backend": way.backend,
        "threads": way.threads,
        "literal": way.literal,
        "batch": way.batch,
        "exponents": _exponents(report),
        "samples": evaluation.samples,
        "accuracy": evaluation.accuracy,
        "float_accuracy": report.float_accuracy,
        "images_per_second": evaluation.images_per_second,
        "predictions": _predictions(report),
        "inputs": [_facts_of(tensor, report) for tensor in report.session.inputs],
        "layers": [_facts_of(tensor, report) for tensor in report.session.layers],
    }


def print_report(report: Report) -> None:
    """The result as text: accuracy, a line a tensor, throughput."""
    evaluation, session = report.evaluation, report.session
    program, target = report.artifact.program, report.artifact.target
    if evaluation.accuracy is not None:
        beside = "" if report.float_accuracy is None else f" (in float {report.float_accuracy:.2%})"
        print(f"accuracy {evaluation.accuracy:.2%}{beside} on {evaluation.samples} images")
    title = f"{program.name} on {target.name}, {EXPONENTS[_exponents(report)]}"
    if isinstance(session, BlockSession):
        print_maps(title, (*session.inputs, *session.layers))
    else:
        moving = session.controller.observes
        moves = ("moves",) if moving else ()
        columns = ("tensor", "exponent", *moves, "saturated", "underflowed", "top bit", "samples")
        print_table(title, columns, [_row(tensor, report, moving) for tensor in (*session.inputs, *session.layers)])
    way = report.way
    literal = "; literal: not a measure of speed" if way.literal else ""
    print(
        f"{_rate(evaluation.images_per_second)} images/s: {evaluation.samples} in {evaluation.seconds:.3g} s, "
        f"{way.batch} a mini-batch, backend {way.backend}, {way.threads} thread{'s' * (way.threads > 1)}{literal}"
    )


def print_samples(report: Report) -> None:
    """Each sample's highest scores where an output is a vector, else the range of its values."""
    names = report.data.names
    for output, values in report.evaluation.outputs.items():
        vector = values.ndim == 2 and values.shape[1] > 1
        rows = [(names[index] if names else str(index), *_cells(sample, vector)) for index, sample in enumerate(values)]
        ranks = min(TOP_CLASSES, values.shape[1])
        columns = [f"class {rank + 1}" for rank in range(ranks)] if vector else ["least", "greatest"]
        print_table(output, ("sample", *columns), rows)


def warnings(report: Report) -> Iterator[str]:
    """What the user should know: random weights, labels that nothing scores, overflows, clamped exponents."""
    origin = report.artifact.origin
    if origin is not None and origin.source is Source.DRAW:
        yield f"the weights are random, {origin}: accuracy and classes mean nothing"
    if report.data.labels is not None and report.evaluation.accuracy is None:
        yield "the network has no output with a score for each class, so there is no accuracy"
    for tensor in report.session.layers:
        if tensor.events.accumulator_overflows:
            found = f"{tensor.events.accumulator_overflows} of {tensor.events.results} results"
            yield f'{found} of "{tensor.name}" overflowed the {report.artifact.target.accumulator_bits}-bit accumulator'
    for name, times in _clamps(report).items():
        if times:
            low, high = report.artifact.program.policies[name].exponent_range
            yield f'the exponent of "{name}" was kept between {low} and {high} {times} time{"s" * (times > 1)}'


def _predictions(report: Report) -> list[dict[str, Any]] | None:
    """The class of each sample, by file name or number; None with labels, which give accuracy, or without classes."""
    classes, data = report.evaluation.classes, report.data
    if classes is None or data.labels is not None:
        return None
    names = range(len(classes)) if data.names is None else data.names
    return [{"sample": name, "class": int(found)} for name, found in zip(names, classes, strict=False)]


EXPONENTS = {
    "fixed": "fixed exponents",
    "statistics": "exponents from statistics",
    "blocks": "exponents of blocks",
    "frame": "exponents from the previous frame",
    "current": "exponents from the frame itself",
}
"""Where exponents came from, as titles say it."""


def _exponents(report: Report) -> str:
    """Where exponents came from, as the command line says it."""
    session = report.session
    return str(session.method) if isinstance(session, BlockSession) else session.controller.name


def _clamps(report: Report) -> Counter[str]:
    session = report.session
    return session.clamps if isinstance(session, BlockSession) else session.controller.clamps


def _facts_of(tensor: TensorReport | MapReport, report: Report) -> dict[str, Any]:
    if isinstance(tensor, MapReport):
        return map_facts(tensor, _clamps(report)[tensor.name])
    return _tensor_facts(tensor, report)


def _tensor_facts(tensor: TensorReport, report: Report) -> dict[str, Any]:
    histogram = _histogram(tensor, report)
    return {
        "name": tensor.name,
        "exponent": tensor.exponent,
        "exponent_changes": tensor.exponent_changes,
        "exponent_clamps": _clamps(report)[tensor.name],
        "saturated": tensor.events.saturated / tensor.events.results,
        "underflowed": tensor.events.underflowed / tensor.events.results,
        "accumulator_overflows": tensor.events.accumulator_overflows / tensor.events.results,
        "msb_histogram": None if histogram is None else {str(bit): count for bit, count in sorted(histogram.items())},
    }


def _histogram(tensor: TensorReport, report: Report) -> Mapping[int, int] | None:
    """The msb histogram, where the tensor was sampled by PEs that acquire it. The host samples inputs itself."""
    if tensor.record is None:
        return None
    sampled_by_host = any(tensor.name == declared.name for declared in report.artifact.program.inputs)
    return tensor.record.msb if sampled_by_host or "msb" in report.artifact.target.acquires else None


def _row(tensor: TensorReport, report: Report, moving: bool) -> tuple[object, ...]:
    histogram = _histogram(tensor, report)
    return (
        tensor.name,
        tensor.exponent,
        *((tensor.exponent_changes,) if moving else ()),
        _percent(tensor.events.saturated, tensor.events.results),
        _percent(tensor.events.underflowed, tensor.events.results),
        "-" if not histogram else max(histogram),
        "-" if tensor.record is None else tensor.record.samples,
    )


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def _percent(count: int, total: int) -> str:
    """A share in percent; an exact zero is told from a small one."""
    return "0 %" if not count else f"{100 * count / total:.2g} %"


def _cells(sample: NDArray[np.float32], vector: bool) -> list[str]:
    if vector:
        return [f"{index} ({score:.4g})" for index, score in top_classes(sample, TOP_CLASSES)]
    return [f"{sample.min():.4g}", f"{sample.max():.4g}"]

"""One exponent a block of a feature map, or one a layer: how far a detector in fixed point is from floating point.

    python -m examples.experiments.block_vs_layer yolov3-tiny.cfg yolov3-tiny.weights PICTURE...
        [--bits 6 7 8 10] [--weights-per layer channel] [--ways calibrated shared ...] [--blocks 4x4 ... map]
        [--candidates 4 8]

Exponents of layers, and the coarsest candidate of blocks, are calibrated with the same pictures in floating point.
Pictures go through one by one; `previous-frame` takes the one before for the previous frame.

A row of block_vs_layer.csv is one case: detections of floating point, detections found and how many of them are the
same (class, IoU of at least 0.5), and signal-to-noise ratios in dB, the mean over the network's outputs and that over
all layers that are quantised; block_vs_layer_layers.csv has the layers one by one. The ratio of a layer is that of sums
over all pictures. Cases that are in the file already with the same `data` (network, pictures, thresholds) are not
repeated.

block_vs_layer.png compares ways, block_vs_layer_sizes.png sizes of blocks, block_vs_layer_layers.png layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from binpoint.runtime.blocks.report import MapReport
from binpoint.runtime.detection.agreement import Agreement, agreement
from examples.experiments.block_plots import draw_layers, draw_sizes, draw_ways
from examples.experiments.detector import (
    CHANNEL,
    LAYER,
    QUICK_WAYS,
    WAYS,
    Case,
    Subject,
    detector_options,
    fingerprint,
    load_subject,
)
from examples.experiments.report import print_table, read_csv, write_csv, write_plot

Row = dict[str, Any]

SIZE = "4x4"


def main() -> None:
    """Measure what is not in block_vs_layer.csv yet, and draw everything."""
    parser = detector_options(__doc__)
    parser.add_argument("pictures", type=Path, nargs="+", help="picture files")
    parser.add_argument("--bits", type=int, nargs="+", default=[6, 7, 8, 10], help="of activations")
    parser.add_argument("--weights-per", nargs="+", choices=[LAYER, CHANNEL], default=[LAYER, CHANNEL])
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(QUICK_WAYS))
    parser.add_argument("--blocks", nargs="+", default=[SIZE], metavar="HxW", help="4x4, ..., or map")
    parser.add_argument("--candidates", type=int, nargs="+", default=[8], help="positions to choose from")
    arguments = parser.parse_args()
    data = fingerprint(arguments, arguments.pictures)
    path, layers_path = (arguments.output / name for name in ("block_vs_layer.csv", "block_vs_layer_layers.csv"))
    rows: list[Row] = [*read_csv(path)]
    layers: list[Row] = [*read_csv(layers_path)]
    done = {_case_of(row) for row in _of(data, rows)}
    wanted = cases(arguments.ways, arguments.bits, arguments.weights_per, arguments.blocks, arguments.candidates)
    missing = [case for case in wanted if case not in done]
    subject = load_subject(arguments, arguments.pictures)
    for number, case in enumerate(missing, 1):
        row, by_layer = measure(subject, case, arguments.pictures)
        rows.append({"data": data, **row})
        layers = [each for each in layers if (each["data"], _case_of(each)) != (data, case)]
        layers += [{"data": data, **each} for each in by_layer]
        write_csv(layers_path, layers)
        write_csv(path, rows)
        print(f"{number} of {len(missing)}: {case}: F1 {row['f1']:.3f}, {row['snr_db']:.1f} dB", flush=True)
    show(arguments.output, subject.name, _of(data, read_csv(path)), _of(data, read_csv(layers_path)))


def cases(
    ways: Sequence[str], bits: Sequence[int], weights: Sequence[str], blocks: Sequence[str], candidates: Sequence[int]
) -> Iterator[Case]:
    """All cases, each once: a layer with one position has no blocks, a calibrated one nothing to choose from."""
    seen = set()
    for width, shared, way, block, count in product(bits, weights, ways, blocks, candidates):
        of_layers, calibrated = WAYS[way].of_layers, way == next(iter(WAYS))
        case = Case(way, width, shared, SIZE if of_layers else block, 1 if calibrated else count)
        if case not in seen:
            seen.add(case)
            yield case


def measure(subject: Subject, case: Case, pictures: Sequence[Path]) -> tuple[Row, list[Row]]:
    """A case as a row, and a row for each of its layers."""
    total = Agreement()
    reports: tuple[MapReport, ...] = ()
    outputs: tuple[str, ...] = ()
    for result, session in subject.run(case, pictures):
        total += agreement(result.detections, result.in_float or ())
        reports, outputs = (*session.inputs, *session.layers), session.program.outputs
    chosen = [report for report in reports if report.candidates is not None]
    layers = [
        {
            **vars(case),
            "layer": report.name,
            "snr_db": report.snr_db,
            "saturated": report.events.saturated / report.events.results,
            "underflowed": report.events.underflowed / report.events.results,
            "coarsest": report.exponents[1],
            "finest": report.exponents[0],
            "position_bits_frame": report.position_bits_per_frame,
        }
        for report in chosen
    ]
    results = sum(report.events.results for report in chosen)
    row = {
        **vars(case),
        "float_detections": total.reference,
        "detections": total.found,
        "matched": total.matched,
        "precision": total.precision,
        "recall": total.recall,
        "f1": total.f1,
        "snr_db": mean(layer["snr_db"] for layer in layers if layer["layer"] in outputs),
        "layers_snr_db": mean(layer["snr_db"] for layer in layers),
        "saturated": sum(report.events.saturated for report in chosen) / results,
        "position_bits_frame": sum(layer["position_bits_frame"] for layer in layers),
    }
    return row, layers


def show(folder: Path, network: str, rows: Sequence[Row], layers: Sequence[Row]) -> None:
    """The cases as a table, and the plots."""
    print_table([{name: _number(row[name]) for name in row if name != "data"} for row in rows])
    write_plot(folder / "block_vs_layer.png", draw_ways(rows, network, SIZE))
    write_plot(folder / "block_vs_layer_layers.png", draw_layers(layers, network, SIZE))
    if len({row["block"] for row in rows}) > 1:
        write_plot(folder / "block_vs_layer_sizes.png", draw_sizes(rows, network))
    print(f"results are in {folder}")


def _of(data: str, rows: Sequence[Row]) -> list[Row]:
    """The rows that were measured with the same pictures."""
    return [row for row in rows if row["data"] == data]


def _number(text: Any) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _case_of(row: Row) -> Case:
    return Case(row["way"], int(row["bits"]), row["weights"], row["block"], int(row["candidates"]))


if __name__ == "__main__":
    main()

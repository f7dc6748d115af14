"""The plots of the experiment block_vs_layer: ways, sizes of blocks, layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from examples.experiments.detector import CHANNEL, COLOURS, LAYER, WAYS, WHOLE_MAP

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

WEIGHTS = {LAYER: "weights: an exponent a layer", CHANNEL: "weights: an exponent an output channel"}
MEASURES = {"f1": "F1 against float detections", "snr_db": "outputs: signal to noise, dB"}
STYLES = {"analyse": "-o", "predict": "--^", "layer": ":s"}


def draw_ways(rows: Sequence[Row], network: str, block: str) -> Figure:
    """Each way by the bits of activations; blocks of one size, most candidates."""
    from matplotlib.figure import Figure

    chosen = _of_most_candidates([row for row in rows if row["block"] == block])
    shared = [each for each in WEIGHTS if any(row["weights"] == each for row in chosen)]
    figure = Figure(figsize=(6.2 * len(shared), 8.6), layout="constrained")
    figure.suptitle(f"{network}: exponents of layers and of {block} blocks, {_count(rows)} float detections")
    axes = figure.subplots(len(MEASURES), len(shared), squeeze=False, sharex=True, sharey="row")
    for line, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        for ax, weights in zip(line, shared, strict=True):
            for way in WAYS:
                points = sorted(
                    (int(row["bits"]), float(row[measure]))
                    for row in chosen
                    if (row["way"], row["weights"]) == (way, weights)
                )
                _plot(ax, way, [x for x, _ in points], [y for _, y in points])
            ax.set_xticks(sorted({int(row["bits"]) for row in chosen}))
            ax.grid(alpha=0.3)
        line[0].set_ylabel(label)
    for ax, weights in zip(axes[0], shared, strict=True):
        ax.set_title(WEIGHTS[weights], fontsize=10)
    for ax in axes[-1]:
        ax.set_xlabel("bits of activations")
    _legend(figure)
    return figure


def draw_sizes(rows: Sequence[Row], network: str) -> Figure:
    """Ways with blocks by the size of the blocks, a column for each width; weights as most rows have them."""
    from matplotlib.figure import Figure

    swept = [row for row in _of_most_candidates(rows) if not WAYS[row["way"]].of_layers]
    kinds = [row["weights"] for row in swept if row["block"] == WHOLE_MAP] or [row["weights"] for row in swept]
    weights = max(WEIGHTS, key=kinds.count)
    swept = [row for row in swept if row["weights"] == weights]
    sizes = sorted({row["block"] for row in swept}, key=_area)
    widths = sorted({int(row["bits"]) for row in swept if row["block"] != "4x4"}) or [8]
    figure = Figure(figsize=(6.2 * len(widths), 8.2), layout="constrained")
    figure.suptitle(f"{network}: size of the blocks that share an exponent; {WEIGHTS[weights]}")
    axes = figure.subplots(len(MEASURES), len(widths), squeeze=False, sharex=True, sharey="row")
    for line, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        for ax, bits in zip(line, widths, strict=True):
            for way in WAYS:
                own = [row for row in swept if (row["way"], int(row["bits"])) == (way, bits)]
                found = {row["block"]: float(row[measure]) for row in own}
                places = [index for index, size in enumerate(sizes) if size in found]
                if len(places) > 1:
                    _plot(ax, way, places, [found[sizes[index]] for index in places])
            ax.set_xticks(range(len(sizes)), [size.replace(WHOLE_MAP, "whole map") for size in sizes])
            ax.grid(alpha=0.3)
        line[0].set_ylabel(label)
    for ax, bits in zip(axes[0], widths, strict=True):
        ax.set_title(f"{bits} bits", fontsize=10)
    for ax in axes[-1]:
        ax.set_xlabel("block, height x width")
    _legend(figure)
    return figure


def draw_layers(rows: Sequence[Row], network: str, block: str) -> Figure:
    """The signal-to-noise ratio of every layer, a row of plots for each width."""
    from matplotlib.figure import Figure

    chosen = _of_most_candidates([row for row in rows if row["block"] == block])
    widths = sorted({int(row["bits"]) for row in chosen}, reverse=True)
    shared = [each for each in WEIGHTS if any(row["weights"] == each for row in chosen)]
    figure = Figure(figsize=(7 * len(shared), 3.1 * len(widths) + 1.2), layout="constrained")
    figure.suptitle(f"{network}: signal to noise of every layer, {block} blocks")
    axes = figure.subplots(len(widths), len(shared), squeeze=False, sharex=True, sharey="row")
    for line, bits in zip(axes, widths, strict=True):
        line[0].set_ylabel(f"{bits} bits: dB")
        for ax, weights in zip(line, shared, strict=True):
            own = [row for row in chosen if (int(row["bits"]), row["weights"]) == (bits, weights)]
            names = list(dict.fromkeys(row["layer"] for row in max(_by_way(own).values(), key=len, default=[])))
            for way, layers in _by_way(own).items():
                found = {row["layer"]: float(row["snr_db"]) for row in layers}
                places = [index for index, name in enumerate(names) if name in found]
                _plot(ax, way, places, [found[names[index]] for index in places])
            ax.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
            ax.grid(alpha=0.3)
    for ax, weights in zip(axes[0], shared, strict=True):
        ax.set_title(WEIGHTS[weights], fontsize=10)
    _legend(figure)
    return figure


def _plot(ax: Axes, way: str, x: Sequence[int], y: Sequence[float]) -> None:
    if not x:
        return
    kind = WAYS[way]
    style = STYLES["layer" if kind.of_layers else str(kind.words.method)]
    ax.plot(x, y, style, color=COLOURS[way], label=kind.title, markersize=4.5, linewidth=1.4)


def _legend(figure: Figure) -> None:
    """One for all plots; a way that only some of them have is in it, too."""
    found = {}
    for ax in figure.axes:
        handles, labels = ax.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    titles = [way.title for way in WAYS.values() if way.title in found]
    figure.legend(
        [found[title] for title in titles], titles, loc="outside lower center", ncols=3, frameon=False, fontsize=9
    )


def _by_way(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["way"], []).append(row)
    return found


def _of_most_candidates(rows: Sequence[Row]) -> list[Row]:
    """Of each case that differs in the number of candidates alone the one with most."""
    best: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row.get(name) for name in ("way", "bits", "weights", "block", "layer"))
        if key not in best or int(row["candidates"]) > int(best[key]["candidates"]):
            best[key] = row
    return list(best.values())


def _area(block: str) -> float:
    if block == WHOLE_MAP:
        return inf
    height, width = map(int, block.split("x"))
    return height * width


def _count(rows: Sequence[Row]) -> int:
    return max((int(row["float_detections"]) for row in rows), default=0)

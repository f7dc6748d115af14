"""Where in a photo blocks choose which position: the bias within a feature map that JP7819764B2 is about.

    python -m examples.experiments.bias_within_map yolov3-tiny.cfg yolov3-tiny.weights PICTURE [--layers conv0 conv4]
        [--block 4x4] [--bits 8]

Every block of a map chooses its own position, shared by channels in the upper row and per channel, averaged over
them, in the lower one. Colours are fraction bits above those of the layer's coarsest candidate, which holds the
largest value of the map, and which all of it would have with one exponent a layer. bias_within_map.csv counts the
elements at each position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from binpoint.runtime.pixels import FloatArray
from examples.experiments.detector import WAYS, Case, detector_options, load_subject
from examples.experiments.report import print_table, write_csv, write_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]

SHOWN_WAYS = ("shared", "channel")
COLOURS, SHADES = "viridis", 4
"""Shades of a bit: few enough for the palette of a PNG."""


@dataclass(frozen=True)
class Bias:
    """The chosen positions of a layer: extra fraction bits (C, H, W) above the coarsest of `candidates`."""

    layer: str
    way: str
    bits: NDArray[np.int32]
    candidates: int


def main() -> None:
    """Write bias_within_map.csv and bias_within_map.png."""
    parser = detector_options(__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--layers", nargs="+", default=["conv0", "conv2", "conv4", "conv8"])
    parser.add_argument("--block", default="4x4", metavar="HxW", help="of maps (default 4x4)")
    parser.add_argument("--bits", type=int, default=8, help="of activations (default 8)")
    arguments = parser.parse_args()
    subject = load_subject(arguments, [arguments.picture])
    found = []
    for way in SHOWN_WAYS:
        case = Case(way, arguments.bits, block=arguments.block)
        found += [
            Bias(layer, way, bits, case.candidates)
            for layer, bits in subject.chosen_positions(case, arguments.picture, arguments.layers).items()
        ]
    rows = [row for bias in found for row in count(bias)]
    print_table(rows)
    write_csv(arguments.output / "bias_within_map.csv", rows)
    figure = draw(subject.pixels(arguments.picture), found, f"{subject.name}, {arguments.block} blocks")
    write_plot(arguments.output / "bias_within_map.png", figure)
    print(f"results are in {arguments.output}")


def count(bias: Bias) -> list[Row]:
    """How many of a map's elements lie in blocks with so many extra bits."""
    bits, elements = np.unique(bias.bits, return_counts=True)
    rows = zip(bits.tolist(), elements.tolist(), strict=True)
    return [
        {"way": bias.way, "layer": bias.layer, "extra_bits": extra, "elements": many, "share": many / bias.bits.size}
        for extra, many in rows
    ]


def draw(pixels: FloatArray, found: Sequence[Bias], title: str) -> Figure:
    """The photo as the network reads it, and beside it the mean over the channels of each layer's extra bits."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    ways = list(dict.fromkeys(bias.way for bias in found))
    layers = list(dict.fromkeys(bias.layer for bias in found))
    most = max(bias.candidates for bias in found) - 1
    colours = colormaps[COLOURS].resampled(SHADES * most)
    figure = Figure(figsize=(3.1 * (1 + len(layers)) + 1, 3.4 * len(ways) + 0.6), layout="constrained")
    figure.suptitle(f"{title}: fraction bits above those that hold the largest value of the layer")
    axes = figure.subplots(len(ways), 1 + len(layers), squeeze=False)
    for line, way in zip(axes, ways, strict=True):
        line[0].imshow(_picture(pixels))
        label = WAYS[way].title
        line[0].set_ylabel(f"{label} (mean)" if WAYS[way].per_channel else label)
        for ax, bias in zip(line[1:], [bias for bias in found if bias.way == way], strict=True):
            shown = ax.imshow(bias.bits.mean(axis=0), cmap=colours, vmin=0, vmax=most, interpolation="nearest")
            channels, height, width = bias.bits.shape
            ax.set_title(f"{bias.layer}: {channels}x{height}x{width}\nmean {bias.bits.mean():.2f} bits", fontsize=10)
        for ax in line:
            ax.set_xticks([])
            ax.set_yticks([])
    figure.colorbar(shown, ax=axes, label="extra fraction bits", shrink=0.8)
    return figure


def _picture(pixels: FloatArray) -> FloatArray:
    """(H, W, 3) or (H, W), 0 to 1."""
    picture = pixels.transpose(1, 2, 0)
    return picture if picture.shape[2] == 3 else picture[:, :, 0]


if __name__ == "__main__":
    main()

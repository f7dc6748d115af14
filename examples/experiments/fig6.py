"""Which images and channels each allocation samples, as pictures (JP7367595B2 fig. 6).

    python -m examples.experiments.fig6 [--thinning 16] [--layer conv2] [--images 16]

Each picture is a table of feature maps: a row an image of the mini-batch, a column an output channel of one layer of
LeNet. Maps that a statistics PE computes are coloured, the others grey. Beside the rows stands the digit of each image
that is sampled at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.float_reference import FloatArray, run_float
from binpoint.compiler.frontends.dsl.parser import parse_network
from binpoint.compiler.parameters import draw_parameters
from binpoint.compiler.pipeline import lower_network
from binpoint.runtime.data import load_data
from binpoint.scheduling.allocation import schedule_layer
from binpoint.support.target_file import load_target
from examples.experiments.allocations import ARRAY, CONTINUOUS, TITLES, allocations
from examples.experiments.report import MNIST, NETWORKS, options, write_csv, write_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 4
SAMPLED_COLOURS, OTHER_COLOURS = "viridis", "Greys"
OTHER_OPACITY = 0.3


@dataclass(frozen=True)
class Picture:
    """One allocation and (N, C), whether a pair is sampled in one mini-batch, or in any of several."""

    title: str
    mask: NDArray[np.bool_]


def main() -> None:
    """Write fig6.csv and fig6.png."""
    parser = options(__doc__)
    parser.add_argument("--thinning", type=int, default=16, help="one PE of so many has a statistics circuit, a square")
    parser.add_argument("--layer", default="conv2", help="the layer of LeNet (default conv2)")
    parser.add_argument("--images", type=int, default=16, help="images of a mini-batch (default 16)")
    arguments = parser.parse_args()
    digits, maps = feature_maps(arguments.layer, arguments.images)
    pictures = make_pictures(maps.shape[0], maps.shape[1], arguments.thinning)
    rows = [
        {"allocation": picture.title, "image": n, "channel": c, "sampled": int(sampled)}
        for picture in pictures
        for (n, c), sampled in np.ndenumerate(picture.mask)
    ]
    write_csv(arguments.output / "fig6.csv", rows)
    write_plot(arguments.output / "fig6.png", draw(pictures, digits, maps, arguments.layer))
    print(f"results are in {arguments.output}")


def feature_maps(layer: str, images: int) -> tuple[FloatArray, FloatArray]:
    """Digits (N, H, W) and what a layer of LeNet, with drawn weights, makes of them, (N, C, H, W)."""
    network = parse_network(NETWORKS / "lenet.bp")
    program = lower_network(network, load_target(ARRAY))
    batch = next(iter(load_data(MNIST, program.inputs).batches(images)))
    tensor = next(call.spec.name for call in program.calls if layer in call.fused or layer == call.spec.name)
    kept = run_float(program, draw_parameters(network, seed=0), batch.inputs, np.float64, [tensor])
    return next(iter(batch.inputs.values()))[:, 0], kept[tensor]


def make_pictures(images: int, channels: int, thinning: int) -> list[Picture]:
    """Each allocation in one mini-batch, and the one that goes on over several, up to those that see every pair."""
    kinds = [(name, target, 1) for name, target in allocations(thinning).items() if name != CONTINUOUS]
    kinds += [(CONTINUOUS, allocations(thinning)[CONTINUOUS], count) for count in (isqrt(thinning), thinning)]
    pictures = []
    for name, target, batches in kinds:
        masks = [schedule_layer("layer", images, channels, target, b).sample_mask() for b in range(batches)]
        title = TITLES[name] if batches == 1 else f"{TITLES[name]}, {batches} of them"
        pictures.append(Picture(title, np.any(masks, axis=0)))
    return pictures


def draw(pictures: list[Picture], digits: FloatArray, maps: FloatArray, layer: str) -> Any:
    """One table of feature maps for each allocation."""
    from matplotlib.figure import Figure

    rows = -(-len(pictures) // COLUMNS)
    figure = Figure(figsize=(4.6 * COLUMNS, 4.9 * rows), layout="constrained")
    figure.suptitle(
        f"LeNet, {layer}: feature maps that statistics PEs compute (rows: images, columns: channels)", fontsize=14
    )
    axes = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for ax, picture in zip(axes, pictures, strict=False):
        _draw_table(ax, picture, digits, maps)
    for ax in axes[len(pictures) :]:
        ax.axis("off")
    return figure


def _draw_table(ax: Axes, picture: Picture, digits: FloatArray, maps: FloatArray) -> None:
    from matplotlib import colormaps

    (images, channels), (height, width) = picture.mask.shape, maps.shape[2:]
    sampled, other = colormaps[SAMPLED_COLOURS], colormaps[OTHER_COLOURS]
    canvas = np.ones((images * (height + 1), channels * (width + 1), 4))
    for n, c in np.ndindex(images, channels):
        shown = _stretch(maps[n, c])
        tile = sampled(shown) if picture.mask[n, c] else 1 - OTHER_OPACITY * (1 - other(shown))
        canvas[n * (height + 1) :, c * (width + 1) :][:height, :width] = tile
    ax.imshow(canvas, interpolation="nearest")
    count = picture.mask.sum()
    seen_images, seen_channels = picture.mask.any(axis=1), picture.mask.any(axis=0)
    ax.set_title(
        f"{picture.title}\n{count} of {picture.mask.size} pairs: "
        f"{seen_images.sum()} of {images} images, {seen_channels.sum()} of {channels} channels",
        fontsize=10,
    )
    for n in np.flatnonzero(seen_images):
        inset = ax.inset_axes((-0.075, 1 - (n + 1) / images, 0.065, 1 / images))
        inset.imshow(digits[n], cmap="gray_r")
        inset.axis("off")
    ax.set_xticks([(c + 0.5) * (width + 1) for c in np.flatnonzero(seen_channels)], np.flatnonzero(seen_channels))
    ax.set_yticks([])
    ax.tick_params(length=0, labelsize=8)
    ax.set_frame_on(False)


def _stretch(values: FloatArray) -> FloatArray:
    """Values brought into 0 to 1."""
    least, most = values.min(), values.max()
    stretched: FloatArray = (values - least) / (most - least or 1)
    return stretched


if __name__ == "__main__":
    main()

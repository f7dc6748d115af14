"""The allocation as a figure (PNG, SVG, PDF): who computes what in one round, and what of a layer is sampled."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from binpoint.scheduling.coverage import layer_coverage
from binpoint.scheduling.schedule import LayerSchedule
from binpoint.support.diagnostics import user_error
from binpoint.support.target import Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
"""The formats of files, which are also the ends of their names."""

WIDTH_INCHES, ROW_INCHES, TITLE_INCHES = 14.0, 4.0, 0.3
RESOLUTION_DPI = 150
IDLE_COLOUR, STATISTICS_COLOUR, SAMPLED_COLOUR, UNSAMPLED_COLOUR = "#e8e8e8", "#d62728", "#1f4e79", "#eef2f6"
COLOUR_MAP = "viridis"
MAXIMUM_OUTLINES = 4096
"""With more statistics PEs than this, outlines would hide the PEs: the caption says where the circuits are."""
MAXIMUM_LABELS = 64
"""Arrays up to this size have image:channel written into every PE."""


def plot_schedule(
    layers: Sequence[LayerSchedule],
    target: Target,
    number: int,
    file_format: str,
    drawn: Callable[[], object] = lambda: None,
    without_statistics: Collection[str] = (),
) -> bytes:
    """One row of plots a layer: images and channels on the PE array in one round, and the sampled pairs.

    Args:
        layers: the layers to draw.
        target: the array.
        number: the round; a layer with fewer rounds is drawn in its last.
        file_format: one of FORMATS.
        drawn: called after each layer.
        without_statistics: the names of layers whose results no statistics are taken of, whatever PEs compute them.

    Returns:
        The file's bytes, the same for the same schedule.

    Raises:
        UserError: when matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        hint = "install it with: pip install 'binpoint[report]'"
        raise user_error("missing-package", "pictures in files need the package matplotlib", hint=hint) from None

    with matplotlib.rc_context({"svg.hashsalt": "binpoint", "font.size": 9, "axes.titlesize": 9}):
        height = ROW_INCHES * len(layers) + TITLE_INCHES
        figure = Figure(figsize=(WIDTH_INCHES, height), dpi=RESOLUTION_DPI)
        figure.suptitle(_title(target), fontsize=11, y=1 - 0.2 / height)
        rows = figure.subplots(len(layers), 3, squeeze=False, gridspec_kw=_margins(height))
        for layer, axes in zip(layers, rows, strict=True):
            _draw_layer(figure, axes, layer, target, min(number, layer.rounds - 1))
            if layer.layer in without_statistics:
                _draw_no_statistics(axes[2], layer)
            else:
                _draw_coverage(axes[2], layer)
            drawn()
        stream = io.BytesIO()
        metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[file_format]
        figure.savefig(stream, format=file_format, metadata=metadata)
    return stream.getvalue()


def _title(target: Target) -> str:
    allocation, circuits = target.allocation, len(target.statistics_pes)
    thinning = "" if allocation.x * allocation.y == 1 else f" (x = {allocation.x}, y = {allocation.y})"
    return f"{target.name}: {allocation.strategy}{thinning}, statistics circuits in {circuits} of {target.pes} PEs"


def _margins(height: float) -> dict[str, float]:
    """Fixed margins; a layout that matplotlib works out takes far longer than the drawing."""
    above, below = TITLE_INCHES + 0.3, 0.8
    rows = round((height - TITLE_INCHES) / ROW_INCHES)
    plot = ROW_INCHES - 1.1
    gap = (height - above - below - rows * plot) / max(rows - 1, 1)
    return {
        "left": 0.6 / WIDTH_INCHES,
        "right": 1 - 0.15 / WIDTH_INCHES,
        "top": 1 - above / height,
        "bottom": below / height,
        "hspace": gap / plot,
        "wspace": 0.14,
    }


def _draw_layer(figure: Figure, axes: Sequence[Axes], layer: LayerSchedule, target: Target, number: int) -> None:
    images, channels = _on_array(layer, target, number)
    rounds = "its only round" if layer.rounds == 1 else f"round {number} of 0 to {layer.rounds - 1}"
    plots = ((axes[0], images, "image", layer.tile[0]), (axes[1], channels, "output channel", layer.tile[1]))
    for ax, values, noun, size in plots:
        what = noun if size == 1 else f"first {noun} of the tile"
        picture = _draw_array(ax, values, target, size)
        ax.set_title(f"{layer.layer}: {what} on each PE, {rounds}")
        least, most = picture.get_clim()
        figure.colorbar(picture, ax=ax, label=what, pad=0.03, ticks=_ticks(least, most, size))
    if target.pes <= MAXIMUM_LABELS:
        _label_pes(axes[0], images, channels)


def _on_array(layer: LayerSchedule, target: Target, number: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first image and the first channel on each PE of the grid in one round, NaN where a PE idles."""
    chosen = layer.round == number
    tiles = np.argwhere(chosen)
    grids = np.full((2, target.pes), np.nan)
    grids[:, layer.pe[chosen]] = (tiles * layer.tile).T
    images, channels = grids.reshape(2, *target.grid)
    return images, channels


def _draw_array(ax: Axes, values: NDArray[np.float64], target: Target, size: int) -> Any:
    """One value a PE; values are multiples of `size`, the tile's."""
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    colours = colormaps[COLOUR_MAP].with_extremes(bad=IDLE_COLOUR)
    least, most = float(np.nanmin(values)), float(np.nanmax(values))
    shown = np.ma.masked_invalid(values)
    picture = ax.imshow(shown, cmap=colours, vmin=least, vmax=max(most, least + size), aspect="auto")
    rows, columns = target.grid
    ax.set_xlabel(f"column of the array (PE = {columns} x row + column)")
    ax.set_ylabel("row of the array")
    ax.set_xticks(_ticks(0, columns - 1))
    ax.set_yticks(_ticks(0, rows - 1))
    handles = []
    if 0 < len(target.statistics_pes) <= MAXIMUM_OUTLINES:
        _outline(ax, target)
        handles.append(Patch(fill=False, edgecolor=STATISTICS_COLOUR, label="statistics PE"))
    if np.isnan(values).any():
        handles.append(Patch(facecolor=IDLE_COLOUR, label="idle"))
    if handles:
        ax.legend(handles=handles, loc="upper right", bbox_to_anchor=(1, -0.16), ncols=2, frameon=False, borderpad=0)
    return picture


def _outline(ax: Axes, target: Target) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    columns = target.grid[1]
    corners = [(pe % columns - 0.5, pe // columns - 0.5) for pe in target.statistics_pes]
    width = 0.8 if target.pes > MAXIMUM_LABELS else 2.0
    boxes = [Rectangle(corner, 1, 1) for corner in corners]
    ax.add_collection(PatchCollection(boxes, facecolor="none", edgecolor=STATISTICS_COLOUR, linewidth=width))


def _label_pes(ax: Axes, images: NDArray[np.float64], channels: NDArray[np.float64]) -> None:
    for (row, column), image in np.ndenumerate(images):
        if not np.isnan(image):
            text = f"{image:.0f}:{channels[row, column]:.0f}"
            style = {"boxstyle": "round,pad=0.15", "facecolor": "white", "alpha": 0.8, "edgecolor": "none"}
            ax.text(column, row, text, ha="center", va="center", fontsize=8, bbox=style)


def _draw_no_statistics(ax: Axes, layer: LayerSchedule) -> None:
    ax.set_title(f"{layer.layer}: no statistics")
    ax.set_axis_off()
    ax.text(0.5, 0.5, "no statistics are taken of these results", ha="center", va="center", transform=ax.transAxes)


def _draw_coverage(ax: Axes, layer: LayerSchedule) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Patch

    coverage = layer_coverage(layer)
    # A continuous map, so that layers with more channels than pixels are blended, not thinned once more.
    colours = LinearSegmentedColormap.from_list("sampled", [UNSAMPLED_COLOUR, SAMPLED_COLOUR])
    ax.imshow(layer.sample_mask().astype(float), cmap=colours, vmin=0, vmax=1, aspect="auto")
    ax.set_title(f"{layer.layer}: {coverage.sampled_pairs} of {coverage.pairs} pairs sampled")
    ax.set_xlabel(f"output channel ({coverage.sampled_channels} of {layer.channels} sampled)")
    ax.set_ylabel(f"image ({coverage.sampled_images} of {layer.images} sampled)")
    ax.set_xticks(_ticks(0, layer.channels - 1))
    ax.set_yticks(_ticks(0, layer.images - 1))
    handles = [Patch(facecolor=SAMPLED_COLOUR, label="sampled"), Patch(facecolor=UNSAMPLED_COLOUR, label="not sampled")]
    ax.legend(handles=handles, loc="upper right", bbox_to_anchor=(1, -0.16), ncols=2, frameon=False, borderpad=0)


def _ticks(least: float, most: float, unit: int = 1) -> list[int]:
    """Up to nine ticks between two whole numbers, at multiples of a power of two units: sizes of layers often are."""
    step = unit
    while (most - least) > 8 * step:
        step *= 2
    first = -(-int(least) // step) * step
    return list(range(first, int(most) + 1, step))

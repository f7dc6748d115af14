"""The plots of the thinning experiment: every training is a dot, the mean over the seeds a bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any

from examples.experiments.allocations import COLOURS, FULL, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

FLOAT = "float"
"""The policy and the allocation of trainings in float32, which have no statistics."""

GROUP_WIDTH = 0.8
"""Of the distance between two groups, what their columns share."""


@dataclass(frozen=True)
class Measure:
    """A column of thinning.csv as a plot shows it."""

    name: str
    title: str
    unit: str = "%"
    logarithmic: bool = False

    def value(self, row: Row) -> float | None:
        """In the plot's unit; None where the training has none."""
        text = row.get(self.name, "")
        return None if text == "" else float(text) * (100 if self.unit in ("%", "points") else 1)


AGREEMENT, SATURATION = "decisions as with statistics in every PE", "saturated results"
OF_PROPAGATION, OF_ALL = "activations and their gradients", "all tensors"
AGAINST_FLOAT = Measure("against_float", "test accuracy against float32 of the same seed", unit="points")

BY_ALLOCATION = (
    Measure("propagation_agreement", f"{AGREEMENT}:\n{OF_PROPAGATION}"),
    Measure("propagation_saturation", f"{SATURATION}:\n{OF_PROPAGATION}", "share", True),
    AGAINST_FLOAT,
    Measure("all_agreement", f"{AGREEMENT}:\n{OF_ALL}"),
    Measure("all_saturation", f"{SATURATION}:\n{OF_ALL}", "share", True),
)
BY_POLICY = (
    Measure("all_saturation", f"{SATURATION}: {OF_ALL}", "share", True),
    Measure("all_spare_bits", f"bits at the top that no value used: {OF_ALL}", unit="bits, mean"),
    AGAINST_FLOAT,
)


def draw_allocations(rows: Sequence[Row], policy: str, steps: int) -> Figure:
    """Allocations under one policy: a plot a measure, a group a thinning."""
    from matplotlib.figure import Figure

    chosen = [row for row in rows if row["policy"] in (policy, FLOAT)]
    thinnings = sorted({int(row["thinning"]) for row in chosen if row["allocation"] not in (FULL, FLOAT)})
    figure = Figure(figsize=(13.5, 7.2), layout="constrained")
    figure.suptitle(f'LeNet on MNIST, {steps} mini-batches, policy "{policy}"; dots: seeds, bars: their means')
    axes = figure.subplots(2, 3).ravel()
    for ax, measure in zip(axes, BY_ALLOCATION, strict=False):
        ticks = [f"one PE in {thinning}" for thinning in thinnings]
        columns = [
            [_seeds(chosen, measure, policy, kind, thinning) for thinning in thinnings]
            for kind in TITLES
            if kind != FULL
        ]
        _draw_columns(ax, [kind for kind in TITLES if kind != FULL], columns)
        _draw_reference(ax, _seeds(chosen, measure, policy, FULL, 1), "-")
        _finish(ax, measure, ticks, _seeds(chosen, measure, FLOAT, FLOAT, 1))
    _draw_legend(axes[-1], [*TITLES])
    return figure


def draw_policies(rows: Sequence[Row], steps: int) -> Figure:
    """Policies: a plot a measure and thinning, a group a policy."""
    from matplotlib.figure import Figure

    policies = list(dict.fromkeys(row["policy"] for row in rows if row["policy"] != FLOAT))
    several = [row for row in rows if row["policy"] != policies[0]] or list(rows)
    thinnings = sorted({int(row["thinning"]) for row in several} - {1}) or [1]
    kinds = [kind for kind in TITLES if any(row["allocation"] == kind for row in several)]
    width = max(7.0, 1.25 * len(policies))
    figure = Figure(figsize=(width * len(thinnings), 3.4 * len(BY_POLICY) + 0.6), layout="constrained")
    figure.suptitle(f"LeNet on MNIST, {steps} mini-batches; dots: seeds, bars: their means")
    axes = figure.subplots(len(BY_POLICY), len(thinnings), squeeze=False, sharey="row")
    for line, measure in zip(axes, BY_POLICY, strict=True):
        for ax, thinning in zip(line, thinnings, strict=True):
            columns = [
                [_seeds(rows, measure, policy, kind, 1 if kind == FULL else thinning) for policy in policies]
                for kind in kinds
            ]
            _draw_columns(ax, kinds, columns)
            _finish(
                ax, measure, [name.replace("-", "\n+ ") for name in policies], _seeds(rows, measure, FLOAT, FLOAT, 1)
            )
            ax.set_title(f"{measure.title} (one PE in {thinning})", fontsize=10)
    handles = _handles(kinds)
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _seeds(rows: Sequence[Row], measure: Measure, policy: str, allocation: str, thinning: int) -> list[float]:
    """A measure of each training of a case."""
    case = (policy, allocation, thinning)
    values = (measure.value(row) for row in rows if (row["policy"], row["allocation"], int(row["thinning"])) == case)
    return [value for value in values if value is not None]


def _draw_columns(ax: Axes, kinds: Sequence[str], columns: Sequence[Sequence[Sequence[float]]]) -> None:
    """`columns` hold the trainings of an allocation, group by group; those of a group stand side by side."""
    width = GROUP_WIDTH / len(kinds)
    for index, (kind, groups) in enumerate(zip(kinds, columns, strict=True)):
        for group, values in enumerate(groups):
            if not values:
                continue
            place = group + width * (index - (len(kinds) - 1) / 2)
            ax.plot([place] * len(values), values, ".", color=COLOURS[kind], alpha=0.6, markersize=6)
            ax.hlines(mean(values), place - width / 2.4, place + width / 2.4, color=COLOURS[kind], linewidth=2.5)


def _draw_reference(ax: Axes, values: Sequence[float], style: str) -> None:
    if values:
        ax.axhline(mean(values), color=COLOURS[FULL], linewidth=1, linestyle=style)


def _finish(ax: Axes, measure: Measure, groups: Sequence[str], floats: Sequence[float]) -> None:
    """Title, axes and the line of float32."""
    _draw_reference(ax, floats, ":")
    ax.set_title(measure.title, fontsize=10)
    ax.set_ylabel(measure.unit)
    ax.set_xticks(range(len(groups)), groups, fontsize=9)
    ax.set_xlim(-0.5, len(groups) - 0.5)
    for boundary in range(1, len(groups)):
        ax.axvline(boundary - 0.5, color="lightgrey", linewidth=0.8)
    ax.grid(alpha=0.3, axis="y")
    if measure.logarithmic and ax.dataLim.y1 > 0:
        ax.set_yscale("log")


def _draw_legend(ax: Axes, kinds: Sequence[str]) -> None:
    ax.axis("off")
    ax.legend(handles=_handles(kinds), loc="center", frameon=False, fontsize=11)


def _handles(kinds: Sequence[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        *(Line2D([], [], color=COLOURS[kind], marker=".", linewidth=2.5, label=TITLES[kind]) for kind in kinds),
        Line2D([], [], color=COLOURS[FULL], linewidth=1, linestyle=":", label="float32"),
    ]

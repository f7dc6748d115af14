"""Distributions of top bits under each allocation, and the top bit that each would choose (JP7367595B2 figs. 5, 17).

    python -m examples.experiments.fig5_17 [--steps 300] [--thinning 16] [--tensor conv2.grad ...]

LeNet trains on MNIST with statistics in every PE. In each of the last mini-batches the same results are also seen
through the statistics PEs of every other allocation. The plot has the distributions of the last mini-batch and how
often the chosen top bits were how far off; the tables compare the chosen top bits, in the last one and over all that
were looked at.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from binpoint.backends.kernel import StatisticsRecord
from binpoint.runtime.exponents import chosen_top
from binpoint.runtime.training.engine import MiniBatch
from binpoint.support.numeric import UpdatePolicy
from examples.experiments.allocations import COLOURS, CONTINUOUS, FULL, TITLES, allocations
from examples.experiments.report import print_table, write_csv, write_plot
from examples.experiments.shadow import Records
from examples.experiments.training import Plan, Training, chosen_backend, training_options

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TENSORS = ("conv1", "conv2", "conv2.grad", "pool1.grad")
POLICY = UpdatePolicy()
"""The rule of the patent, r_max = 0.002 %."""

LEFT_OUT = CONTINUOUS
"""In one mini-batch it samples as many pairs as `rotated`, in the same way."""


DARKEST = 3
"""Differences of so many bits and more have the darkest colours."""

LEAST_LABELLED = 0.06
"""The smallest share of a bar that has room for its number."""


class Observer:
    """Keeps the last mini-batch's records and counts differences of top bits over the last `wanted` of `steps`."""

    def __init__(self, tensors: Sequence[str], steps: int, wanted: int) -> None:
        self.records: dict[str, dict[str, StatisticsRecord]] = {}
        self.differences: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        self._tensors, self._left, self._wanted = tensors, steps, wanted

    def observe(self, batch: MiniBatch, records: Records) -> None:
        """One mini-batch of the training."""
        self._left -= 1
        if self._left >= self._wanted:
            return
        self.records = {name: {tensor: seen[tensor] for tensor in self._tensors} for name, seen in records.items()}
        for tensor in self._tensors:
            full = chosen_top(POLICY, records[FULL][tensor])
            for name, seen in records.items():
                if seen[tensor].msb:
                    self.differences[tensor, name][chosen_top(POLICY, seen[tensor]) - full] += 1


def main() -> None:
    """Write fig5_17.csv, fig5_17_tops.csv and fig5_17.png."""
    parser = training_options(__doc__)
    parser.add_argument("--thinning", type=int, default=16, help="one PE of so many has a statistics circuit, a square")
    parser.add_argument("--steps", type=int, default=300, help="mini-batches of training (default 300)")
    parser.add_argument("--last", type=int, default=100, help="how many of them are looked at (default 100)")
    parser.add_argument("--tensor", action="append", help=f"default: {', '.join(TENSORS)}")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    targets = allocations(arguments.thinning)
    tensors = arguments.tensor or list(TENSORS)
    training = Training(
        Plan(targets[FULL], POLICY, arguments.seed, arguments.steps),
        chosen_backend(arguments),
        {name: target for name, target in targets.items() if name != LEFT_OUT},
    )
    observer = Observer(tensors, arguments.steps, arguments.last)
    training.run(observer.observe, test_images=1)
    rows = top_rows(observer, tensors)
    print_table(rows)
    write_csv(arguments.output / "fig5_17_tops.csv", rows)
    write_csv(arguments.output / "fig5_17.csv", histogram_rows(observer.records, tensors))
    write_plot(arguments.output / "fig5_17.png", draw(observer, tensors, arguments.thinning))
    print(f"results are in {arguments.output}")


def top_rows(observer: Observer, tensors: Sequence[str]) -> list[dict[str, Any]]:
    """For each tensor and allocation: the top bit in the last mini-batch, and how it compares with all PEs'."""
    rows = []
    for tensor in tensors:
        for name, seen in observer.records.items():
            differences = observer.differences[tensor, name]
            count = differences.total()
            sizes = Counter({abs(difference): number for difference, number in differences.items()})
            rows.append(
                {
                    "tensor": tensor,
                    "allocation": name,
                    "samples": seen[tensor].samples,
                    "top": chosen_top(POLICY, seen[tensor]) if seen[tensor].msb else "",
                    "mini_batches": count,
                    "agreement": round(differences[0] / max(1, count), 4),
                    "below": round(sum(n for d, n in differences.items() if d < 0) / max(1, count), 4),
                    "above": round(sum(n for d, n in differences.items() if d > 0) / max(1, count), 4),
                    "largest_difference": max(sizes, default=0),
                }
            )
    return rows


def histogram_rows(
    records: Mapping[str, Mapping[str, StatisticsRecord]], tensors: Sequence[str]
) -> list[dict[str, Any]]:
    """The distributions: a row a tensor, allocation and top bit."""
    return [
        {"tensor": tensor, "allocation": name, "position": position, "samples": count, "share": share}
        for tensor in tensors
        for name, seen in records.items()
        for position, count, share in _shares(seen[tensor])
    ]


def _shares(record: StatisticsRecord) -> list[tuple[int, int, float]]:
    return [(position, count, count / record.samples) for position, count in sorted(record.msb.items())]


def draw(observer: Observer, tensors: Sequence[str], thinning: int) -> Figure:
    """A row a tensor: the distribution, its upper end with the chosen top bits, and how choices differ over time."""
    from matplotlib.figure import Figure

    records = observer.records
    figure = Figure(figsize=(15, 3.1 * len(tensors) + 0.9), layout="constrained")
    figure.suptitle(f"LeNet on MNIST: where the top bits of results lie, with statistics in one PE in {thinning}")
    axes = figure.subplots(len(tensors), 3, squeeze=False, width_ratios=(1.25, 1, 0.9))
    for (whole, end, choices), tensor in zip(axes, tensors, strict=True):
        seen = {name: by_tensor[tensor] for name, by_tensor in records.items()}
        _draw_distributions(whole, seen)
        _draw_distributions(end, seen)
        _draw_choices(end, seen)
        whole.set_title(f"{tensor}: top bits of one mini-batch", fontsize=10)
        end.set_title("upper end; vertical: the top bit that each chooses", fontsize=10)
        _draw_differences(choices, {name: observer.differences[tensor, name] for name in seen if name != FULL})
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw_distributions(ax: Axes, seen: Mapping[str, StatisticsRecord]) -> None:
    from matplotlib.ticker import MaxNLocator

    for name, record in seen.items():
        shares = _shares(record)
        positions, percents = [each[0] for each in shares], [100 * each[2] for each in shares]
        width = 2.5 if name == FULL else 1.2
        ax.plot(positions, percents, color=COLOURS[name], linewidth=width, marker=".", label=TITLES[name])
    ax.set_yscale("log")
    tolerated = 100 * float(POLICY.r_max)
    ax.axhline(tolerated, color="grey", linewidth=1, linestyle=":", label=f"r_max = {tolerated:g} %")
    ax.set_xlabel("top bit (power of two)")
    ax.set_ylabel("samples (%)")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)


def _draw_choices(ax: Axes, seen: Mapping[str, StatisticsRecord]) -> None:
    """A vertical line for each choice; lines that would coincide stand side by side."""
    tops = {name: chosen_top(POLICY, record) for name, record in seen.items() if record.msb}
    for index, name in enumerate(seen):
        if name in tops:
            offset = 0.07 * (index - (len(seen) - 1) / 2)
            ax.axvline(tops[name] + offset, color=COLOURS[name], linewidth=2.5 if name == FULL else 1.5)
    least, most = min(tops.values()) - 3, max(tops.values()) + 1
    ax.set_xlim(least - 0.5, most + 0.5)
    ax.set_xticks(range(least, most + 1))


def _draw_differences(ax: Axes, differences: Mapping[str, Counter[int]]) -> None:
    """A bar an allocation: in how many mini-batches its top bit was so many bits off."""
    from matplotlib import colormaps
    from matplotlib.ticker import PercentFormatter

    # Red is too low, which saturates; blue too high, which wastes bits; the further off, the darker.
    colours = colormaps["RdBu"]
    names = [name for name in differences if differences[name]]
    for row, name in enumerate(names):
        left, total = 0.0, differences[name].total()
        for difference in sorted(differences[name]):
            share = differences[name][difference] / total
            shade = colours(0.5 + max(-DARKEST, min(DARKEST, difference)) / (2 * DARKEST + 1))
            colour = "whitesmoke" if difference == 0 else shade
            ax.barh(row, share, left=left, color=colour, edgecolor="black", linewidth=0.5)
            if share > LEAST_LABELLED:
                ax.text(left + share / 2, row, f"{difference:+d}" if difference else "0", ha="center", va="center")
            left += share
    total = max(counts.total() for counts in differences.values())
    ax.set_title(f"bits off full statistics, {total} mini-batches", fontsize=10)
    ax.set_yticks(range(len(names)), names)
    for label, name in zip(ax.get_yticklabels(), names, strict=True):
        label.set_color(COLOURS[name])
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(PercentFormatter(1))


if __name__ == "__main__":
    main()

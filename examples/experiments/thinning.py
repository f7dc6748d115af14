"""Training under thinned statistics: what allocations and policies do to exponents and to accuracy.

    python -m examples.experiments.thinning [--steps 300] [--seeds 0 1 2] [--thinnings 4 16 64]
        [--allocations full rotated ...] [--policies record window ...]

LeNet trains on MNIST in int8 with 16-bit masters. Each decision of a training is compared with the one that statistics
in every PE would have led to under the same policy: `agreement` is the share that is the same. `saturation` is the
share of results that saturate. Both count the tensors that statistics PEs sample: `propagation` those of images and
channels (activations and their gradients), `all` parameters and their gradients, too.

A row of thinning.csv is one training. Trainings that are in the file already are not repeated, so an experiment can
be stopped and extended. thinning_summary.csv has means and spreads over the seeds, thinning.png shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from binpoint.backends.training_backend import TrainingBackend
from binpoint.support.numeric import UpdatePolicy
from examples.experiments.allocations import FULL, TITLES, allocations
from examples.experiments.comparison import ALL, Comparison
from examples.experiments.report import print_table, read_csv, write_csv, write_plot
from examples.experiments.training import Plan, Training, chosen_backend, train_float, training_options

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FLOAT = "float"
"""The name of the trainings in float32, which have no statistics."""

POLICIES = {
    "record": UpdatePolicy(),
    "headroom": UpdatePolicy(headroom=1),
    "patience": UpdatePolicy(patience=16),
    "confidence": UpdatePolicy(confidence=Fraction(19, 20), headroom=1),
    "window": UpdatePolicy(window=16),
    "window-headroom": UpdatePolicy(window=16, headroom=1),
    "window-confidence": UpdatePolicy(window=16, confidence=Fraction(19, 20), headroom=1),
}
"""`record` decides from one mini-batch's record, as the patent does."""

MEASURES = ("propagation_agreement", "propagation_saturation", "all_agreement", "all_saturation", "accuracy")
"""What the summary and the plot show; thinning.csv has more."""


@dataclass(frozen=True)
class Case:
    """One training. `full` and `float` have no thinning: it is 1."""

    policy: str
    allocation: str
    thinning: int
    seed: int
    steps: int

    def __str__(self) -> str:
        return f"{self.policy}, {self.allocation}, 1/{self.thinning}, seed {self.seed}"


def main() -> None:
    """Train what is not in thinning.csv yet, and sum everything up."""
    parser = training_options(__doc__)
    parser.add_argument("--steps", type=int, default=300, help="mini-batches of a training (default 300)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--thinnings", type=int, nargs="+", default=[4, 16, 64], help="squares")
    parser.add_argument("--allocations", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--policies", nargs="+", choices=list(POLICIES), default=["record"])
    parser.add_argument("--test-images", type=int, help="test on the first so many images alone")
    arguments = parser.parse_args()
    path = arguments.output / "thinning.csv"
    rows: list[dict[str, Any]] = [*read_csv(path)]
    done = {_case_of(row) for row in rows}
    wanted = cases(arguments.policies, arguments.allocations, arguments.thinnings, arguments.seeds, arguments.steps)
    missing = [case for case in wanted if case not in done]
    for number, case in enumerate(missing, 1):
        rows.append(measure(case, chosen_backend(arguments), arguments.test_images))
        write_csv(path, rows)
        print(f"{number} of {len(missing)}: {case}, accuracy {rows[-1]['accuracy']:.2%}", flush=True)
    sum_up(arguments.output, [row for row in rows if int(row["steps"]) == arguments.steps])


def cases(
    policies: Sequence[str], kinds: Sequence[str], thinnings: Sequence[int], seeds: Sequence[int], steps: int
) -> Iterator[Case]:
    """The trainings of an experiment, seed by seed; the first ones are those that all are compared with."""
    for seed in seeds:
        yield Case(FLOAT, FLOAT, 1, seed, steps)
        for policy in policies:
            if FULL in kinds:
                yield Case(policy, FULL, 1, seed, steps)
            for thinning in thinnings:
                for kind in kinds:
                    if kind != FULL:
                        yield Case(policy, kind, thinning, seed, steps)


def measure(case: Case, backend: TrainingBackend, test_images: int | None) -> dict[str, Any]:
    """One training as a row."""
    targets = allocations(max(case.thinning, 4))  # of `full` there is one, whatever the thinning of the others
    if case.policy == FLOAT:
        accuracy = train_float(Plan(targets[FULL], UpdatePolicy(), case.seed, case.steps), test_images)
        return vars(case) | {"accuracy": accuracy}
    plan = Plan(targets[case.allocation], POLICIES[case.policy], case.seed, case.steps)
    training = Training(plan, backend, {FULL: targets[FULL]})
    comparison = Comparison(training.program, training.exponents)
    row = vars(case) | {"accuracy": training.run(comparison.observe, test_images)}
    row["changes"] = comparison.counts[ALL].changes / case.steps
    for group, counts in comparison.counts.items():
        row |= {f"{group}_agreement": counts.agreement, f"{group}_saturation": counts.saturation}
    return row


def sum_up(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Means and spreads over the seeds, as a table, a CSV and a plot."""
    summary = summarise(rows)
    print_table(summary)
    write_csv(folder / "thinning_summary.csv", summary)
    write_plot(folder / "thinning.png", draw(summary))
    print(f"results are in {folder}")


def summarise(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each policy, allocation and thinning: means over the seeds and sample standard deviations."""
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["policy"], row["allocation"], int(row["thinning"])), []).append(row)
    summary = []
    for (policy, allocation, thinning), trainings in sorted(groups.items(), key=lambda item: item[0][2]):
        result: dict[str, Any] = {"policy": policy, "allocation": allocation, "thinning": thinning}
        result["seeds"] = len(trainings)
        for name in MEASURES:
            values = [float(training[name]) for training in trainings if training.get(name, "") != ""]
            result[name] = mean(values) if values else ""
            result[f"{name}_spread"] = stdev(values) if len(values) > 1 else ""
        summary.append(result)
    return summary


def draw(summary: Sequence[Mapping[str, Any]]) -> Any:
    """A column a thinning, a row a measure, a group a policy, a colour an allocation; lines are the references."""
    from matplotlib.figure import Figure

    thinned = [row for row in summary if row["thinning"] > 1]
    columns = sorted({row["thinning"] for row in thinned}) or [1]
    figure = Figure(figsize=(5 * len(columns) + 1, 3.2 * len(MEASURES)), layout="constrained")
    axes = figure.subplots(len(MEASURES), len(columns), squeeze=False, sharey="row")
    references = [row for row in summary if row["thinning"] == 1]
    for line, name in zip(axes, MEASURES, strict=True):
        for ax, thinning in zip(line, columns, strict=True):
            _draw_measure(ax, name, [row for row in thinned if row["thinning"] == thinning], references)
            ax.set_title(f"{name.replace('_', ', ')}: one PE of {thinning}", fontsize=10)
    axes[0][0].legend(fontsize=7, ncols=2)
    return figure


def _draw_measure(
    ax: Axes, name: str, rows: Sequence[Mapping[str, Any]], references: Sequence[Mapping[str, Any]]
) -> None:
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    kinds = [kind for kind in TITLES if any(row["allocation"] == kind for row in rows)]
    for index, kind in enumerate(kinds):
        shown = [row for row in rows if row["allocation"] == kind]
        places = [policies.index(row["policy"]) + 0.1 * (index - (len(kinds) - 1) / 2) for row in shown]
        spreads = [row[f"{name}_spread"] or 0.0 for row in shown]
        ax.errorbar(
            places,
            [row[name] for row in shown],
            spreads,
            fmt="o",
            color=f"C{list(TITLES).index(kind)}",
            capsize=2,
            markersize=4,
            label=TITLES[kind],
        )
    for row in references:
        # Full statistics under a policy belong to that policy's group; float32 to all of them.
        if row["policy"] in policies and row[name] != "":
            place = policies.index(row["policy"])
            ax.hlines(row[name], place - 0.45, place + 0.45, color="black", linewidth=1.2)
        elif row["policy"] == FLOAT and row[name] != "":
            ax.axhline(row[name], color="black", linewidth=0.8, linestyle=":")
    ax.set_xticks(range(len(policies)), policies, fontsize=8)
    ax.grid(alpha=0.3, axis="y")
    if name.endswith("saturation"):
        ax.set_yscale("log")


def _case_of(row: Mapping[str, Any]) -> Case:
    numbers = {name: int(row[name]) for name in ("thinning", "seed", "steps")}
    return Case(row["policy"], row["allocation"], **numbers)


if __name__ == "__main__":
    main()

"""Training under thinned statistics: what allocations and policies do to exponents and to accuracy.

    python -m examples.experiments.thinning [--steps 300] [--seeds 0 1 2] [--thinnings 4 16 64]
        [--allocations full rotated ...] [--policies record window ...]

LeNet trains on MNIST in int8 with 16-bit masters. Each decision of a training is compared with the one that statistics
in every PE would have led to under the same policy: `agreement` is the share that is the same. `saturation` is the
share of results that saturate. `spare_bits` is the mean number of bits at the top that a mini-batch's values did not
need, were the rule to see all of them. They count the tensors that statistics PEs sample: `propagation` those of images
and channels (activations and their gradients), `all` parameters and their gradients, too.

A row of thinning.csv is one training; thinning_tensors.csv has a row for each of its tensors. Trainings that are in the
file already are not repeated, so an experiment can be stopped and extended. thinning_summary.csv has means and spreads
over the seeds, thinning.png compares allocations under the first policy, thinning_policies.png policies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from binpoint.backends.training_backend import TrainingBackend
from binpoint.support.numeric import UpdatePolicy
from examples.experiments.allocations import FULL, TITLES, allocations
from examples.experiments.comparison import ALL, PROPAGATION, Comparison, Counts
from examples.experiments.report import print_table, read_csv, write_csv, write_plot
from examples.experiments.thinning_plots import FLOAT, draw_allocations, draw_policies
from examples.experiments.training import Plan, Training, chosen_backend, train_float, training_options

POLICIES = {
    "record": UpdatePolicy(),
    "headroom": UpdatePolicy(headroom=1),
    "patience": UpdatePolicy(patience=16),
    "confidence": UpdatePolicy(confidence=Fraction(19, 20)),
    "confidence-headroom": UpdatePolicy(confidence=Fraction(19, 20), headroom=1),
    "window": UpdatePolicy(window=16),
    "window-confidence": UpdatePolicy(window=16, confidence=Fraction(19, 20)),
    "window-headroom": UpdatePolicy(window=16, headroom=1),
}
"""`record` decides from one mini-batch's record, as the patent does."""

Row = dict[str, Any]

MEASURES = (
    *(f"{group}_{measure}" for group in (PROPAGATION, ALL) for measure in ("agreement", "saturation", "spare_bits")),
    "accuracy",
    "against_float",
)
"""What the summary shows; thinning.csv has more."""


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
    path, tensors_path = (arguments.output / name for name in ("thinning.csv", "thinning_tensors.csv"))
    rows: list[Row] = [*read_csv(path)]
    tensors: list[Row] = [*read_csv(tensors_path)]
    done = {_case_of(row) for row in rows}
    wanted = cases(arguments.policies, arguments.allocations, arguments.thinnings, arguments.seeds, arguments.steps)
    missing = [case for case in wanted if case not in done]
    for number, case in enumerate(missing, 1):
        row, by_tensor = measure(case, chosen_backend(arguments), arguments.test_images)
        rows.append(row)
        tensors = [other for other in tensors if _case_of(other) != case] + by_tensor
        write_csv(tensors_path, tensors)
        write_csv(path, rows)
        print(f"{number} of {len(missing)}: {case}, accuracy {row['accuracy']:.2%}", flush=True)
    sum_up(arguments.output, [row for row in rows if int(row["steps"]) == arguments.steps], arguments.steps)


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


def measure(case: Case, backend: TrainingBackend, test_images: int | None) -> tuple[Row, list[Row]]:
    """One training as a row, and a row for each of its tensors."""
    targets = allocations(max(case.thinning, 4))  # of `full` there is one, whatever the thinning of the others
    if case.policy == FLOAT:
        accuracy = train_float(Plan(targets[FULL], UpdatePolicy(), case.seed, case.steps), test_images)
        return vars(case) | {"accuracy": accuracy}, []
    plan = Plan(targets[case.allocation], POLICIES[case.policy], case.seed, case.steps)
    training = Training(plan, backend, {FULL: targets[FULL]})
    comparison = Comparison(training.program, training.exponents)
    row = vars(case) | {"accuracy": training.run(comparison.observe, test_images)}
    row["changes"] = comparison.counts[ALL].changes / case.steps
    for group, counts in comparison.counts.items():
        row |= {f"{group}_{name}": value for name, value in _rates(counts).items()}
    return row, [vars(case) | {"tensor": name} | _rates(counts) for name, counts in comparison.by_tensor.items()]


def _rates(counts: Counts) -> dict[str, float]:
    return {"agreement": counts.agreement, "saturation": counts.saturation, "spare_bits": counts.spare_bits}


def sum_up(folder: Path, rows: Sequence[Row], steps: int) -> None:
    """Means and spreads over the seeds, as a table and a CSV, and the plots."""
    rows = beside_float(rows)
    summary = summarise(rows)
    print_table(summary)
    write_csv(folder / "thinning_summary.csv", summary)
    policies = list(dict.fromkeys(row["policy"] for row in rows if row["policy"] != FLOAT))
    write_plot(folder / "thinning.png", draw_allocations(rows, policies[0], steps))
    if len(policies) > 1:
        write_plot(folder / "thinning_policies.png", draw_policies(rows, steps))
    print(f"results are in {folder}")


def beside_float(rows: Sequence[Row]) -> list[Row]:
    """The rows with `against_float`, the accuracy less that of float32 with the same seed, where there is one."""
    floats = {row["seed"]: float(row["accuracy"]) for row in rows if row["policy"] == FLOAT}
    return [
        {**row, "against_float": float(row["accuracy"]) - floats[row["seed"]]} if row["seed"] in floats else row
        for row in rows
    ]


def summarise(rows: Sequence[Row]) -> list[Row]:
    """A row for each policy, allocation and thinning: means over the seeds and sample standard deviations."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["policy"], row["allocation"], int(row["thinning"])), []).append(row)
    summary = []
    for (policy, allocation, thinning), trainings in sorted(groups.items(), key=lambda item: item[0][2]):
        result: Row = {"policy": policy, "allocation": allocation, "thinning": thinning}
        result["seeds"] = len(trainings)
        for name in MEASURES:
            values = [float(training[name]) for training in trainings if training.get(name, "") != ""]
            result[name] = mean(values) if values else ""
            result[f"{name}_spread"] = stdev(values) if len(values) > 1 else ""
        summary.append(result)
    return summary


def _case_of(row: Row) -> Case:
    numbers = {name: int(row[name]) for name in ("thinning", "seed", "steps")}
    return Case(row["policy"], row["allocation"], **numbers)


if __name__ == "__main__":
    main()

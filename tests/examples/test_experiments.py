"""Experiments: what they share, and the ones that need no training."""

import csv
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from binpoint.backends.kernel import Events, StatisticsRecord
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.runtime.policies import ExponentHistory
from binpoint.runtime.training.engine import MiniBatch
from binpoint.scheduling.allocation import schedule_layer
from binpoint.support.numeric import UpdatePolicy
from binpoint.support.target import Target
from examples.experiments import fig5_17, fig6, thinning, training
from examples.experiments.allocations import CONTINUOUS, FULL, TITLES, allocations
from examples.experiments.comparison import ALL, GROUPS, PROPAGATION, Comparison, Counts
from examples.experiments.report import read_csv, write_csv
from examples.experiments.shadow import Records


@pytest.mark.parametrize("thinning", [4, 16, 64])
def test_every_allocation_thins_alike(thinning: int) -> None:
    targets = allocations(thinning)
    assert targets.keys() == TITLES.keys()
    for name, target in targets.items():
        assert len(target.statistics_pes) == target.pes // (1 if name == FULL else thinning)
        assert target.notes() == []
        sampled = schedule_layer("layer", 64, 64, target).sample_mask().mean()
        assert sampled == 1 / (1 if name == FULL else thinning)


def test_a_thinning_is_a_square() -> None:
    with pytest.raises(ValueError, match="8 is no square"):
        allocations(8)


def test_rows_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.csv"
    assert read_csv(path) == []
    write_csv(path, [{"name": "a, b", "rate": 0.5}, {"name": 'c"', "rate": 2}])
    assert path.read_text() == 'name,rate\n"a, b",0.5\n"c""",2\n'
    assert read_csv(path) == [{"name": "a, b", "rate": "0.5"}, {"name": 'c"', "rate": "2"}]


def test_the_pictures_of_fig_6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--thinning", "4", "--images", "4", "--layer", "conv2", "-o", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["fig6", *options])
    fig6.main()
    assert (tmp_path / "fig6.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "fig6.csv").open() as file:
        rows = list(csv.DictReader(file))
    masks = {
        title: np.array([int(row["sampled"]) for row in rows if row["allocation"] == title]).reshape(4, 16)
        for title in {row["allocation"] for row in rows}
    }
    assert masks[TITLES["rotated"]].tolist() == [[int((c - n) % 4 == 0) for c in range(16)] for n in range(4)]
    assert masks[TITLES["channel"]].any(axis=0).tolist() == [c % 4 == 0 for c in range(16)]
    assert masks[f"{TITLES[CONTINUOUS]}, 2 of them"].sum() == 2 * masks[TITLES["rotated"]].sum()
    assert masks[f"{TITLES[CONTINUOUS]}, 4 of them"].all()


SMALL = """network small {
  input image: 1x28x28 { scale = 1/256 }
  conv = conv2d(image, channels=2, kernel=5, stride=5)
  fc = linear(flatten(relu(conv)), features=10)
  loss = cross_entropy(fc)
}
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments train a small network instead of LeNet."""
    path = tmp_path / "small.bp"
    path.write_text(SMALL)
    monkeypatch.setattr(training, "NETWORK", path)


def test_shadows_change_nothing_and_see_what_their_statistics_pes_would(small: None) -> None:
    targets = allocations(16)
    plan = training.Plan(targets["rotated"], UpdatePolicy(), steps=2)
    losses: list[list[float]] = []
    seen: list[Records] = []

    def run(plan: training.Plan, shadows: Mapping[str, Target]) -> None:
        left: list[float] = []

        def observe(batch: MiniBatch, records: Records) -> None:
            left.append(batch.loss)
            seen.append({name: dict(of_target) for name, of_target in records.items()})

        training.Training(plan, OracleBackend(), shadows).run(observe, 10)
        losses.append(left)

    run(plan, {})
    assert seen == [{}, {}]
    run(plan, {"same": targets["rotated"], FULL: targets[FULL], CONTINUOUS: targets[CONTINUOUS]})
    assert losses[0] == losses[1]
    first, second = seen[2:]
    assert first[CONTINUOUS] == first["same"]
    assert second[CONTINUOUS] != second["same"]
    assert first[FULL]["conv"].samples == 64 * 2 * 25
    assert first["same"]["conv"].samples == 64 * 2 * 25 / 16
    assert {"conv.weight", "conv.weight.master", "conv.weight.grad", "fc"} <= first[FULL].keys()


def test_full_statistics_agree_with_themselves(small: None) -> None:
    target = allocations(16)[FULL]
    prepared = training.Training(training.Plan(target, UpdatePolicy(), steps=2), OracleBackend(), {FULL: target})
    comparison = Comparison(prepared.program, prepared.exponents)
    prepared.run(comparison.observe, 10)
    counts = comparison.counts
    assert counts[ALL].decisions == counts[ALL].agreeing > 0
    assert counts[ALL] == sum((counts[group] for group in set(GROUPS.values())), Counts())
    assert counts[PROPAGATION] == counts["activations"] + counts["gradients"]


@pytest.mark.parametrize(("policy", "needed"), [(UpdatePolicy(), -3), (UpdatePolicy(window=4, headroom=2), -3)])
def test_spare_bits_are_those_above_what_all_values_need(small: None, policy: UpdatePolicy, needed: int) -> None:
    target = allocations(16)[FULL]
    prepared = training.Training(training.Plan(target, policy, steps=1), OracleBackend(), {})
    record = StatisticsRecord({3: 100}, {}, 0, 100)
    for old, spare in ((needed + 2, 2), (needed - 1, 0)):
        comparison = Comparison(prepared.program, prepared.exponents | {"conv": old})
        decision = ExponentHistory(prepared.program.formats["conv"].policy, 8, old).observe(record)
        assert decision is not None
        comparison.observe(MiniBatch(0, 0, 1, {"conv": Events(100, 7)}, {"conv": decision}), {FULL: {"conv": record}})
        counts = comparison.counts["activations"]
        assert (counts.spare_bits, counts.agreement, counts.saturation) == (spare, 1, 0.07)


def test_trainings_are_not_repeated_and_summed_up(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = ["--steps", "2", "--thinnings", "16", "--allocations", "full", "rotated", "--policies", "record", "window"]
    options = [*choice, "--backend", "oracle", "--test-images", "50", "-o", str(tmp_path)]
    for seeds, trainings in ((["0"], 5), (["0", "1"], 5)):
        monkeypatch.setattr(sys, "argv", ["thinning", *options, "--seeds", *seeds])
        thinning.main()
        assert f"{trainings} of {trainings}: window, rotated, 1/16, seed {seeds[-1]}" in capsys.readouterr().out
    rows = read_csv(tmp_path / "thinning.csv")
    assert len(rows) == 10
    (window,) = (row for row in rows if (row["policy"], row["allocation"], row["seed"]) == ("window", "rotated", "1"))
    assert 0 < float(window["all_agreement"]) < 1
    tensors = [row for row in read_csv(tmp_path / "thinning_tensors.csv") if row["tensor"] == "conv.weight.grad"]
    assert len(tensors) == 8
    summary = {(row["policy"], row["allocation"]): row for row in read_csv(tmp_path / "thinning_summary.csv")}
    assert summary.keys() == {("float", "float"), *product(("record", "window"), ("full", "rotated"))}
    values = [float(row["accuracy"]) for row in rows if (row["policy"], row["allocation"]) == ("window", "rotated")]
    assert float(summary["window", "rotated"]["accuracy"]) == pytest.approx(np.mean(values))
    assert float(summary["window", "rotated"]["accuracy_spread"]) == pytest.approx(np.std(values, ddof=1))
    assert summary["float", "float"]["all_agreement"] == ""
    floats = np.mean([float(row["accuracy"]) for row in rows if row["policy"] == "float"])
    assert float(summary["window", "rotated"]["against_float"]) == pytest.approx(np.mean(values) - floats)
    for name in ("thinning.png", "thinning_policies.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_top_bits_of_fig_5(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--steps", "3", "--last", "2", "--tensor", "conv", "--tensor", "fc.weight.grad", "--backend", "oracle"]
    monkeypatch.setattr(sys, "argv", ["fig5_17", *options, "-o", str(tmp_path)])
    fig5_17.main()
    tops = {(row["tensor"], row["allocation"]): row for row in read_csv(tmp_path / "fig5_17_tops.csv")}
    assert {kind for _, kind in tops} == set(TITLES) - {CONTINUOUS}
    full = tops["conv", FULL]
    assert (full["mini_batches"], full["agreement"], full["largest_difference"]) == ("2", "1.0", "0")
    rows = [row for row in read_csv(tmp_path / "fig5_17.csv") if (row["tensor"], row["allocation"]) == ("conv", FULL)]
    tolerated = UpdatePolicy().r_max * int(full["samples"])
    above = sum(int(row["samples"]) for row in rows if int(row["position"]) > int(full["top"]))
    reached = sum(int(row["samples"]) for row in rows if int(row["position"]) >= int(full["top"]))
    assert above <= tolerated < reached
    assert (tmp_path / "fig5_17.png").read_bytes().startswith(b"\x89PNG")

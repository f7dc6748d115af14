from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from binpoint.cli.main import main
from binpoint.runtime.training.checkpoint import FILE_NAME
from tests.training_programs import PLAIN, samples

TARGET = """
name = "tests"
[array]
pes = 8
grid = [2, 4]
[statistics]
every = 4
[allocation]
strategy = "rotated"
rotation = "continuous"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A network, a target, data to train and to test on."""
    (tmp_path / "net.bp").write_text(PLAIN)
    (tmp_path / "target.toml").write_text(TARGET)
    for name, count, seed in (("train", 60, 3), ("test", 20, 4)):
        images = samples(count, seed)
        np.savez(tmp_path / f"{name}.npz", x=images.sources["image"].array, y=images.labels)
    return tmp_path


def words(folder: Path, *more: str) -> list[str]:
    options = ["--data", str(folder / "train.npz"), "--test", str(folder / "test.npz"), "--batch", "8", "--lr", "0.1"]
    oracle = [] if "--float" in more else ["--backend", "oracle"]
    return ["train", str(folder / "net.bp"), "-t", str(folder / "target.toml"), *options, *oracle, *more]


def train(folder: Path, *more: str) -> None:
    assert main(words(folder, *more)) == 0


def train_fails(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(words(folder, *more)) == 2
    return capsys.readouterr().err


def log(path: Path) -> list[dict]:
    """The lines of a log, without what depends on the machine's speed."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "images_per_second"} for line in lines]


def test_a_trained_artifact_runs_as_well_as_training_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(folder, "--epochs", "3", "-o", str(folder / "out.bpz"), "--json", str(folder / "log"))
    out = capsys.readouterr().out
    assert "24 mini-batches of 8 images: all epochs are over" in out
    epochs = [line for line in log(folder / "log") if line["event"] == "epoch"]
    assert [line["epoch"] for line in epochs] == [1, 2, 3]
    assert epochs[-1]["test_accuracy"] >= 0.95
    run = ["run", str(folder / "out.bpz"), "--data", str(folder / "test.npz"), "--backend", "oracle", "--json"]
    assert main(run) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == epochs[-1]["test_accuracy"]


def test_the_log_says_what_is_trained(folder: Path) -> None:
    train(folder, "--steps", "2", "--json", str(folder / "log"))
    first, exponents, *_ = log(folder / "log")
    assert (first["network"], first["training_images"], first["test_images"]) == ("plain", 60, 20)
    assert (first["steps"], first["learning_rate"]) == (2, "1/10")
    assert exponents["exponents"]["image"] == -7


def test_who_allocates_changes_messages_and_nothing_else(folder: Path) -> None:
    for name in ("host", "controller"):
        train(
            folder, "--steps", "4", "-o", str(folder / f"{name}.bpz"), "--json", str(folder / f"{name}.log"),
            "--trace", str(folder / f"{name}.trace"), "--set", f"target.allocation.allocator={name}",
        )  # fmt: skip
    assert log(folder / "host.log") == log(folder / "controller.log")
    stages = [{line["call"] for line in log(folder / f"{name}.trace")} for name in ("host", "controller")]
    assert stages == [{None, "S21", "S22", "S23"}, {None, "S26", "S27", "S28", "S29", "S30"}]


def test_float_trains_from_the_same_start_in_the_same_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(folder, "--steps", "6", "--json", str(folder / "fixed"))
    train(folder, "--steps", "6", "--json", str(folder / "float"), "--float", "-o", str(folder / "float.bpz"))
    fixed, floating = (
        [line["loss"] for line in log(folder / name) if line["event"] == "step"] for name in ("fixed", "float")
    )
    assert floating[0] == pytest.approx(fixed[0], abs=0.02)
    assert floating != fixed
    assert main(["inspect", str(folder / "float.bpz")]) == 0


def test_training_ends_at_its_target(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(folder, "--epochs", "9", "--target-accuracy", "90%")
    out = capsys.readouterr().out
    assert "the target accuracy is reached" in out
    assert "72 mini-batches" not in out


def test_stochastic_rounding_is_a_setting(folder: Path) -> None:
    options = ("--steps", "3", "--set", "numeric.rounding=stochastic", "--json", str(folder / "log"))
    train(folder, *options)
    once = log(folder / "log")
    train(folder, *options)
    assert log(folder / "log") == once


KILLED_IN = """
import os, signal
from binpoint.cli.main import main
from {module} import {owner} as owner

def killing(function, left):
    def call(*arguments):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return call

owner.{name} = killing(owner.{name}, [{times}])
main({words!r})
"""
"""Runs a command that kills itself when a function is called for the n-th time."""

UNRENAMED_CHECKPOINT = ("binpoint.support.files", "os", "replace", 5)
UNSAVED_STEPS = ("binpoint.runtime.training.journal", "Journal", "step", 12)
UNWRITTEN_ARTIFACT = ("binpoint.cli", "train", "_write", 1)


@pytest.mark.parametrize(
    ("arithmetic", "moments"),
    [((), (UNRENAMED_CHECKPOINT, UNSAVED_STEPS, UNWRITTEN_ARTIFACT)), (("--float",), (UNSAVED_STEPS,))],
    ids=["fixed", "float"],
)
def test_killed_at_any_moment_and_resumed_the_end_is_the_same(
    folder: Path, arithmetic: tuple[str, ...], moments: tuple
) -> None:
    end = ("--epochs", "4", "--momentum", "0.9", *arithmetic)
    train(folder, *end, "-o", str(folder / "whole.bpz"), "--json", str(folder / "whole.log"))
    resumed = words(
        folder, *end, "-o", str(folder / "resumed.bpz"), "--json", str(folder / "resumed.log"),
        "--checkpoint", str(folder / "kept"), "--checkpoint-every", "3", "--resume",
    )  # fmt: skip
    for module, owner, name, times in moments:
        program = KILLED_IN.format(module=module, owner=owner, name=name, times=times, words=resumed)
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
        assert done.returncode == -signal.SIGKILL
        assert (folder / "kept" / FILE_NAME).exists()
        assert not (folder / "resumed.bpz").exists()
    assert main(resumed) == 0
    assert (folder / "resumed.bpz").read_bytes() == (folder / "whole.bpz").read_bytes()
    assert log(folder / "resumed.log") == log(folder / "whole.log")


def told(error: str) -> list[tuple[str, ...]]:
    """The rows of differing settings: (setting, found, expected)."""
    lines = error.splitlines()
    heading = next(number for number, line in enumerate(lines) if line.split() == ["setting", "found", "expected"])
    rows = [line for line in lines[heading + 1 :] if not line.startswith("  hint:")]
    return [tuple(re.split(r" {2,}", line.strip())) for line in rows]


def test_a_checkpoint_of_another_training_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = ("--checkpoint", str(folder / "kept"))
    train(folder, "--steps", "2", *kept)
    capsys.readouterr()
    error = train_fails(
        folder, capsys, *kept, "--resume", "--steps", "4", "--seed", "1", "--set", "target.statistics.every=2"
    )
    assert "error[other-training]: the checkpoint is of another training: 2 settings differ" in error
    assert told(error) == [("--seed", "1", "0"), ("target.statistics.every", "2", "4")]


@pytest.mark.parametrize(
    ("first", "second", "setting", "found", "expected"),
    [
        (("--lr", "1/20"), ("--lr", "0.25"), "--lr", "0.25", "0.05"),
        ((), ("--momentum", "9/10"), "--momentum", "0.9", "0"),
        ((), ("--float",), "--float", "given", "not given"),
        (("--lr-schedule", "linear"), ("--lr-schedule", "linear"), "--steps", "4", "2"),
        ((), ("--limit", "50"), "samples of --data", "50", "60"),
        ((), ("--set", "layer.fc.weights=6"), "layer.fc.weights", "6 bits", "not given"),
        (("--set", "numeric.rounding=floor"), (), "numeric.rounding", "not given", "floor"),
    ],
)
def test_what_differs_is_told_in_the_words_of_the_user(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    first: tuple[str, ...],
    second: tuple[str, ...],
    setting: str,
    found: str,
    expected: str,
) -> None:
    kept = ("--checkpoint", str(folder / "kept"))
    train(folder, "--steps", "2", *kept, *first)
    capsys.readouterr()
    error = train_fails(folder, capsys, *kept, "--resume", "--steps", "4", *second)
    assert told(error) == [(setting, found, expected)]


def test_another_layer_is_told_as_it_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = ("--checkpoint", str(folder / "kept"))
    train(folder, "--steps", "2", *kept)
    capsys.readouterr()
    (folder / "net.bp").write_text(PLAIN.replace("relu(conv)", "leaky_relu(conv, slope=0.1)"))
    error = train_fails(folder, capsys, *kept, "--resume", "--steps", "4")
    assert told(error) == [("layer act", "leaky_relu(conv, slope=0.1)", "relu(conv)")]


def test_a_training_goes_on_further_than_it_was_to(folder: Path) -> None:
    kept = ("--checkpoint", str(folder / "kept"), "--resume", "-o", str(folder / "out.bpz"))
    train(folder, "--steps", "8", *kept)
    train(folder, "--steps", "16", *kept)
    train(folder, "--steps", "16", "-o", str(folder / "whole.bpz"))
    assert (folder / "out.bpz").read_bytes() == (folder / "whole.bpz").read_bytes()


def test_a_resumed_trace_only_builds_anew(folder: Path) -> None:
    kept = ("--checkpoint", str(folder / "kept"), "--checkpoint-every", "3", "--trace", str(folder / "trace"))
    train(folder, "--steps", "3", *kept)
    before = (folder / "trace").read_text()
    train(folder, "--steps", "4", *kept, "--resume")
    after = (folder / "trace").read_text()
    assert after.startswith(before)
    assert '"stage": "S1"' in after.removeprefix(before).splitlines()[0]


def test_an_old_checkpoint_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(folder, "--steps", "1", "--checkpoint", str(folder / "kept"))
    assert "checkpoint-exists" in train_fails(folder, capsys, "--checkpoint", str(folder / "kept"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--resume",), "add --checkpoint DIR"),
        (("--threads", "2"), "the oracle has one thread"),
        (("--float", "--trace", "t"), "--float --trace"),
        (("--float", "--parameter-statistics", "all"), "--float --parameter-statistics"),
        (("--lr-schedule", "cosin"), 'did you mean "cosine"'),
        (("-o", "/missing/out.bpz"), "/missing"),
        (("--set", "numeric.update.gradients=nothing"), "--set"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], expected: str
) -> None:
    assert expected in train_fails(folder, capsys, *options)


@pytest.mark.parametrize(
    "option",
    [
        ("--lr", "0"),
        ("--momentum", "1"),
        ("--target-accuracy", "101%"),
        ("--lr", "x"),
        ("--weight-decay", "-1"),
        ("--lr", "1e39"),
        ("--loss-scale", "256"),
        ("--batch", "x"),
    ],
)
def test_numbers_out_of_range_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, str]
) -> None:
    assert f"error[wrong-value]: wrong value of {option[0]}" in train_fails(folder, capsys, *option)


def test_files_must_not_overwrite_each_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = str(folder / "same")
    (folder / "x").mkdir()
    error = train_fails(folder, capsys, "--json", same, "--trace", str(folder / "x" / ".." / "same"))
    assert error.count("same-file") == 1
    assert "two outputs are one file" in error
    assert "same-file" in train_fails(folder, capsys, "-o", str(folder / "net.bp"))


def test_a_target_without_statistics_cannot_follow_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = train_fails(folder, capsys, "--set", "target.statistics.pes=[]")
    assert "missing-statistics" in error
    train(folder, "--steps", "1", "--set", "target.statistics.pes=[]", "--float")


def test_threads_of_floating_point_are_set_before_numpy_is_loaded(folder: Path) -> None:
    command = words(folder, "--float", "--threads", "1", "--steps", "1")
    program = f"""
import os, sys
from binpoint.cli import backend_options
from binpoint.cli.main import main
limit = backend_options.limit_blas
import binpoint.cli.train as train
train.limit_blas = lambda threads: (limit(threads), print("loaded", "numpy" in sys.modules))
main({command!r})
print("threads", os.environ["OPENBLAS_NUM_THREADS"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "loaded False" in done.stdout
    assert "threads 1" in done.stdout


def test_a_float_training_that_diverges_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = train_fails(folder, capsys, "--float", "--lr", "1e30", "--epochs", "3")
    assert "error[diverged]" in error
    train(folder, "--lr", "1e4", "--steps", "9")  # fixed point saturates and goes on


def test_what_lies_beside_the_loss_keeps_its_first_values(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aside = "aside = batch_norm(linear(flatten(pool), features=2)) loss = cross_entropy(fc) output fc, aside"
    (folder / "net.bp").write_text(PLAIN.replace("output fc", aside))
    for arithmetic in ((), ("--float",)):
        train(folder, "--steps", "2", *arithmetic, "-o", str(folder / "out.bpz"))
        assert main(["inspect", str(folder / "out.bpz")]) == 0


def test_the_end_counts_what_there_was(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(folder, "--limit", "5", "--epochs", "1")
    assert "1 mini-batch of 5 images: all epochs are over" in capsys.readouterr().out


def test_data_without_labels_cannot_train(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(folder / "train.npz", x=samples(5).sources["image"].array)
    assert "no-labels" in train_fails(folder, capsys)


def test_mnist_trains_on_its_training_set_and_tests_on_its_test_set(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "net.bp").write_text(PLAIN.replace("1x6x6", "1x28x28").replace("kernel=3,", "kernel=5, stride=6,"))
    network = (folder / "net.bp").read_text().replace("features=3", "features=10")
    (folder / "net.bp").write_text(network)
    options = ["--data", "mnist:examples/data/mnist", "--limit", "100", "--test-limit", "20", "--steps", "2"]
    words = ["train", str(folder / "net.bp"), "-t", "dlu2048", "--json", str(folder / "log"), "--backend", "oracle"]
    assert main([*words, *options]) == 0
    first = log(folder / "log")[0]
    assert (first["training_images"], first["test_images"], first["target"]) == (100, 20, "dlu2048")

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from binpoint.backends.tensor_expression.threads import available_cores
from binpoint.cli.main import main
from binpoint.runtime.artifact import write_artifact
from binpoint.runtime.manifest import Origin, Source, origin_facts
from binpoint.scheduling.allocation import schedule_layer
from binpoint.scheduling.schedule import Schedule
from tests.programs import TARGET, compiled

IMAGES = np.random.default_rng(3).integers(0, 256, (10, 6, 6)).astype(np.uint8)
LABELS = np.arange(10) % 3
EXECUTION = ("images_per_second", "backend", "threads", "literal")
"""What depends on the machine and on the way of execution."""
TWO_OUTPUTS = """
network two {
  input image: 1x6x6
  conv = conv2d(image, channels=2, kernel=3)
  act = relu(conv)
  output conv, act
}
"""


@pytest.fixture
def artifact(tmp_path: Path) -> str:
    path = tmp_path / "small.bpz"
    write_artifact(path, compiled())
    return str(path)


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "data.npz"
    np.savez(path, x=IMAGES, y=LABELS)
    return str(path)


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["run", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def run_fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["run", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error[")
    return captured.err


def timeless(result: dict) -> dict:
    """A result without what depends on the machine and on the way of execution."""
    return {name: value for name, value in result.items() if name not in EXECUTION}


def test_the_result_has_the_promised_keys(capsys: pytest.CaptureFixture[str], artifact: str, data: str) -> None:
    result = run_json(capsys, artifact, "--data", data, "--backend", "oracle", "--batch", "4")
    assert result["samples"] == 10
    assert 0 <= result["accuracy"] <= 1
    assert 0 <= result["float_accuracy"] <= 1
    assert result["images_per_second"] > 0
    conv, pool, flat, fc = result["layers"]
    for layer in result["layers"]:
        assert {"name", "exponent", "saturated", "underflowed", "msb_histogram"} <= layer.keys()
        assert 0 <= layer["saturated"] <= 1
    assert (conv["name"], pool["name"], flat["name"], fc["name"]) == ("conv", "pool", "fc.flatten", "fc")
    assert pool["exponent"] == conv["exponent"]
    sampled = sum(int(schedule_layer("fc", count, 3, TARGET).sample_mask().sum()) for count in (4, 4, 2))
    assert sum(fc["msb_histogram"].values()) <= sampled
    assert fc["msb_histogram"]
    assert pool["msb_histogram"] is None


def test_compiled_kernels_the_oracle_and_the_literal_array_agree(
    capsys: pytest.CaptureFixture[str], artifact: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BINPOINT_CACHE", str(tmp_path / "cache"))
    ways = (["--backend", "oracle"], ["--backend", "oracle", "--literal"], ["--threads", "2"], ["--literal"])
    results = []
    for index, way in enumerate(ways):
        output = tmp_path / f"{index}.npy"
        words = [artifact, "--data", data, "--batch", "3", "--exponents", "statistics", "--output", str(output), *way]
        results.append((timeless(run_json(capsys, *words)), output.read_bytes()))
    assert results[1:] == results[:1] * 3
    assert results[0][0]["exponents"] == "statistics"


def test_text_shows_accuracy_layers_and_throughput(
    capsys: pytest.CaptureFixture[str], artifact: str, data: str
) -> None:
    assert main(["run", artifact, "--data", data, "--backend", "oracle", "--limit", "5"]) == 0
    out = capsys.readouterr().out
    assert "accuracy" in out
    assert "in float" in out
    assert "on 5 images" in out
    assert "images/s" in out
    for tensor in ("image", "conv", "pool", "fc"):
        assert f" {tensor} " in out


def test_an_input_without_labels_shows_its_top_classes(
    capsys: pytest.CaptureFixture[str], artifact: str, tmp_path: Path
) -> None:
    names = [str(tmp_path / name) for name in ("one.png", "two.png")]
    for name, pixels in zip(names, IMAGES, strict=False):
        Image.fromarray(pixels).save(name)
    output = tmp_path / "y.npy"
    words = ["run", artifact, "--input", *names, "--backend", "oracle", "--output", str(output)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "accuracy" not in out
    scores = np.load(output)
    assert scores.shape == (2, 3)
    assert scores.dtype == np.float32
    for name, row in zip(names, scores, strict=True):
        line = next(line for line in out.splitlines() if name in line)
        assert line.split()[1] == str(row.argmax())


def test_all_repeated_inputs_run_and_json_says_their_classes(
    capsys: pytest.CaptureFixture[str], artifact: str, tmp_path: Path
) -> None:
    names = [str(tmp_path / name) for name in ("one.png", "two.png")]
    for name, pixels in zip(names, IMAGES, strict=False):
        Image.fromarray(pixels).save(name)
    output, array = tmp_path / "y.npy", tmp_path / "x.npy"
    np.save(array, IMAGES)
    words = [artifact, "--backend", "oracle", "--output", str(output)]
    result = run_json(capsys, *words, "--input", names[0], "--input", names[1])
    classes = np.load(output).argmax(axis=1).tolist()
    assert result["predictions"] == [
        {"sample": name, "class": found} for name, found in zip(names, classes, strict=True)
    ]
    result = run_json(capsys, *words, "--input", str(array), "--limit", "7")
    classes = np.load(output).argmax(axis=1).tolist()
    assert result["predictions"] == [{"sample": index, "class": classes[index]} for index in range(7)]


def test_with_labels_or_without_classes_there_are_no_predictions(
    capsys: pytest.CaptureFixture[str], artifact: str, data: str, tmp_path: Path
) -> None:
    assert run_json(capsys, artifact, "--data", data, "--backend", "oracle")["predictions"] is None
    path, array = tmp_path / "two.bpz", tmp_path / "x.npy"
    write_artifact(path, compiled(TWO_OUTPUTS))
    np.save(array, IMAGES)
    assert run_json(capsys, str(path), "--input", str(array), "--backend", "oracle")["predictions"] is None


def test_random_weights_are_a_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path, data: str) -> None:
    path = tmp_path / "origin.bpz"
    for origin, expected in (
        (Origin(Source.DRAW, seed=3), "warning: the weights are random, drawn with seed 3: accuracy and classes"),
        (Origin(Source.FILE, file="drawn.safetensors"), None),
        (None, None),
    ):
        write_artifact(path, replace(compiled(), origin=origin))
        assert main(["run", str(path), "--data", data, "--backend", "oracle", "--no-float", "--json"]) == 0
        captured = capsys.readouterr()
        assert (expected or "") in captured.err
        assert expected or "random" not in captured.err
        assert json.loads(captured.out)["weights"] == origin_facts(origin)


def test_a_literal_run_says_that_it_is_no_measure_of_speed(
    capsys: pytest.CaptureFixture[str], artifact: str, data: str
) -> None:
    words = (artifact, "--data", data, "--limit", "2", "--no-float", "--backend", "oracle")
    for literal in ([], ["--literal"]):
        assert main(["run", *words, *literal]) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        assert "backend oracle, 1 thread" in last
        assert ("literal: not a measure of speed" in last) == bool(literal)
        assert run_json(capsys, *words, *literal)["literal"] == bool(literal)


def test_all_outputs_go_into_one_npz(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, array, output = tmp_path / "two.bpz", tmp_path / "x.npy", tmp_path / "y.npz"
    write_artifact(path, compiled(TWO_OUTPUTS))
    np.save(array, IMAGES)
    words = [str(path), "--input", str(array), "--backend", "oracle"]
    assert run_json(capsys, *words, "--output", str(output))["accuracy"] is None
    outputs = np.load(output)
    assert {name: outputs[name].shape for name in outputs} == {"conv": (10, 2, 4, 4), "act": (10, 2, 4, 4)}
    np.testing.assert_array_equal(outputs["act"], np.maximum(outputs["act"], 0))
    assert "several-outputs" in run_fails(capsys, *words, "--output", str(tmp_path / "y.npy"))


def test_labels_without_classes_are_a_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path, data: str) -> None:
    path = tmp_path / "two.bpz"
    write_artifact(path, compiled(TWO_OUTPUTS))
    assert main(["run", str(path), "--data", data, "--backend", "oracle"]) == 0
    assert "no accuracy" in capsys.readouterr().err


def test_options_that_contradict_each_other_are_refused(
    capsys: pytest.CaptureFixture[str], artifact: str, data: str, tmp_path: Path
) -> None:
    words = (artifact, "--data", data)
    both = run_fails(
        capsys, *words, "--exponents", "statistics", "--no-statistics", "--backend", "oracle", "--threads", "2"
    )
    assert both.count("error[contradicting-options]") == 2
    assert "unknown-format" in run_fails(capsys, *words, "--output", str(tmp_path / "y.txt"))
    assert "no directory" in run_fails(capsys, *words, "--output", str(tmp_path / "no" / "y.npy"))
    assert "would overwrite an input" in run_fails(capsys, *words, "--output", data)
    assert "useless-option" in run_fails(capsys, *words, "--resize")
    for option in ("--limit", "--batch", "--threads"):
        assert f"wrong value of {option}" in run_fails(capsys, *words, option, "0")


def test_wrong_files_give_one_error_and_write_nothing(
    capsys: pytest.CaptureFixture[str], artifact: str, data: str, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("none of these")
    output = tmp_path / "y.npy"
    output.write_text("as before")
    for suffix, words in (
        (".bpz", lambda path: [path, "--data", data]),
        (".npz", lambda path: [artifact, "--data", path]),
        (".npy", lambda path: [artifact, "--input", path]),
        (".png", lambda path: [artifact, "--input", path]),
    ):
        path = wrong.rename(tmp_path / f"wrong{suffix}")
        assert run_fails(capsys, *words(str(path)), "--output", str(output), "--backend", "oracle").count("error[") == 1
        wrong = path
    assert output.read_text() == "as before"


def test_statistics_are_off_when_nobody_takes_them(
    capsys: pytest.CaptureFixture[str], artifact: str, data: str
) -> None:
    words = (artifact, "--data", data, "--backend", "oracle", "--no-statistics", "--no-float")
    result = run_json(capsys, *words)
    assert result["float_accuracy"] is None
    assert all(layer["msb_histogram"] is None for layer in result["layers"])


def test_the_threads_and_the_backend_are_those_that_computed(
    capsys: pytest.CaptureFixture[str], artifact: str, data: str
) -> None:
    words = (artifact, "--data", data, "--no-float", "--limit", "2")
    result = run_json(capsys, *words)
    assert (result["backend"], result["threads"]) == ("te", available_cores())
    assert run_json(capsys, *words, "--threads", "1")["threads"] == 1
    result = run_json(capsys, *words, "--backend", "oracle")
    assert (result["backend"], result["threads"]) == ("oracle", 1)


def test_there_are_never_more_threads_than_cores(capsys: pytest.CaptureFixture[str], artifact: str, data: str) -> None:
    assert 1 <= run_json(capsys, artifact, "--data", data, "--threads", "9" * 30)["threads"] <= available_cores()


def test_a_batch_beyond_the_edited_schedule_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, data: str
) -> None:
    path = tmp_path / "edited.bpz"
    schedule = Schedule("small", TARGET.name, 4, (schedule_layer("conv", 4, 5, TARGET),))
    write_artifact(path, replace(compiled(), schedule=schedule))
    words = (str(path), "--data", data, "--backend", "oracle")
    assert run_json(capsys, *words)["samples"] == 10
    assert "--batch 4" in run_fails(capsys, *words, "--batch", "5")

"""`binpoint import`: what it writes, prints and refuses."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from binpoint.cli.main import main
from binpoint.compiler.frontends.dsl.parser import parse_network
from binpoint.compiler.parameters import load_parameters
from binpoint.support import files

MODEL = Path(__file__).parents[2] / "examples/models/mnist-conv.onnx"


def contents(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_network_and_weights_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "net.bp"
    assert main(["import", str(MODEL), "-o", str(output)]) == 0
    assert contents(tmp_path) == ["net.bp", "net.safetensors"]
    assert 'weights "net.safetensors"' in output.read_text()
    network = parse_network(output)
    assert load_parameters(network, None, 0)["conv1.weight"].shape == (8, 1, 5, 5)
    printed = capsys.readouterr().out
    assert "8 layers (2 conv2d, 2 relu, 2 max_pool, 1 flatten, 1 linear)" in printed
    assert "5,994 parameters" in printed


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for _ in range(2):
        assert main(["import", str(MODEL), "-o", str(tmp_path / "net.bp")]) == 0
        written.append([(tmp_path / name).read_bytes() for name in contents(tmp_path)])
    assert written[0] == written[1]


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "net.bp"
    assert main(["import", str(MODEL), "-o", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "network": str(output),
        "weights": str(tmp_path / "net.safetensors"),
        "inputs": [{"name": "Input3", "shape": "1x28x28"}],
        "outputs": [{"name": "fc1", "shape": "10"}],
        "layers": 8,
        "kinds": {"conv2d": 2, "relu": 2, "max_pool": 2, "flatten": 1, "linear": 1},
        "parameters": 5994,
    }


def test_weights_elsewhere_are_named_relative_to_the_network(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    output, weights = tmp_path / "a/net.bp", tmp_path / "b/w.safetensors"
    assert main(["import", str(MODEL), "-o", str(output), "--save-weights", str(weights)]) == 0
    assert 'weights "../b/w.safetensors"' in output.read_text()
    assert parse_network(output).weights is not None
    load_parameters(parse_network(output), None, 0)


def test_the_scaling_of_pixels(tmp_path: Path) -> None:
    output = tmp_path / "net.bp"
    options = ["--scale", "1/255", "--mean", "0.1307", "--deviation", "0.3081"]
    assert main(["import", str(MODEL), "-o", str(output), *options]) == 0
    declared = parse_network(output).inputs["Input3"]
    assert declared.scale == Fraction(1, 255)
    assert declared.mean == (Fraction("0.1307"),)
    assert declared.deviation == (Fraction("0.3081"),)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--scale", "half"], "wrong-number"),
        (["--scale", "1/0"], "wrong-number"),
        (["--scale", "1,2"], "wrong-number"),
        (["--scale", "0"], "out-of-range"),
        (["--deviation", "0"], "out-of-range"),
        (["--mean", "1,2,3"], "wrong-count"),
    ],
)
def test_wrong_scalings(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: str) -> None:
    assert main(["import", str(MODEL), "-o", str(tmp_path / "net.bp"), *options]) == 2
    assert f"error[{code}]" in capsys.readouterr().err
    assert contents(tmp_path) == []


@pytest.mark.parametrize(
    ("model", "output", "weights", "code"),
    [
        ("model.onnx", "net.txt", None, "wrong-suffix"),
        ("model.onnx", "net.bp", "model.onnx", "same-file"),
        ("model.onnx", "net.bp", "net.bp", "same-file"),
        ("model.onnx", "none/net.bp", None, "unwritable-file"),
        ("model.onnx", "net.bp", "none/w.safetensors", "unwritable-file"),
        ("model.onnx", "folder.bp", None, "unwritable-file"),
        ("model.bp", "model.bp", None, "same-file"),
        ("model.pb", "net.bp", None, "unknown-format"),
        ("none.onnx", "net.bp", None, "unreadable-file"),
        ("folder.onnx", "net.bp", None, "unreadable-file"),
        ("bad.onnx", "net.bp", None, "not-onnx"),
    ],
)
def test_wrong_files_leave_everything_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, output: str, weights: str | None, code: str
) -> None:
    for name in ("model.onnx", "model.bp", "model.pb"):
        (tmp_path / name).write_bytes(MODEL.read_bytes())
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    for name in ("folder.bp", "folder.onnx"):
        (tmp_path / name).mkdir()
    before = contents(tmp_path)
    extra = ["--save-weights", str(tmp_path / weights)] if weights else []
    assert main(["import", str(tmp_path / model), "-o", str(tmp_path / output), *extra]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error[{code}]")
    assert printed.out == ""
    assert contents(tmp_path) == before
    assert (tmp_path / "model.onnx").read_bytes() == MODEL.read_bytes()


def test_a_network_file_that_cannot_be_written_leaves_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = files.os.replace

    def full_disk(source: str, target: Path) -> None:
        if str(target).endswith(".bp"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", full_disk)
    assert main(["import", str(MODEL), "-o", str(tmp_path / "net.bp")]) == 2
    assert contents(tmp_path) == []

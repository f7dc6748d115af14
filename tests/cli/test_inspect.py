from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from binpoint.cli.main import main
from binpoint.runtime.artifact import Artifact, write_artifact
from binpoint.runtime.manifest import Origin, Source
from binpoint.scheduling.allocation import schedule_layer
from binpoint.scheduling.schedule import Schedule
from tests.programs import TARGET, compiled


def inspect(capsys: pytest.CaptureFixture[str], folder: Path, artifact: Artifact, *options: str) -> str:
    path = folder / "small.bpz"
    write_artifact(path, artifact)
    assert main(["inspect", str(path), *options]) == 0
    return capsys.readouterr().out


def test_json_says_what_is_in_an_artifact(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    facts = json.loads(inspect(capsys, tmp_path, compiled(), "--json"))
    assert (facts["network"], facts["target"], facts["pes"], facts["batch"]) == ("small", "tests", 8, 4)
    conv, pool, flat, fc = facts["kernels"]
    assert conv["layers"] == ["conv", "act"]
    assert (conv["inputs"], conv["input_shapes"], conv["shape"]) == (["image"], [[1, 6, 6]], [5, 6, 6])
    assert (conv["bits"], conv["accumulator_bits"], conv["can_overflow"]) == (8, 40, False)
    assert (conv["operation"], conv["activation"]) == (
        "convolution kernel 3x3, padding 1,1,1,1, weight bits 6, bias bits 16",
        "relu",
    )
    assert (pool["accumulator_bits"], flat["operation"], fc["name"]) == (None, "reshape", "fc")
    weight = facts["parameters"][0]
    assert weight == {
        "name": "conv.weight",
        "shape": [5, 1, 3, 3],
        "bits": 6,
        "exponent": compiled().exponents["conv.weight"],
        "channel_exponents": None,
        "bytes": 45,
    }
    assert facts["edited_schedule"] is None
    assert "ir" not in facts
    with zipfile.ZipFile(tmp_path / "small.bpz") as archive:
        for name, digest in facts["sha256"].items():
            assert hashlib.sha256(archive.read(name)).hexdigest() == digest


def test_text_shows_kernels_parameters_and_hashes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    schedule = Schedule("small", TARGET.name, 4, (schedule_layer("conv", 4, 5, TARGET),))
    out = inspect(capsys, tmp_path, replace(compiled(), schedule=schedule))
    assert "small for tests (8 PEs), 4 images a mini-batch" in out
    assert "edited schedule of conv" in out
    for word in ("max pool kernel 2x2", "3x45x1x1", "program.mlir", "msb-histogram"):
        assert word in out


def test_where_weights_come_from_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for origin, text, facts in (
        (Origin(Source.DRAW, seed=0), "weights drawn with seed 0", {"source": "draw", "seed": 0}),
        (Origin(Source.FILE, file="w.st"), "weights read from w.st", {"source": "file", "file": "w.st"}),
        (Origin(Source.TRAINING), "weights trained", {"source": "training"}),
    ):
        artifact = replace(compiled(), origin=origin)
        assert text in inspect(capsys, tmp_path, artifact).splitlines()
        assert json.loads(inspect(capsys, tmp_path, artifact, "--json"))["weights"] == facts
    assert json.loads(inspect(capsys, tmp_path, compiled(), "--json"))["weights"] is None


def test_the_ir_is_printed_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert inspect(capsys, tmp_path, compiled(), "--ir") == compiled().ir
    assert json.loads(inspect(capsys, tmp_path, compiled(), "--ir", "--json"))["ir"] == compiled().ir


def test_other_files_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "small.bpz"
    path.write_bytes(b"PK\x03\x04 cut off")
    assert main(["inspect", str(path)]) == 2
    assert "error[damaged-artifact]" in capsys.readouterr().err


def test_names_from_a_stranger_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    artifact = compiled()
    name = "\x1b[31msmall"
    program = replace(artifact.program, name=name)
    ir = artifact.ir.replace("@small", r'@"\1B[31msmall"')
    stranger = replace(artifact, program=program, ir=ir, origin=Origin(Source.FILE, file=f"{name}.safetensors"))
    assert "\x1b" not in inspect(capsys, tmp_path, stranger)
    assert json.loads(inspect(capsys, tmp_path, stranger, "--json"))["network"] == name


def test_exponents_of_blocks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    network, artifact = tmp_path / "net.bp", tmp_path / "net.bpz"
    network.write_text("network n { input x: 1x8x8 y = conv2d(x, channels=2, kernel=3) }")
    assert main(["compile", str(network), "-t", "block16-neighbour", "-o", str(artifact)]) == 0
    capsys.readouterr()
    assert main(["inspect", str(artifact)]) == 0
    out = capsys.readouterr().out
    assert "exponents of blocks by predict(measure = overflows, candidates = 8" in out
    assert "block<4x4>" in out
    assert "msb-histogram" not in out

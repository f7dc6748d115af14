"""Detection through the command line: a Darknet network of drawn weights, from import to drawn pictures."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from binpoint.cli.main import main
from binpoint.compiler.frontends.dsl.parser import parse_network
from binpoint.runtime.artifact import read_artifact
from tests.compiler.frontends.darknet.darknet_files import conv, head, net, write_cfg, write_weights

CFG = net(
    conv(6),
    "[maxpool] size=2 stride=2",
    conv(14, 1, "linear", 0),
    head(),
    "[route] layers=0",
    conv(14, 1, "linear", 0),
    head(),
    size=(16, 24),
)
COUNT = 6 * 4 + 6 * 3 * 9 + 2 * (14 + 14 * 6)
NAMES = ("dog", "traffic light")
SIZES = ((40, 30), (20, 60))
"""(width, height) of the pictures."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an artifact that finds something, and pictures."""
    folder = tmp_path_factory.mktemp("detection")
    (folder / "two.names").write_text("\n".join(NAMES))
    (folder / "in").mkdir()
    for index, (width, height) in enumerate(SIZES):
        pixels = np.random.default_rng(index).integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "in" / f"{index + 1}.png")
    cfg, weights = write_cfg(folder, CFG), write_weights(folder, COUNT, 0.2)
    words = ["import", str(cfg), "--weights", str(weights), "--classes", str(folder / "two.names")]
    assert main([*words, "-o", str(folder / "net.bp")]) == 0
    assert main(["compile", str(folder / "net.bp"), "-t", "tiny16", "-o", str(folder / "net.bpz")]) == 0
    return folder


def run(place: Path, *words: str) -> list[str]:
    return ["run", str(place / "net.bpz"), "--backend", "oracle", *words]


def run_json(capsys: pytest.CaptureFixture[str], place: Path, *words: str) -> dict:
    capsys.readouterr()
    assert main([*run(place, *words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def run_fails(capsys: pytest.CaptureFixture[str], place: Path, *words: str) -> str:
    capsys.readouterr()
    assert main(run(place, *words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()[0]


def test_the_detector_goes_from_the_cfg_into_the_artifact(place: Path) -> None:
    network = parse_network(place / "net.bp")
    artifact = read_artifact(place / "net.bpz")
    assert network.detector is not None
    assert artifact.detector is not None
    assert artifact.detector.classes == NAMES
    assert [each.output for each in artifact.detector.heads] == list(artifact.program.outputs)
    assert [each.anchors for each in artifact.detector.heads] == [each.anchors for each in network.detector.heads]


def test_json_has_boxes_in_pixels_of_each_picture(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    result = run_json(capsys, place, "--data", str(place / "in"), "--score", "0.1", "--float")
    assert result["samples"] == 2
    assert [each["picture"] for each in result["pictures"]] == ["1.png", "2.png"]
    for picture, (width, height) in zip(result["pictures"], SIZES, strict=True):
        assert (picture["width"], picture["height"]) == (width, height)
        assert picture["detections"]
        assert picture["float_detections"]
        for found in picture["detections"]:
            assert found.keys() == {"class", "score", "box"}
            x0, y0, x1, y1 = found["box"]
            assert 0 <= x0 <= x1 <= width
            assert 0 <= y0 <= y1 <= height
            assert found["class"] in NAMES
            assert 0.1 < found["score"] < 1
        scores = [found["score"] for found in picture["detections"]]
        assert scores == sorted(scores, reverse=True)
    agreed = result["agreement"]
    assert agreed["detections"] == sum(len(each["detections"]) for each in result["pictures"])
    assert 0 < agreed["matched"] <= agreed["detections"]


def test_thresholds(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    def count(*words: str) -> int:
        result = run_json(capsys, place, "--input", str(place / "in" / "1.png"), *words)
        assert "agreement" not in result
        return len(result["pictures"][0]["detections"])

    assert count("--score", "0.99999") == 0
    assert count("--score", "0.1", "--iou", "0.1") < count("--score", "0.1", "--iou", "0.9")


def test_text_and_drawn_pictures(capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path) -> None:
    pictures = [str(place / "in" / f"{index}.png") for index in (1, 2)]
    drawn = tmp_path / "drawn"
    assert main(run(place, "--input", *pictures, "--score", "0.1", "--draw", str(drawn), "--float")) == 0
    out = capsys.readouterr().out
    for text in ("detections in float", "traffic light", "agreement with float", f"drawn: {drawn}", "images/s"):
        assert text in out
    assert sorted(path.name for path in drawn.iterdir()) == ["1.png", "2.png"]
    with Image.open(drawn / "2.png") as image, Image.open(pictures[1]) as original:
        assert image.size == original.size
        assert not np.array_equal(np.asarray(image), np.asarray(original))
    assert main(run(place, "--input", pictures[0], "--draw", str(tmp_path / "one.png"))) == 0
    assert (tmp_path / "one.png").is_file()


def test_a_stream_of_frames(capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path) -> None:
    words = ["--frames", str(place / "in"), "--draw", str(tmp_path / "out"), "--score", "0.1"]
    result = run_json(capsys, place, *words)
    assert result["batch"] == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "1.png",
        "2.png",
        "detections.csv",
        "frames.csv",
        "layers.csv",
    ]
    with (tmp_path / "out" / "frames.csv").open(newline="") as stream:
        frames = list(csv.DictReader(stream))
    assert [int(row["detections"]) for row in frames] == [len(each["detections"]) for each in result["pictures"]]
    with (tmp_path / "out" / "layers.csv").open(newline="") as stream:
        layers = list(csv.DictReader(stream))
    assert len(layers) == 2 * len(result["layers"])
    assert "occupied-folder" in run_fails(capsys, place, *words)
    assert run_json(capsys, place, *words, "--replace", "--limit", "1")["samples"] == 1
    assert not (tmp_path / "out" / "2.png").exists()


def table(path: Path, *left_out: str) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return [{name: row[name] for name in row if name not in left_out} for row in csv.DictReader(stream)]


def test_a_stream_knows_nothing_of_an_earlier_one(place: Path, tmp_path: Path) -> None:
    """Also where exponents come from the frame before."""
    words = ["--frames", str(place / "in"), "--score", "0.1", "--exponents", "frame"]
    assert main(run(place, *words, "--draw", str(tmp_path / "a"))) == 0
    assert main(run(place, "--frames", str(place / "in"), "--limit", "1", "--draw", str(tmp_path / "b"))) == 0
    assert main(run(place, *words, "--draw", str(tmp_path / "b"), "--replace")) == 0
    for name in ("detections.csv", "layers.csv", "1.png", "2.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert len({str(table(tmp_path / name / "frames.csv", "milliseconds")) for name in "ab"}) == 1


@pytest.fixture
def stream(place: Path, tmp_path: Path) -> Path:
    """Three frames of which the second is whole up to its header."""
    frames = tmp_path / "frames"
    frames.mkdir()
    for number in (1, 3):
        (frames / f"{number}.png").write_bytes((place / "in" / "1.png").read_bytes())
    whole = (place / "in" / "2.png").read_bytes()
    (frames / "2.png").write_bytes(whole[: len(whole) // 2])
    return frames


def test_a_damaged_frame_ends_a_stream_after_those_before_it(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path, stream: Path
) -> None:
    out = tmp_path / "out"
    capsys.readouterr()
    assert main(run(place, "--frames", str(stream), "--draw", str(out), "--score", "0.1")) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error[not-an-image]: the image cannot be read, after 1 of 3 frames\n")
    assert str(stream / "2.png") in captured.err
    assert sorted(path.name for path in out.iterdir()) == ["1.png", "detections.csv", "frames.csv", "layers.csv"]
    (frame,) = table(out / "frames.csv")
    assert (frame["file"], int(frame["detections"])) == ("1.png", len(table(out / "detections.csv")))
    assert {row["frame"] for row in table(out / "layers.csv")} == {"1"}
    with Image.open(out / "1.png") as drawn:
        assert np.asarray(drawn).shape == (30, 40, 3)
    # What a stopped stream left can be replaced like that of any other.
    (stream / "2.png").write_bytes((place / "in" / "2.png").read_bytes())
    assert main(run(place, "--frames", str(stream), "--draw", str(out), "--replace")) == 0
    assert len(table(out / "frames.csv")) == 3


def test_frames_that_are_no_pictures_are_found_before_anything_runs(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path, stream: Path
) -> None:
    (stream / "4.png").write_text("no picture")
    (stream / "5.png").write_bytes(b"")
    capsys.readouterr()
    assert main(run(place, "--frames", str(stream), "--draw", str(tmp_path / "out"))) == 2
    err = capsys.readouterr().err
    assert err.count("error[not-an-image]: the image cannot be read\n") == 2
    assert [str(stream / name) in err for name in ("2.png", "4.png", "5.png")] == [False, True, True]
    assert not (tmp_path / "out").exists()
    words = ["--frames", str(stream), "--draw", str(tmp_path / "out"), "--limit", "1"]
    assert main(run(place, *words)) == 0


def test_pictures_are_turned_upright(capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(place / "in" / "1.png") as picture:
        picture.save(tmp_path / "lying.png", exif=exif.tobytes())
        picture.transpose(Image.Transpose.ROTATE_270).save(tmp_path / "upright.png")
    found = []
    for name in ("lying", "upright"):
        words = ["--input", str(tmp_path / f"{name}.png"), "--score", "0.1", "--draw", str(tmp_path / f"{name}2.png")]
        (picture,) = run_json(capsys, place, *words)["pictures"]
        found.append({key: value for key, value in picture.items() if key != "picture"})
    assert found[0] == found[1]
    assert (found[0]["width"], found[0]["height"]) == SIZES[0][::-1]
    assert found[0]["detections"]
    assert (tmp_path / "lying2.png").read_bytes() == (tmp_path / "upright2.png").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_stream_shows_its_progress_on_a_terminal(place: Path, tmp_path: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    words = run(place, "--frames", str(place / "in"), "--draw", str(tmp_path / "out"), "--json")
    code = "import sys; from binpoint.cli.main import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        out = process.stdout.read()
        assert process.wait() == 0
    shown = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "detection" in shown
    assert "0/2" in shown
    assert "2/2" in shown
    assert len(json.loads(out)["pictures"]) == 2


def test_outputs_can_be_written(place: Path, tmp_path: Path) -> None:
    output = tmp_path / "heads.npz"
    assert main(run(place, "--data", str(place / "in"), "--output", str(output), "--batch", "1")) == 0
    with np.load(output) as heads:
        assert {name: array.shape for name, array in heads.items()} == {
            "conv2": (2, 14, 8, 12),
            "conv5": (2, 14, 16, 24),
        }


def test_arrays_run_as_for_any_network(capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 16, 24), np.float32))
    assert "pictures" not in run_json(capsys, place, "--input", str(tmp_path / "x.npy"))
    assert "useless-option" in run_fails(capsys, place, "--input", str(tmp_path / "x.npy"), "--draw", "x.png")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--frames", "{}/in"], "missing-option"),
        (["--frames", "{}/in", "--draw", "{}/in"], "same-file"),
        (["--frames", "{}/in", "--draw", "{}/two.names"], "unwritable-file"),
        (["--frames", "{}/in", "--draw", "{}/out", "--batch", "2"], "useless-option"),
        (["--frames", "{}/none", "--draw", "{}/out"], "unreadable-file"),
        (["--data", "{}/in", "--draw", "{}/one.png"], "several-pictures"),
        (["--data", "{}/in", "--draw", "{}/in"], "same-file"),
        (["--data", "{}/in", "--replace"], "useless-option"),
        (["--data", "{}/in", "--resize"], "useless-option"),
        (["--data", "{}/in", "--score", "1"], "out-of-range"),
        (["--data", "{}/in", "--iou", "much"], "wrong-number"),
        (["--input", "{}/none.png"], "unreadable-file"),
        (["--data", "{}/in", "--float", "--no-float"], "contradicting-options"),
        (["--data", "{}/in", "--draw", "{}/out.jpg"], "wrong-suffix"),
        (["--frames", "{}/in", "--draw", "{}/out.png"], "wrong-suffix"),
    ],
)
def test_options_that_cannot_be(capsys: pytest.CaptureFixture[str], place: Path, words: list[str], code: str) -> None:
    assert code in run_fails(capsys, place, *(word.format(place) for word in words))
    assert not (place / "out").exists()


def test_options_of_detection_without_a_detector(
    capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    text = (place / "net.bp").read_text()
    (place / "plain.bp").write_text(text[: text.index("detection {")])
    artifact = str(tmp_path / "plain.bpz")
    assert main(["compile", str(place / "plain.bp"), "-t", "tiny16", "-o", artifact]) == 0
    capsys.readouterr()
    assert main(["run", artifact, "--backend", "oracle", "--data", str(place / "in"), "--float"]) == 2
    assert "useless-option" in capsys.readouterr().err


def test_import_says_what_darknet_alone_has(capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "net.bp")
    assert main(["import", str(place / "tiny.cfg"), "--size", "32x48", "-o", output, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["weights"], result["inputs"]) == (None, [{"name": "image", "shape": "3x32x48"}])
    assert [path.name for path in tmp_path.iterdir()] == ["net.bp"]
    model = Path(__file__).parents[2] / "examples/models/mnist-conv.onnx"
    for words, code in (
        ([str(model), "--weights", "x.weights"], "useless-option"),
        ([str(place / "tiny.cfg"), "--size", "0x3"], "wrong-size"),
        ([str(place / "tiny.cfg"), "--size", "3x3x3"], "wrong-size"),
        ([str(place / "tiny.cfg"), "--weights", output, "--save-weights", output], "same-file"),
        ([str(place / "tiny.cfg"), "--classes", output, "--save-weights", output], "same-file"),
        ([str(place / "none.cfg")], "unreadable-file"),
    ):
        assert main(["import", *words, "-o", str(tmp_path / "other.bp")]) == 2
        assert code in capsys.readouterr().err
    assert not (tmp_path / "other.bp").exists()

"""`binpoint schedule`: what it prints, writes, draws, and what it refuses."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from binpoint.cli.main import main
from binpoint.support.target import RotationCount
from binpoint.support.target_file import load_target, print_target

NETWORK = """\
network small {
  input image: 1x8x8
  conv1 = conv2d(image, channels=6, kernel=3, padding=1)
  act1 = relu(conv1)
  pool1 = max_pool(act1, kernel=2)
  fc1 = linear(flatten(pool1), features=10)
  output fc1
}
"""


@pytest.fixture
def network(tmp_path: Path) -> str:
    path = tmp_path / "small.bp"
    path.write_text(NETWORK)
    return str(path)


def schedule(network: str, *options: str, target: str = "tiny16", status: int = 0) -> None:
    assert main(["schedule", network, "-t", target, *options]) == status


def exported(network: str, path: Path, *options: str) -> dict[str, Any]:
    schedule(network, "--json", str(path), *options)
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@pytest.fixture
def continuous(tmp_path: Path) -> str:
    """The path of tiny16 with a rotation that goes on across mini-batches."""
    target = load_target("tiny16")
    allocation = replace(target.allocation, rotation=RotationCount.CONTINUOUS)
    path = tmp_path / "continuous.toml"
    path.write_text(print_target(replace(target, allocation=allocation)))
    return str(path)


def test_a_rotation_that_goes_on_samples_something_else(
    network: str, continuous: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pes = []
    for number in ("0", "3"):
        path = str(tmp_path / "s.json")
        schedule(network, "--batch", "4", "--mini-batch", number, "--json", path, target=continuous)
        pes.append(json.loads(Path(path).read_text())["layers"][0]["pe"])
    assert pes[1] == [[(pe + 3) % 16 for pe in row] for row in pes[0]]
    captured = capsys.readouterr()
    assert "in 4 mini-batches in a row each pair is sampled at least once" in captured.out
    assert "never sampled" not in captured.err


def test_a_mini_batch_has_a_number(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", network, "-t", "tiny16", "--mini-batch", "-1"]) == 2
    assert "expected: a whole number, at least 0" in capsys.readouterr().err


def test_the_table_has_a_row_a_kernel(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    schedule(network, "--batch", "4")
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.split()}
    assert lines[0] == "small on tiny16, 4 images a mini-batch"
    assert rows["conv1"][1:] == ["4", "x", "6", "2", "75.0%", "6", "2/4", "6/6", "1152", "1858"]
    assert rows["pool1"][1:] == ["4", "x", "6", "2", "75.0%", "-", "-", "-", "128", "1920"]
    assert rows["fc1"][1:7] == ["4", "x", "10", "3", "83.3%", "10"]
    assert "act1" not in rows


def test_what_is_never_sampled_is_a_warning(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    schedule(network, "--batch", "4", "--layer", "conv1")
    assert capsys.readouterr().err == "warning: conv1: never sampled: images 1 and 3 (2 of 4)\n"
    schedule(network, "--batch", "4", target="full2048")
    assert capsys.readouterr().err == ""


def test_json_goes_to_standard_output(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    schedule(network, "--batch", "4", "--json")
    document = json.loads(capsys.readouterr().out)
    assert [layer["layer"] for layer in document["layers"]] == ["conv1", "pool1", "fc1"]
    summary = document["layers"][0]["summary"]
    assert (summary["rounds"], summary["utilisation"], summary["unsampled_images"]) == (2, 0.75, [1, 3])
    assert document["layers"][0]["pe"][0] == [0, 1, 4, 5, 8, 9]


def test_an_edited_schedule_is_obeyed(network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "edited.json"
    document = exported(network, path, "--batch", "2")
    document["layers"][0]["round"] = [[0] * 6, [1] * 6]
    path.write_text(json.dumps(document))
    capsys.readouterr()
    schedule(network, "--use", str(path), "--json")
    again = json.loads(capsys.readouterr().out)
    assert again["batch"] == 2
    assert again["layers"][0]["round"] == [[0] * 6, [1] * 6]
    assert again["layers"][0]["summary"]["rounds"] == 2
    assert again["layers"][1:] == document["layers"][1:]


def test_a_layer_may_be_edited_alone(network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "edited.json"
    document = exported(network, path, "--batch", "2", "--layer", "fc1")
    assert [layer["layer"] for layer in document["layers"]] == ["fc1"]
    schedule(network, "--use", str(path))
    assert "conv1" in capsys.readouterr().out


def test_a_wrong_schedule_exits_with_2(network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "edited.json"
    document = exported(network, path, "--batch", "2")
    document["layers"][0]["pe"][1][5] = 2100
    path.write_text(json.dumps(document))
    schedule(network, "--use", str(path), status=2)
    error = capsys.readouterr().err
    assert "conv1: image 1, channel 5: there is no PE 2100" in error
    assert f"{path}:1:" in error
    schedule(network, "--use", str(path), "--batch", "3", status=2)
    assert "the schedule is for another batch" in capsys.readouterr().err
    path.write_text("{")
    schedule(network, "--use", str(path), status=2)
    assert f"{path}:1:2" in capsys.readouterr().err


def test_csv_has_a_line_a_pair(network: str, tmp_path: Path) -> None:
    path = tmp_path / "schedule.csv"
    schedule(network, "--batch", "3", "--csv", str(path))
    rows = list(csv.DictReader(path.open()))
    assert len(rows) == 3 * (6 + 6 + 10)
    assert {row["sampled"] for row in rows if row["layer"] == "pool1"} == {"0"}
    assert rows[0] == {"layer": "conv1", "image": "0", "channel": "0", "pe": "0", "round": "0", "sampled": "1"}


def test_the_figure_says_where_no_statistics_are_taken(network: str, tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    schedule(network, "--batch", "2", "--layer", "conv1", "--layer", "pool1", "--picture", str(path))
    text = path.read_text()
    assert "pool1: no statistics" in text
    assert "conv1: no statistics" not in text


def test_settings_change_the_array(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--batch", "4", "--layer", "conv1", "--json")
    schedule(network, *options, "--set", "target.array.pes=8", "--set", "target.statistics.every=8")
    summary = json.loads(capsys.readouterr().out)["layers"][0]["summary"]
    assert (summary["rounds"], summary["sampled_pairs"]) == (3, 3)
    # Mantissas of 16 bits: twice the bytes of the input and of the output.
    schedule(network, *options)
    narrow = json.loads(capsys.readouterr().out)["layers"][0]["summary"]["dram_bytes"]
    schedule(network, *options, "--set", "numeric.activations=16")
    wide = json.loads(capsys.readouterr().out)["layers"][0]["summary"]["dram_bytes"]
    assert wide - narrow == 4 * (64 + 6 * 64)


def test_faulty_settings_are_located(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    schedule(network, "--set", "target.array.pse=8", "--set", "numeric.rounding=flor", status=2)
    error = capsys.readouterr().err
    assert "--> --set target.array.pse=8" in error
    assert "--> --set numeric.rounding=flor" in error


def test_a_fused_layer_names_its_kernel(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    schedule(network, "--layer", "act1")
    out = capsys.readouterr().out
    assert "conv1" in out
    assert "fc1" not in out


def test_the_picture_follows_the_table(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    schedule(network, "--batch", "4", "--layer", "conv1", "--picture", "--round", "1")
    out = capsys.readouterr().out
    assert "PE 0  [2:3] 2:4  3:3  3:4 " in out
    assert "round 1 of 0 to 1" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")])
def test_the_picture_goes_to_a_file(network: str, tmp_path: Path, name: str, start: bytes) -> None:
    schedule(network, "--batch", "2", "--layer", "conv1", "--picture", str(tmp_path / name))
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--picture", "a.gif"], "error[unknown-picture-format]"),
        (["--json", "--csv", "-"], "error[two-outputs]"),
        (["--json", "out", "--csv", "out"], "only one of them can go to out"),
        (["--layer", "conv"], 'did you mean "conv1"?'),
        (["--round", "40", "--picture"], "error[no-such-round]"),
        (["--use", "none.json"], "cannot read the schedule"),
        (["--json", "none/a.json"], "cannot write the file"),
        (["--batch", "99999999999"], "error[too-many-pairs]"),
    ],
)
def test_what_is_refused(
    network: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    schedule(network, *options, status=2)
    captured = capsys.readouterr()
    assert message in captured.err
    assert list(tmp_path.iterdir()) == [Path(network)]


def test_faults_of_target_and_network_are_user_errors(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    schedule(network, target="tiny17", status=2)
    assert 'did you mean "tiny16"?' in capsys.readouterr().err
    schedule("none.bp", status=2)
    assert "cannot read the network file" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "-1", "x"])
def test_a_batch_is_a_positive_number(network: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    schedule(network, "--batch", value, status=2)
    assert "wrong value of --batch" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--csv", "--picture"])
def test_an_input_is_never_written_over(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.png"
    path.write_text(NETWORK)
    schedule(str(path), option, str(path), status=2)
    assert "error[same-file]" in capsys.readouterr().err
    assert path.read_text() == NETWORK


def test_a_network_without_work_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "flat.bp"
    path.write_text("network flat { input x: 1x3x3  y = flatten(x) }")
    schedule(str(path), status=2)
    assert "error[nothing-to-schedule]" in capsys.readouterr().err


def test_training_schedules_gradients_and_updates(
    network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = exported(network, tmp_path / "all.json", "--training", "--batch", "4")
    capsys.readouterr()
    layers = {layer["layer"]: layer for layer in document["layers"]}
    assert list(layers)[-5:] == ["conv1.weight.grad", *(f"{name}.update" for name in PARAMETERS)]
    # Rows are images, or output channels.
    assert (len(layers["conv1.grad"]["pe"]), layers["conv1.grad"]["channels"]) == (4, 6)
    assert (len(layers["fc1.weight.grad"]["pe"]), layers["fc1.weight.grad"]["channels"]) == (10, 96)
    assert (len(layers["conv1.bias.update"]["pe"]), layers["conv1.bias.update"]["channels"]) == (6, 1)


PARAMETERS = ("conv1.weight", "conv1.bias", "fc1.weight", "fc1.bias")


def test_an_edited_schedule_of_training_is_obeyed(
    network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "all.json"
    document = exported(network, path, "--training", "--batch", "4")
    document["layers"] = [layer for layer in document["layers"] if layer["layer"] == "conv1.weight.grad"]
    document["layers"][0]["pe"][0][0] = 15
    path.write_text(json.dumps(document))
    again = exported(network, tmp_path / "again.json", "--training", "--use", str(path))
    capsys.readouterr()
    layers = {layer["layer"]: layer for layer in again["layers"]}
    assert again["batch"] == 4
    assert layers["conv1.weight.grad"]["pe"][0][0] == 15
    # Longer sums of more images: the workloads are those of the edited schedule's batch.
    assert layers["conv1.weight.grad"]["summary"]["operations"] == 6 * 9 * 4 * 64


def test_a_layer_in_training_is_all_that_follows_from_it(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    schedule(network, "--training", "--layer", "fc1")
    printed = capsys.readouterr()
    rows = [line.split()[0] for line in printed.out.splitlines() if line.startswith(" fc1") or " x " in line]
    assert rows == [
        "fc1",
        "fc1.bias.grad",
        "fc1.weight.grad",
        "fc1.flatten.grad",
        "fc1.weight.update",
        "fc1.bias.update",
    ]
    assert "rows" in printed.out
    assert "output channel" in printed.err

"""`binpoint explain`: one sentence a question."""

import json
from pathlib import Path

import pytest

from binpoint.cli.main import main

NETWORK = """\
network small {
  input image: 1x8x8
  conv1 = conv2d(image, channels=6, kernel=3, padding=1)
  act1 = relu(conv1)
  pool1 = max_pool(act1, kernel=2)
  output pool1
}
"""


@pytest.fixture
def network(tmp_path: Path) -> str:
    path = tmp_path / "small.bp"
    path.write_text(NETWORK)
    return str(path)


def explain(network: str, *options: str, status: int = 0) -> None:
    assert main(["explain", network, "-t", "tiny16", "--batch", "4", *options]) == status


def test_settings_change_the_array(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    explain(network, "--layer", "conv1", "--pe", "7", "--set", "target.array.pes=8")
    assert "In conv1, PE 7 of tiny16 computes " in capsys.readouterr().out
    explain(network, "--layer", "conv1", "--pe", "8", "--set", "target.array.pes=8", status=2)
    assert "0 to 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (
            ["--layer", "conv1", "--pe", "0"],
            "In conv1, PE 0 of tiny16 computes image 0, channel 0 in round 0 and image 2, channel 3 in round 1, "
            "sampled because PE 0 has a statistics circuit.",
        ),
        (
            ["--layer", "act1", "--image", "3", "--channel", "5"],
            "In conv1, image 3, channel 5 is computed by PE 6 of tiny16 in round 1 (of rounds 0 to 1) and is not "
            "sampled, because PE 6 has no statistics circuit (only multiples of 4 have one).",
        ),
        (
            ["--layer", "pool1", "--image", "0", "--channel", "0"],
            "In pool1, image 0, channel 0 is computed by PE 0 of tiny16 in round 0 (of rounds 0 to 1) and is not "
            "sampled, because pool1 only moves mantissas and has no statistics.",
        ),
        (
            ["--layer", "conv1", "--idle"],
            "In conv1, PEs 8 to 15 in round 1 are idle on tiny16, because the layer's 24 pairs "
            "(4 images x 6 channels) leave 8 of 2 x 16 PE-rounds empty.",
        ),
    ],
)
def test_an_answer_is_one_sentence(
    network: str, question: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explain(network, *question)
    assert capsys.readouterr().out == f"{answer}\n"


def test_an_answer_as_json(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    explain(network, "--layer", "conv1", "--image", "2", "--channel", "1", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["answer"].startswith("In conv1, image 2, channel 1 is computed by PE 12")
    assert (facts["layer"], facts["pe"], facts["round"], facts["sampled"]) == ("conv1", 12, 0, True)


def test_an_edited_schedule_is_explained(network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "edited.json"
    assert main(["schedule", network, "-t", "tiny16", "--batch", "4", "--layer", "conv1", "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    document["layers"][0]["round"][1] = [2] * 6
    path.write_text(json.dumps(document))
    capsys.readouterr()
    explain(network, "--use", str(path), "--layer", "conv1", "--image", "1", "--channel", "0")
    assert "in round 2 (of rounds 0 to 2)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ([], "error[one-question]"),
        (["--image", "3"], "error[one-question]"),
        (["--pe", "3", "--idle"], "error[one-question]"),
        (["--pe", "16"], "tiny16 has no PE 16"),
        (["--pe", "-1"], "expected: 0 to 15"),
        (["--image", "4", "--channel", "0"], "a mini-batch has no image 4"),
        (["--image", "0", "--channel", "6"], "conv1 has no channel 6"),
    ],
)
def test_what_is_refused(network: str, question: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    explain(network, "--layer", "conv1", *question, status=2)
    assert message in capsys.readouterr().err


def test_an_unknown_layer_gets_a_hint(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    explain(network, "--layer", "conv", "--idle", status=2)
    assert 'did you mean "conv1"?' in capsys.readouterr().err

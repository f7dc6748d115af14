"""`binpoint targets`: the shipped ones, one of them, and checks of files."""

import json
from pathlib import Path

import pytest

from binpoint.cli.main import main
from binpoint.support.target_file import shipped_targets

GOOD = """\
name = "mine"
[array]
pes = 16
[statistics]
every = 8
[allocation]
strategy = "mechanical"
x = 2
y = 2
"""


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in shipped_targets())
    assert "1 PE of 16" in out


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "list", "--json"]) == 0
    targets = {target["name"]: target for target in json.loads(capsys.readouterr().out)}
    assert sorted(targets) == shipped_targets()
    assert targets["dlu2048"]["statistics"] == {"every": 16, "acquires": ["msb", "lsb"]}


def test_show_prints_the_commented_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "dlu2048"]) == 0
    file = Path(__file__).parents[2] / "examples" / "targets" / "dlu2048.toml"
    assert capsys.readouterr().out == file.read_text()


def test_show_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "tiny16", "--json"]) == 0
    target = json.loads(capsys.readouterr().out)
    assert target["array"] == {"pes": 16, "grid": [4, 4], "tile": [1, 1]}


def test_check_accepts_and_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert main(["targets", "check", str(path), "tiny16"]) == 0
    out = capsys.readouterr().out
    assert f"{path}: good: mine, 16 PEs (4 x 4), statistics in 1 PE of 8, mechanical" in out
    assert "note: x * y = 4, but statistics PEs are given every 8" in out
    assert "tiny16: good: tiny16" in out
    assert main(["targets", "check", str(path), "--json"]) == 0
    (target,) = json.loads(capsys.readouterr().out)
    assert (target["file"], target["name"], len(target["notes"])) == (str(path), "mine", 1)


def test_check_reports_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, worse = tmp_path / "bad.toml", tmp_path / "worse.toml"
    bad.write_text(GOOD.replace("pes = 16", "pes = 16\ngrid = [3, 5]"))
    worse.write_text("name = ")
    assert main(["targets", "check", str(bad), str(worse), "tiny16"]) == 2
    captured = capsys.readouterr()
    assert f"{bad}:4:8" in captured.err
    assert f"{worse}:1" in captured.err
    assert "tiny16: good" in captured.out


def test_an_unknown_target_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "dlu"]) == 2
    assert "dlu2048" in capsys.readouterr().err


def test_hardware_of_both_embodiments_side_by_side(capsys) -> None:
    assert main(["targets", "hardware", "block16", "block16-neighbour", "--map", "32x56x56", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    first, second = facts["targets"]
    assert facts["map"] == [32, 56, 56]
    assert (first["method"], first["delay_buffer_bits"], first["analysis_storage_bits_array"]) == ("analyse", 1280, 0)
    assert (second["method"], second["delay_buffer_bits"]) == ("predict", 0)
    assert second["analysis_storage_bits_array"] == 15 * 8 * 10
    assert second["latency_cycles_block"] < first["latency_cycles_block"]
    assert main(["targets", "hardware", "block16"]) == 0
    assert "delay buffer bits (whole array)" in capsys.readouterr().out


def test_hardware_of_targets_without_blocks_is_refused(capsys) -> None:
    assert main(["targets", "hardware", "dlu2048"]) == 2
    assert "error[no-blocks]" in capsys.readouterr().err
    for shape in ("3x4", "3x4x0", "axbxc"):
        assert main(["targets", "hardware", "block16", "--map", shape]) == 2
        assert "expected: channels, height and width, such as 16x448x448" in capsys.readouterr().err


@pytest.mark.parametrize("bits", ["1", "33"])
def test_hardware_of_results_that_registers_do_not_hold_is_refused(capsys, bits) -> None:
    assert main(["targets", "hardware", "block16", "--bits", bits]) == 2
    assert capsys.readouterr().err.startswith("error[wide-operand]")


def test_hardware_of_changed_targets(capsys) -> None:
    changed = ["--set", "target.blocks.sharing=channel", "--set", "target.blocks.size=[2, 2]"]
    assert main(["targets", "hardware", "block16", "--map", "32x56x56", "--json", *changed]) == 0
    (block16,) = json.loads(capsys.readouterr().out)["targets"]
    assert (block16["filter_units"], block16["delay_buffer_bits"]) == (4, 4 * 40)
    assert main(["targets", "hardware", "block16", "--set", "numeric.activations=8"]) == 2
    assert "there is no network to change" in capsys.readouterr().err

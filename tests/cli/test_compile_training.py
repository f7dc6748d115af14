"""binpoint compile --training: what it writes, what it says, what it refuses."""

import json

import pytest

from binpoint.cli.main import main
from binpoint.dialect.text import parse_module, print_module

TEXT = """network small {
  input image: 1x6x6 { scale = 1/255 }
  conv = conv2d(image, channels=3, kernel=3, bias=false)
  norm = batch_norm(conv)
  fc = linear(flatten(relu(norm)), features=4)
}
"""


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "small.bp"
    path.write_text(TEXT)
    return path


def compile_(capsys, *words):
    status = main(["compile", *map(str, words)])
    return status, capsys.readouterr()


def test_the_program_and_a_summary(capsys, network, tmp_path):
    output = tmp_path / "small.mlir"
    status, captured = compile_(
        capsys, network, "-t", "tiny16", "--training", "-o", output, "--batch", 3, "--momentum", "0.9"
    )
    assert status == 0
    text = output.read_text()
    assert print_module(parse_module(text, "small.mlir")) == text
    assert 'batch = 3, target = "tiny16" {' in text
    assert "momentum = 58982 * 2^-16 :" in text
    lines = captured.out.splitlines()
    assert lines[0] == "small for training on tiny16: 3 kernels forward, 6 backward, 3 images a mini-batch"
    assert lines[1] == "229 parameters are trained; 3 steps on the host in float64"
    assert lines[2].startswith("no accumulator can overflow: ")
    assert lines[-1] == f"wrote {output}"


def test_the_ir_can_be_checked_by_opt(capsys, network, tmp_path):
    output = tmp_path / "small.mlir"
    compile_(capsys, network, "-t", "tiny16", "--training", "-o", output)
    assert main(["opt", str(output)]) == 0
    assert capsys.readouterr().out == output.read_text()


def test_a_dump_and_json(capsys, network, tmp_path):
    words = ("--training", "--dump-dir", tmp_path / "dump", "--json", "--weight-decay", "1/2000", "--loss-scale", 5)
    status, captured = compile_(capsys, network, "-t", "tiny16", *words)
    assert status == 0
    report = json.loads(captured.out)
    assert (report["network"], report["batch"], report["logits"], report["ir"]) == ("small", 64, "fc", None)
    assert report["kernels_per_phase"] == {"forward": 3, "backward": 6}
    assert report["host_steps"] == ["BatchNormForwardStep", "LossStep", "BatchNormBackwardStep"]
    (gradient,) = [kernel for kernel in report["kernels"] if kernel["name"] == "conv.weight.grad"]
    assert gradient == {
        "name": "conv.weight.grad",
        "phase": "backward",
        "layers": ["conv"],
        "needed_bits": 26,
        "accumulator_bits": 40,
        "overflow": "impossible",
        "by_construction": False,
    }
    last = (tmp_path / "dump" / "10-insert-statistics.mlir").read_text()
    assert "scale_exponent = 5" in last
    assert "decay = 33554 * 2^-26" in last
    steps = [entry["step"] for entry in json.loads((tmp_path / "dump" / "times.json").read_text())]
    assert steps[:2] == ["read-network", "build-nn"]
    assert steps[-1] == "read-steps"


def test_ir_after_every_pass(capsys, network):
    status, captured = compile_(capsys, network, "-t", "tiny16", "--training", "--print-ir-after-all")
    assert status == 0
    assert "// --- after differentiate ---" in captured.err


def test_settings(capsys, network, tmp_path):
    output = tmp_path / "small.mlir"
    words = ("--training", "-o", output, "--set", "numeric.gradients=12", "--set", "numeric.master_weights=24")
    assert compile_(capsys, network, "-t", "tiny16", *words)[0] == 0
    text = output.read_text()
    policy = "<msb-max, window = 16, range = [-128, 127]>"
    assert f'"conv.weight.master" exponent = {policy} : !fx.tensor<3x1x3x3, 24b' in text
    assert "!fx.tensor<?x4x1x1, 12b, exp = tensor>" in text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--training"], "nothing-to-write"),
        (["--training", "-o", "x.mlir", "--emit", "c", "kernels"], "not-for-training"),
        (["--training", "-o", "x.mlir", "--weights", "w.safetensors"], "not-for-training"),
        (["--momentum", "0.9", "-o", "x.bpz"], "needs-training"),
        (["--loss-scale", "3", "-o", "x.bpz"], "needs-training"),
        (["--training", "-o", "x.mlir", "--set", "numeric.gradients=17"], "out-of-range"),
    ],
)
def test_what_is_refused(capsys, network, tmp_path, monkeypatch, words, code):
    monkeypatch.chdir(tmp_path)
    status, captured = compile_(capsys, network, "-t", "tiny16", *words)
    assert status == 2
    assert f"error[{code}]" in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["small.bp"]


@pytest.mark.parametrize("words", [["--momentum", "1"], ["--momentum", "-0.1"], ["--weight-decay", "1/0"]])
def test_numbers_out_of_range(capsys, network, words):
    assert main(["compile", str(network), "-t", "tiny16", "--training", "-o", "x.mlir", *words]) == 2
    assert f"error[wrong-value]: wrong value of {words[0]}" in capsys.readouterr().err

"""`binpoint check`."""

import json
from pathlib import Path

import pytest

from binpoint.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples" / "networks"
WIDE = 'network "wide net" { input x: 4 input y: 4 a = relu(x) b = relu(a) c = relu(a) output b }\n'


@pytest.fixture
def wide(tmp_path):
    path = tmp_path / "wide.bp"
    path.write_text(WIDE + "numeric { accumulators = 64 bits }\n", encoding="utf-8")
    return str(path)


def test_a_summary(capsys):
    assert main(["check", str(EXAMPLES / "lenet.bp")]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "lenet: 10 layers, 51,902 parameters, 406,800 multiply-accumulates (MACs) an image"
    assert "layer kind output parameters MACs/image" in lines
    assert "image input 1x28x28" in lines
    assert "conv1 conv2d 6x28x28 156 117,600" in lines
    assert "fc2 linear 10 1,210 1,200" in lines
    assert "outputs: fc2" in lines
    assert lines[-2].startswith("numeric: activations 8 bits, weights 8 bits, biases 16 bits, gradients 8 bits")
    assert lines[-2].endswith(
        "accumulators as the target, exponent as the target, rounding half-even, "
        "update msb-histogram(r_max = 2e-5, window = 16)"
    )
    assert lines[-1] == "good: -t TARGET checks it against an array, too"
    assert not any(line.startswith("batch norm") for line in lines)


def test_parameters_that_compiling_folds_away(capsys):
    assert main(["check", str(EXAMPLES / "yolov3-tiny.bp")]) == 0
    lines = capsys.readouterr().out.splitlines()
    # Four each of 16 + 32 + ... + 1024, 256 + 512 and 128 + 256 channels.
    (line,) = (line for line in lines if line.startswith("batch norm"))
    assert line == "batch norm: 12,736 of the parameters, which `compile` folds into those of other layers"


def test_settings_hold_for_network_and_target(wide, capsys):
    assert main(["check", wide, "--set", "numeric.accumulators=48"]) == 0
    assert "accumulators 48 bits" in capsys.readouterr().out
    assert main(["check", wide, "-t", "dlu2048", "--set", "target.arithmetic.accumulator_bits=64"]) == 0
    assert capsys.readouterr().out.endswith("good: it fits dlu2048\n")


def test_without_a_target_there_is_none_to_change(wide, capsys):
    settings = ("--set", "target.array.pes=4", "--set", "numeric.rounding=flor")
    assert main(["check", wide, *settings]) == 2
    error = capsys.readouterr().err
    assert "error[needs-target]: there is no target to change\n  --> --set target.array.pes=4" in error
    assert "error[wrong-value]" in error


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.bp")), ids=lambda path: path.stem)
def test_the_examples_fit_the_shipped_target(path, capsys):
    assert main(["check", str(path), "-t", "dlu2048"]) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("good: it fits dlu2048\n")
    assert captured.err == ""


def test_layers_that_reach_no_output_are_warned_about(wide, capsys):
    assert main(["check", wide]) == 0
    assert capsys.readouterr().err == 'warning: "y" reaches no output\nwarning: "c" reaches no output\n'


def test_a_network_that_does_not_fit_fails(wide, capsys):
    assert main(["check", wide, "-t", "dlu2048"]) == 1
    captured = capsys.readouterr()
    assert "fits" not in captured.out
    assert "good" not in captured.out
    assert "error[wide-accumulator]: 64-bit accumulators are wider than the 40 bits of dlu2048" in captured.err


def test_json(wide, capsys):
    assert main(["check", wide, "-t", "dlu2048", "--json"]) == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert captured.err == ""
    assert document["network"] == "wide net"
    assert document["inputs"] == [{"name": "x", "shape": [4, 1, 1]}, {"name": "y", "shape": [4, 1, 1]}]
    assert document["layers"][0] == {
        "name": "a",
        "kind": "relu",
        "inputs": ["x"],
        "shape": [4, 1, 1],
        "parameters": 0,
        "macs": 0,
    }
    assert (document["outputs"], document["unused"], document["target"]) == (["b"], ["y", "c"], "dlu2048")
    assert [(fault["code"], fault["location"]) for fault in document["misfits"]] == [
        ("wide-accumulator", f"{wide}:1:{WIDE.index('relu') + 1}")
    ]


def test_json_without_a_target(capsys):
    assert main(["check", str(EXAMPLES / "mlp.bp"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["parameters"], document["macs_per_image"]) == (235_146, 234_752)
    assert (document["target"], document["misfits"]) == (None, [])


@pytest.mark.parametrize("content", [None, b"network n {", b"\xff\xfe\x00", b"network n { input x: 3 y = relu(z) }"])
def test_bad_input_is_exit_code_2(tmp_path, capsys, content):
    path = tmp_path / "bad.bp"
    if content is not None:
        path.write_bytes(content)
    assert main(["check", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error[")
    assert str(path) in captured.err


def test_an_unknown_target_is_exit_code_2(capsys):
    assert main(["check", str(EXAMPLES / "mlp.bp"), "-t", "dlu2047"]) == 2
    assert "error[" in capsys.readouterr().err


def test_exponents_of_blocks_need_no_statistics(tmp_path, capsys):
    network = tmp_path / "net.bp"
    network.write_text("network n { input x: 1x8x8 y = conv2d(x, channels=2, kernel=3) }")
    assert main(["check", str(network), "-t", "block16"]) == 0
    assert "good: it fits block16" in capsys.readouterr().out
    assert main(["check", str(network), "-t", "block16", "--set", "numeric.exponent=tensor"]) == 1
    assert "error[missing-statistics]" in capsys.readouterr().err

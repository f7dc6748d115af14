"""`binpoint run` over blocks: methods, networks compiled on the spot, reports, faults."""

import json
from pathlib import Path

import numpy as np
import pytest

from binpoint.cli.main import main

NETWORK = """
network n {
  input image: 2x8x8 { scale = 1/256 }
  a = relu(conv2d(image, channels=4, kernel=3, padding=1))
  p = max_pool(a, kernel=2)
  fc = linear(flatten(p), features=3)
  output fc
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "n.bp").write_text(NETWORK)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 2, 8, 8)).astype(np.uint8)
    np.savez(tmp_path / "data.npz", x=pixels)
    assert main(["compile", str(tmp_path / "n.bp"), "-t", "block16", "-o", str(tmp_path / "n.bpz")]) == 0
    return tmp_path


def run(capsys, *words) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(["run", *map(str, words), "--backend", "oracle"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def facts(capsys, *words) -> dict:
    status, out, err = run(capsys, *words, "--json")
    assert status == 0, err
    return json.loads(out)


def test_an_artifact_runs_as_it_was_compiled(capsys, folder):
    found = facts(capsys, folder / "n.bpz", "--data", folder / "data.npz", "--snr")
    assert found["exponents"] == "blocks"
    image, (conv, pool, *_) = found["inputs"][0], found["layers"]
    assert (image["granularity"], image["blocks_per_frame"], image["position_bits_per_frame"]) == ("block<4x4>", 4, 12)
    assert len(conv["candidates"]) == 8
    assert conv["default"] == conv["candidates"][0]
    assert {int(exponent) for exponent in conv["shares"]} <= set(conv["candidates"])
    assert (pool["granularity"], pool["candidates"]) == ("block<2x2>", None)
    assert all(layer["snr_db"] > 20 for layer in found["layers"])


@pytest.mark.parametrize("method", ["fixed", "frame", "current"])
def test_baselines_have_one_exponent_a_map(capsys, folder, method):
    found = facts(capsys, folder / "n.bpz", "--data", folder / "data.npz", "--exponents", method)
    assert found["exponents"] == method
    assert all(each["granularity"] == "tensor" for each in found["layers"])
    assert found["layers"][0]["snr_db"] is None


def test_a_network_is_compiled_on_the_spot(capsys, folder):
    data = ("--data", folder / "data.npz")
    same = facts(capsys, folder / "n.bp", "-t", "block16", *data)
    assert same["layers"] == facts(capsys, folder / "n.bpz", *data)["layers"]
    words = ("--set", "numeric.exponent=channel-block<2x2>", "--set", "numeric.blocks=predict(threshold=0)")
    found = facts(
        capsys, folder / "n.bp", "-t", "dlu2048", *words, "--set", "numeric.weights=6 bits per channel", *data
    )
    assert found["layers"][0]["granularity"] == "channel-block<2x2>"
    plain = facts(capsys, folder / "n.bp", "-t", "dlu2048", *data)
    assert (plain["exponents"], plain["layers"][0]["exponent_changes"]) == ("fixed", 0)


ALL_KINDS = """
network all {
  input image: 3x5x6 { scale = 1/256 }
  a = leaky_relu(conv2d(image, channels=4, kernel=3, padding=1), slope=0.1)
  b = add(a, relu6(depthwise(a, kernel=3, padding=1)))
  c = concat(b, max_pool(b, kernel=3, stride=1, padding=1))
  d = upsample(avg_pool(c, kernel=2), scale=2)
  e = sigmoid(conv2d(d, channels=2, kernel=1))
  f = softmax(linear(flatten(global_avg_pool(e)), features=3))
  output f, e
}
"""
EXECUTION = ("images_per_second", "backend", "threads", "literal")
"""What depends on the machine and on the way of execution."""
COARSE_MSE = "numeric.blocks=predict(measure=mse, threshold=0, candidates=3, alignment=integer)"


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        (["numeric.exponent=block<2x2>"], "blocks"),
        (["numeric.exponent=channel-block<2x3>", COARSE_MSE, "numeric.rounding=stochastic"], "blocks"),
        (["numeric.exponent=block<2x2>", "numeric.weights=8 bits per channel"], "fixed"),
        (["numeric.exponent=block<2x2>", "numeric.rounding=stochastic"], "frame"),
        ([], "frame"),
        ([], "current"),
    ],
)
def test_the_literal_pe_does_the_same(capsys, tmp_path, monkeypatch, settings, method):
    """Also for a network without blocks, where a method needs kernels over blocks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all.bp").write_text(ALL_KINDS)
    np.savez("data.npz", x=np.random.default_rng(1).integers(0, 256, (2, 3, 5, 6)).astype(np.uint8))
    words = ["all.bp", "-t", "dlu2048", "--data", "data.npz", "--exponents", method, "--seed", "3", "--snr"]
    for setting in settings:
        words += ["--set", setting]
    fast = facts(capsys, *words, "--output", "fast.npz")
    literal = facts(capsys, *words, "--output", "literal.npz", "--literal")
    assert [literal[name] for name in ("backend", "threads", "literal")] == ["literal-pe", 1, True]
    assert {name: literal[name] for name in fast if name not in EXECUTION} == {
        name: fast[name] for name in fast if name not in EXECUTION
    }
    assert (tmp_path / "literal.npz").read_bytes() == (tmp_path / "fast.npz").read_bytes()


def test_the_literal_pe_has_one_thread(capsys, folder):
    words = ["run", str(folder / "n.bpz"), "--data", str(folder / "data.npz"), "--literal", "--threads", "2"]
    assert main(words) == 2
    assert "error[contradicting-options]: the literal PE has one thread" in capsys.readouterr().err


def test_tables_show_ranges_and_shares(capsys, folder):
    status, out, err = run(capsys, folder / "n.bpz", "--data", folder / "data.npz", "--snr")
    assert status == 0, err
    assert "share of blocks" in out
    assert "SNR in dB" in out
    assert "%" in out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("n.bp",), "needs-target"),
        (("n.bpz", "-t", "block16"), "contradicting-options"),
        (("n.bpz", "--set", "numeric.exponent=tensor"), "contradicting-options"),
        (("n.bpz", "--exponents", "statistics"), "contradicting-options"),
        (("n.bp", "-t", "dlu2048", "--exponents", "blocks"), "no-blocks"),
        (("n.bp", "-t", "dlu2048", "--snr"), "contradicting-options"),
        (("n.bp", "-t", "block"), "unknown-target"),
    ],
)
def test_faults(capsys, folder, monkeypatch, words, code):
    monkeypatch.chdir(folder)
    status, out, err = run(capsys, *words, "--data", "data.npz")
    assert (status, out) == (2, "")
    assert f"error[{code}]" in err


def test_compiling_says_what_positions_take(capsys, folder):
    words = ["compile", str(folder / "n.bp"), "-t", "block16", "-o", str(folder / "n.bpz")]
    assert main(words) == 0
    assert "a PE meets at most 4 in 3x3 pixels and 4 in 6x6 pixels" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernels"][0]["positions_met"][-1] == {"positions": 4, "height": 6, "width": 6}
    # 4 blocks of the input, 4 of the convolution, 4 that the pool moves, 1 a number of the vector, 1 of the result.
    assert found["positions"]["position_bits_per_frame"] == 3 * (4 + 4 + 4 + 64 + 1)


def test_a_prediction_that_tolerates_too_much_is_warned_of_once(capsys, folder):
    """4 channels of 4x4 results: a threshold of 10, the target's, is more than a 64th of them."""
    network, data = str(folder / "n.bp"), str(folder / "data.npz")
    compiled = ["compile", network, "-t", "block16-neighbour", "-o", str(folder / "p.bpz")]
    direct = ["run", network, "-t", "block16-neighbour", "--data", data, "--backend", "oracle"]
    remedy = ["--set", "numeric.blocks=predict(threshold=0)"]
    capsys.readouterr()
    for words, warned in (
        (compiled, True),
        (direct, True),
        ([*compiled, *remedy], False),
        ([*direct, *remedy], False),
        ([*direct, "--exponents", "frame"], False),
        (["run", str(folder / "p.bpz"), "--data", data, "--backend", "oracle"], False),
    ):
        assert main(words) == 0
        warnings = [line for line in capsys.readouterr().err.splitlines() if "tolerates" in line]
        assert len(warnings) == warned
        for line in warnings:
            assert line.startswith('warning: the prediction of "a.conv2d" tolerates 10 saturated results a block')
            assert "of the 64 that a block has" in line
            assert f"--set '{remedy[1]}'" in line

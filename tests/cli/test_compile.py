"""binpoint compile: what it writes, what it says, what it refuses."""

import json

import numpy as np
import pytest

from binpoint.cli.main import main
from binpoint.compiler.frontends.dsl.parser import parse_network
from binpoint.compiler.parameters import draw_parameters, save_parameters
from binpoint.runtime.artifact import read_artifact
from binpoint.runtime.manifest import Origin, Source
from binpoint.support.numeric import Rounding

TEXT = """network small {
  input image: 1x6x6 { scale = 1/255 }
  conv = relu(conv2d(image, channels=3, kernel=3))
  fc = linear(flatten(conv), features=4)
  loss = cross_entropy(fc)
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


def test_an_artifact_and_a_summary(capsys, network, tmp_path):
    output = tmp_path / "small.bpz"
    status, captured = compile_(capsys, network, "-t", "tiny16", "-o", output, "--batch", 3, "--seed", 7)
    assert status == 0
    artifact = read_artifact(output)
    assert (artifact.program.name, artifact.target.name, artifact.batch) == ("small", "tiny16", 3)
    assert artifact.origin == Origin(Source.DRAW, seed=7)
    drawn = draw_parameters(parse_network(network), 7)
    np.testing.assert_array_equal(artifact.floats["fc.weight"].reshape(4, 48), drawn["fc.weight"])
    lines = captured.out.splitlines()
    assert lines[0] == "small for tiny16: 2 kernels on PEs and 1 reshape, 3 images a mini-batch"
    assert lines[1] == "226 parameters in 233 bytes of mantissas, drawn with seed 7"
    assert lines[2] == "no accumulator can overflow: fc needs 21 of 40 bits, the others no more"
    assert " ms" in lines[3]
    assert lines[4].startswith(f"wrote {output} (")
    assert captured.err == ""


def test_the_same_inputs_give_the_same_bytes(capsys, network, tmp_path):
    for name in ("one.bpz", "two.bpz"):
        assert compile_(capsys, network, "-t", "dlu2048", "-o", tmp_path / name)[0] == 0
    assert (tmp_path / "one.bpz").read_bytes() == (tmp_path / "two.bpz").read_bytes()


def test_json(capsys, network, tmp_path):
    output = tmp_path / "small.bpz"
    status, captured = compile_(capsys, network, "-t", "tiny16", "-o", output, "--json")
    assert status == 0
    report = json.loads(captured.out)
    proof = {"needed_bits": 19, "accumulator_bits": 40, "overflow": "impossible", "by_construction": False}
    kernel = {"name": "conv.conv2d", "layers": ["conv.conv2d", "conv"], "scheduled": True, **proof}
    assert report["kernels"][0] == kernel
    assert [kernel["scheduled"] for kernel in report["kernels"]] == [True, False, True]
    assert report["artifact_bytes"] == output.stat().st_size
    assert set(report["seconds"]) == {"network", "parameters", "nn", "fx", "kernels", "schedule", "artifact"}
    assert report["warnings"] == []


def test_settings_and_warnings(capsys, network, tmp_path):
    output = tmp_path / "small.bpz"
    settings = ["numeric.rounding=floor", "numeric.exponents.fc.weight=-12", "target.statistics.acquires=['lsb']"]
    words = [word for setting in settings for word in ("--set", setting)]
    status, captured = compile_(capsys, network, "-t", "tiny16", "-o", output, *words)
    assert status == 0
    artifact = read_artifact(output)
    assert artifact.program.calls[0].spec.rounding is Rounding.FLOOR
    assert artifact.target.acquires == ("lsb",)
    assert artifact.exponents["fc.weight"] == -12
    assert "values of fc.weight saturate at the exponent -12" in captured.err
    assert "msb-histogram needs msb positions" in captured.err


def test_accumulators_that_may_overflow(capsys, network, tmp_path):
    words = [
        "--set",
        "numeric.activations=16",
        "--set",
        "numeric.weights=16",
        "--set",
        "target.arithmetic.accumulator_bits=32",
    ]
    status, captured = compile_(capsys, network, "-t", "tiny16", "-o", tmp_path / "small.bpz", *words)
    assert status == 0
    overflow = "accumulators may overflow in 2 of 2 kernels: conv.conv2d (35 of 32 bits), fc (37 of 32 bits)"
    assert overflow in captured.out


MERGED = """network merged {
  input image: 2x6x6
  conv = conv2d(image, channels=2, kernel=1)
  norm = batch_norm(conv)
  sum = sigmoid(add(norm, image))
}
"""


def test_kernels_that_fit_by_construction_are_not_the_tightest(capsys, tmp_path):
    network = tmp_path / "merged.bp"
    network.write_text(MERGED)
    status, captured = compile_(capsys, network, "-t", "tiny16", "-o", tmp_path / "m.bpz", "--batch", 1)
    assert status == 0
    lines = captured.out.splitlines()
    assert lines[0] == "merged for tiny16: 3 kernels on PEs, 1 image a mini-batch"
    assert lines[1].startswith("6 parameters after folding batch norm in ")
    # Two products of 8 bits each, -2^7 * -2^7 * 2 = 2^15, and its sign.
    assert lines[2] == "no accumulator can overflow: conv needs 17 of 40 bits; 2 more fit by construction"
    only = tmp_path / "only.bp"
    only.write_text("network only { input x: 4  y = sigmoid(x) }")
    status, captured = compile_(capsys, only, "-t", "tiny16", "-o", tmp_path / "o.bpz")
    assert captured.out.splitlines()[2] == "no accumulator can overflow: all kernels fit by construction"


def test_a_dump_replaces_an_earlier_one(capsys, network, tmp_path):
    dump = tmp_path / "dump"
    words = (network, "-t", "tiny16", "--dump-dir", dump)
    assert compile_(capsys, *words)[0] == 0
    names = sorted(path.name for path in dump.iterdir())
    mine = ("05-notes.txt", "notes.mlir", "12-my-pass.mlir")
    for name in ("11-outline-kernels.mlir", *mine):
        (dump / name).write_text("earlier")
    assert compile_(capsys, *words)[0] == 0
    assert sorted(path.name for path in dump.iterdir()) == sorted([*names, *mine])


def test_a_dump_never_replaces_an_input(capsys, network, tmp_path):
    dump = tmp_path / "dump"
    words = (network, "-t", "tiny16", "--dump-dir", dump)
    assert compile_(capsys, *words)[0] == 0
    schedule = dump / "11-schedule.json"
    text = schedule.read_text()
    status, captured = compile_(capsys, *words, "--use", schedule)
    assert status == 2
    assert f"error[same-file]: the dump would replace an input\n  --> {schedule}" in captured.err
    assert schedule.read_text() == text


def test_faults_of_options_and_settings_come_together(capsys, network):
    status, captured = compile_(capsys, network, "-t", "tiny16", "--set", "bad=1")
    assert status == 2
    assert "error[nothing-to-write]" in captured.err
    assert "error[unknown-setting]" in captured.err


def test_weights_of_a_file(capsys, network, tmp_path):
    weights = tmp_path / "w.safetensors"
    save_parameters(weights, draw_parameters(parse_network(network), 99))
    output = tmp_path / "small.bpz"
    status, captured = compile_(capsys, network, "-t", "tiny16", "-o", output, "--weights", weights)
    assert status == 0
    assert "drawn" not in captured.out
    drawn = draw_parameters(parse_network(network), 99)["conv.conv2d.weight"]
    artifact = read_artifact(output)
    np.testing.assert_array_equal(artifact.floats["conv.conv2d.weight"], drawn)
    assert artifact.origin == Origin(Source.FILE, file="w.safetensors")


def test_an_edited_schedule(capsys, network, tmp_path):
    dump = tmp_path / "dump"
    assert compile_(capsys, network, "-t", "tiny16", "--dump-dir", dump, "--batch", 2)[0] == 0
    schedule = dump / "11-schedule.json"
    output = tmp_path / "small.bpz"
    assert compile_(capsys, network, "-t", "tiny16", "-o", output, "--use", schedule)[0] == 0
    artifact = read_artifact(output)
    assert artifact.batch == 2
    assert artifact.schedule is not None
    assert [layer.layer for layer in artifact.schedule.layers] == ["conv.conv2d", "fc"]


def test_ir_after_every_pass(capsys, network):
    status, captured = compile_(capsys, network, "-t", "tiny16", "--print-ir-after-all")
    assert status == 0
    shown = [line for line in captured.err.splitlines() if line.startswith("// ---")]
    assert shown[0] == "// --- after nn ---"
    assert shown[-1] == "// --- after outline-kernels ---"
    assert "fx.program @small" in captured.err


def test_emitted_kernels(capsys, network, tmp_path):
    forms = "--emit", "c", tmp_path / "out", "--emit", "tir", tmp_path / "tir"
    status, _ = compile_(capsys, network, "-t", "tiny16", *forms)
    assert any((tmp_path / "tir").iterdir())
    assert status == 0
    assert {"fc.c", "fc.pe.c"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_models_compile_directly(capsys, tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, tensor = onnx.helper, onnx.numpy_helper.from_array
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", 1, [1, 1, 3, 3])],
        [helper.make_tensor_value_info("y", 1, [1, 2, 2, 2])],
        [tensor(np.ones((2, 1, 2, 2), np.float32), "w")],
    )
    model = tmp_path / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), model)
    output = tmp_path / "tiny.bpz"
    assert compile_(capsys, model, "-t", "tiny16", "-o", output)[0] == 0
    artifact = read_artifact(output)
    assert artifact.origin == Origin(Source.FILE, file="tiny.onnx")
    (weight,) = (values for name, values in artifact.floats.items() if name.endswith("weight"))
    assert (weight == 1).all()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), "nothing-to-write"),
        (("-o", "out.bpz", "-t", "tny16"), "unknown-target"),
        (("-o", "out.bpz", "--set", "numeric.rounding=flor"), "wrong-value"),
        (("-o", "out.bpz", "--weights", "missing.safetensors"), "unreadable-file"),
        (("-o", "out.bpz", "--use", "missing.json"), "unreadable-file"),
        (("-o", "missing/out.bpz"), "unwritable-file"),
        (("--emit", "rust", "out"), "unknown-form"),
        (("-o", "out.bpz", "--set", "numeric.blocks=analyse(threshold=3)"), "unknown-attribute"),
    ],
)
def test_faults_write_nothing_over(capsys, network, tmp_path, monkeypatch, words, code):
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "out.bpz"
    kept.write_text("mine")
    status, captured = compile_(capsys, network, "-t", "tiny16", *words)
    assert status == 2
    assert f"error[{code}]" in captured.err
    assert kept.read_text() == "mine"


@pytest.mark.parametrize("words", [("--batch", "0"), ("--seed", "-1"), ("--seed", "x")])
def test_numbers_out_of_range(capsys, network, words):
    status, captured = compile_(capsys, network, "-t", "tiny16", "-o", "out.bpz", *words)
    assert status == 2
    assert f"error[wrong-value]: wrong value of {words[0]}" in captured.err


def test_the_weights_that_a_network_names_are_never_written_over(capsys, tmp_path):
    weights = tmp_path / "w.safetensors"
    weights.write_text("mine")
    network = tmp_path / "named.bp"
    network.write_text('network n { input x: 1x3x3  weights "w.safetensors"  c = conv2d(x, channels=1, kernel=1) }')
    status, captured = compile_(capsys, network, "-t", "tiny16", "-o", str(weights))
    assert (status, weights.read_text()) == (2, "mine")
    assert "error[same-file]" in captured.err


def test_exponents_of_channels_that_were_clamped_are_a_range(capsys, network, tmp_path):
    options = ["--set", "numeric.weights=8 bits per channel", "--set", "numeric.exponent_range=[-6, 8]"]
    status, captured = compile_(capsys, network, "-t", "block16", "-o", tmp_path / "c.bpz", *options)
    assert status == 0
    assert "the exponent of fc.weight was clamped to -6, into -6 to 8" in captured.err

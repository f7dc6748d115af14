"""Parameters: drawn, written, read, and refused where they do not fit."""

import math

import numpy as np
import pytest
from safetensors.numpy import save_file

from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.parameters import draw_parameters, load_parameters, read_parameters, save_parameters
from binpoint.support.diagnostics import UserError

TEXT = """
    network net {
      input x: 3x8x8
      WEIGHTS
      conv = conv2d(x, channels=4, kernel=3)
      norm = batch_norm(conv)
      fc = linear(flatten(norm), features=5)
    }
"""
SHAPES = {
    "conv.weight": (4, 3, 3, 3),
    "conv.bias": (4,),
    "norm.gamma": (4,),
    "norm.beta": (4,),
    "norm.mean": (4,),
    "norm.variance": (4,),
    "fc.weight": (5, 144),
    "fc.bias": (5,),
}


def net(weights="", directory=None):
    return parse_network_text(TEXT.replace("WEIGHTS", weights), "net.bp", directory)


@pytest.fixture
def arrays():
    generator = np.random.default_rng(0)
    return {name: generator.random(shape, np.float32) for name, shape in SHAPES.items()}


def codes(path):
    with pytest.raises(UserError) as caught:
        read_parameters(net(), path)
    assert all(fault.location.file == str(path) for fault in caught.value.diagnostics)
    return [fault.code for fault in caught.value.diagnostics]


def test_drawn_parameters():
    drawn = load_parameters(net(), None, 1)
    assert {name: array.shape for name, array in drawn.items()} == SHAPES
    assert all(array.dtype == np.float32 for array in drawn.values())
    for name in ("conv.bias", "norm.beta", "norm.mean", "fc.bias"):
        assert (drawn[name] == 0).all()
    for name in ("norm.gamma", "norm.variance"):
        assert (drawn[name] == 1).all()


def test_drawn_weights_have_hes_variance():
    text = "network n { input x: 300 fc = linear(x, features=400) }"
    (weight, _) = draw_parameters(parse_network_text(text, "n.bp", None), 0).values()
    assert np.abs(weight).max() <= math.sqrt(6 / 300)
    assert weight.mean() == pytest.approx(0, abs=0.002)
    assert weight.var() == pytest.approx(2 / 300, rel=0.02)


def test_draws_depend_on_seed_and_name_alone():
    first, again, other = (draw_parameters(net(), seed) for seed in (1, 1, 2))
    assert all((first[name] == again[name]).all() for name in SHAPES)
    assert (first["fc.weight"] != other["fc.weight"]).any()
    alone = parse_network_text("network n { input x: 144 fc = linear(x, features=5) }", "n.bp", None)
    assert (draw_parameters(alone, 1)["fc.weight"] == first["fc.weight"]).all()


def test_saved_parameters_read_back_in_layer_order(tmp_path, arrays):
    path = tmp_path / "w.safetensors"
    save_parameters(path, dict(reversed(arrays.items())))
    read = read_parameters(net(), path)
    assert list(read) == list(SHAPES)
    assert all((read[name] == arrays[name]).all() for name in SHAPES)


def test_the_same_arrays_give_the_same_bytes(tmp_path, arrays):
    save_parameters(tmp_path / "a", arrays)
    save_parameters(tmp_path / "b", dict(reversed(arrays.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_arrays_of_any_layout_can_be_saved(tmp_path, arrays):
    flipped = {name: np.asfortranarray(array) for name, array in arrays.items()}
    save_parameters(tmp_path / "w", flipped)
    assert (read_parameters(net(), tmp_path / "w")["conv.weight"] == arrays["conv.weight"]).all()


def test_a_failed_write_leaves_the_old_file(tmp_path, arrays):
    with pytest.raises(UserError) as caught:
        save_parameters(tmp_path / "missing" / "w", arrays)
    assert caught.value.diagnostics[0].code == "unwritable-file"


def test_the_option_wins_over_the_network_over_the_draw(tmp_path, arrays):
    zeros = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    save_parameters(tmp_path / "named.safetensors", arrays)
    save_parameters(tmp_path / "option.safetensors", zeros)
    named = net('weights "named.safetensors"', tmp_path)
    assert (load_parameters(named, None, 0)["fc.bias"] == arrays["fc.bias"]).all()
    assert (load_parameters(named, tmp_path / "option.safetensors", 0)["fc.bias"] == 0).all()


def test_missing_unknown_and_misspelt_parameters_come_in_tables(tmp_path, arrays):
    arrays["conv.weights"] = arrays.pop("conv.weight")
    del arrays["fc.bias"]
    path = tmp_path / "w.safetensors"
    save_file(arrays, path)
    with pytest.raises(UserError) as caught:
        read_parameters(net(), path)
    assert str(caught.value) == (
        "error[missing-parameter]: the weights file lacks 2 of 8 parameters\n"
        f"  --> {path}\n"
        "  parameter    shape\n"
        '  conv.weight  4x3x3x3  did you mean "conv.weights"?\n'
        "  fc.bias      5\n"
        "error[unknown-parameter]: the weights file has parameters that the network does not have\n"
        f"  --> {path}\n"
        "  parameter\n"
        '  conv.weights  did you mean "conv.weight"?'
    )


@pytest.mark.parametrize(
    ("name", "array", "code", "found", "expected"),
    [
        ("conv.weight", np.zeros((4, 3, 3), np.float32), "wrong-shape", "4x3x3", "4x3x3x3"),
        ("conv.bias", np.zeros((), np.float32), "wrong-shape", "one number", "4"),
        ("conv.bias", np.zeros(4, np.float64), "wrong-type", "F64", "F32"),
        ("conv.bias", np.zeros(4, np.float16), "wrong-type", "F16", "F32"),
        ("conv.bias", np.zeros(4, np.int32), "wrong-type", "I32", "F32"),
        ("conv.bias", np.array([0, np.nan, 0, 0], np.float32), "not-finite", "nan, 1 of 4 values", "finite numbers"),
        ("conv.bias", np.array([0, 0, -np.inf, 0], np.float32), "not-finite", "-inf, 1 of 4 values", "finite numbers"),
        ("norm.variance", np.array([0, 1, -0.5, 1], np.float32), "out-of-range", "-0.5", "at least 0"),
    ],
)
def test_parameters_that_do_not_fit(tmp_path, arrays, name, array, code, found, expected):
    path = tmp_path / "w.safetensors"
    save_file({**arrays, name: array}, path)
    with pytest.raises(UserError) as caught:
        read_parameters(net(), path)
    (fault,) = caught.value.diagnostics
    assert (fault.code, fault.found, fault.expected) == (code, found, expected)
    assert f'"{name}"' in fault.message


def test_faults_come_together(tmp_path, arrays):
    arrays["conv.bias"] = np.zeros(5, np.float64)
    arrays["fc.bias"][0] = np.inf
    del arrays["norm.mean"]
    path = tmp_path / "w.safetensors"
    save_file(arrays, path)
    assert codes(path) == ["missing-parameter", "wrong-shape", "wrong-type", "not-finite"]


@pytest.mark.parametrize("kept", [0, 4, 8, 40, 500, -1])
def test_truncated_files(tmp_path, arrays, kept):
    path = tmp_path / "w.safetensors"
    save_file(arrays, path)
    path.write_bytes(path.read_bytes()[:kept])
    assert codes(path) == ["wrong-file"]


@pytest.mark.parametrize("content", [b"\xff" * 100, b"PK\x03\x04" + b"\0" * 60, b"network n { }", b"{}" * 20])
def test_files_of_another_kind(tmp_path, content):
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    assert codes(path) == ["wrong-file"]


def test_files_that_cannot_be_read(tmp_path):
    for path, found in (
        (tmp_path / "none.safetensors", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / "a\ud800", "surrogates not allowed"),
    ):
        with pytest.raises(UserError, match=found) as caught:
            read_parameters(net(), path)
        assert caught.value.diagnostics[0].code == "unreadable-file"

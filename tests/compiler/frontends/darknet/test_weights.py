"""Weights files: order, headers, lengths, and the same numbers as ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.darknet import relative_difference, run_onnx
from binpoint.backends.float_reference import run_float
from binpoint.compiler.frontends.darknet.importer import DarknetOptions, import_darknet
from binpoint.compiler.pipeline import compile_network
from binpoint.compiler.settings import apply_to_network, parse_settings
from binpoint.support.diagnostics import UserError
from binpoint.support.target_file import load_target
from tests.compiler.frontends.darknet.darknet_files import HEADER, conv, head, net, write_cfg, write_weights

OLD_HEADER = np.array([0, 1, 0, 9], "<i4").tobytes()
TRANSPOSED_HEADER = np.array([0, 1001, 0, 9], "<i4").tobytes()

SMALL = net("[convolutional] batch_normalize=1 filters=2 size=1 activation=linear", "[connected] output=2", size=(1, 1))
SMALL_COUNT = 2 * 4 + 2 * 3 + 2 + 2 * 2

NETWORKS = {
    "yolo": net(
        conv(8),
        "[maxpool] size=2 stride=2",
        conv(12),
        "[maxpool] size=2 stride=1",
        conv(6, 1),
        conv(14, 1, "linear", 0),
        head(),
        "[route] layers=-3",
        conv(5, 1, "relu"),
        "[upsample] stride=2",
        "[route] layers=-1,0",
        conv(14, 1, "linear", 0),
        head(),
        size=(16, 24),
    ),
    "residual": net(
        conv(8, more="groups=1"),
        conv(4, 1, "relu"),
        conv(8, 3, "linear", more="groups=4"),
        "[shortcut] from=-3 activation=leaky",
        "[convolutional] batch_normalize=1 filters=6 size=3 stride=2 padding=0 activation=logistic",
        "[route] layers=-1 groups=2 group_id=1",
        "[maxpool] size=3 stride=2",
        "[avgpool]",
        "[connected] output=7 activation=leaky batch_normalize=1",
        "[connected] output=4 activation=linear",
        "[softmax] groups=1",
        size=(17, 13),
    ),
}


def count(network) -> int:
    """Numbers of a network's weights file: all parameters but the zeros and ones that move channels."""
    return sum(
        int(np.prod(shape)) for name, shape in network.parameter_shapes().items() if not name.startswith("group")
    )


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_computes_what_onnx_runtime_computes(tmp_path: Path, name: str, fold: bool) -> None:
    cfg = write_cfg(tmp_path, NETWORKS[name])
    drawn, _ = import_darknet(cfg)
    weights = write_weights(tmp_path, count(drawn))
    network, parameters = import_darknet(cfg, DarknetOptions(weights, fold_batch_norm=fold))
    assert parameters is not None
    assert any(layer.kind == "batch_norm" for layer in network.layers.values()) is not fold
    changed = apply_to_network(network, parse_settings(["numeric.constants=16"]))
    compilation = compile_network(changed, parameters, load_target("tiny16"))
    program = compilation.program
    images = np.random.default_rng(1).normal(size=(2, *network.inputs["image"].shape)).astype(np.float32)
    found = run_float(program, compilation.floats, {"image": images}, np.float64, program.outputs)
    expected = run_onnx(cfg, weights, images)
    assert len(expected) == len(network.outputs)
    for output, reference in zip(program.outputs, expected, strict=True):
        assert relative_difference(found[output], reference) < 1e-5


def test_a_small_variance_shows_darknets_batch_norm(tmp_path: Path) -> None:
    """(x - mean) / (sqrt(v) + 1e-6) * scale + bias: with v = 1e-12 the epsilon outside the root is as large as it."""
    cfg = write_cfg(tmp_path, net("[convolutional] batch_normalize=1 filters=1 activation=linear", channels=1))
    bias, scale, mean, variance, weight = 0.5, 2.0, 0.25, 1e-12, 3.0
    weights = tmp_path / "w.weights"
    weights.write_bytes(HEADER + np.array([bias, scale, mean, variance, weight], "<f4").tobytes())
    for fold in (False, True):
        network, parameters = import_darknet(cfg, DarknetOptions(weights, fold_batch_norm=fold))
        compilation = compile_network(network, parameters, load_target("tiny16"))
        images = np.full((1, 1, 8, 8), 0.1)
        found = run_float(compilation.program, compilation.floats, {"image": images}, np.float64)
        expected = (weight * 0.1 - mean) / (np.sqrt(variance) + 1e-6) * scale + bias
        assert np.allclose(found[compilation.program.outputs[0]], expected, rtol=1e-6)


@pytest.mark.parametrize("header", [HEADER, OLD_HEADER, TRANSPOSED_HEADER])
def test_the_order_of_a_file(tmp_path: Path, header: bytes) -> None:
    numbers = np.arange(1, SMALL_COUNT + 1, dtype="<f4")
    weights = tmp_path / "w.weights"
    weights.write_bytes(header + numbers.tobytes())
    _, parameters = import_darknet(write_cfg(tmp_path, SMALL), DarknetOptions(weights))
    assert parameters is not None
    assert {name: values.ravel().tolist() for name, values in parameters.items() if "variance" not in name} == {
        "conv0.weight": [9, 10, 11, 12, 13, 14],
        "bn0.beta": [1, 2],
        "bn0.gamma": [3, 4],
        "bn0.mean": [5, 6],
        "fc1.weight": [17, 19, 18, 20] if header is TRANSPOSED_HEADER else [17, 18, 19, 20],
        "fc1.bias": [15, 16],
    }
    assert np.allclose(np.sqrt(parameters["bn0.variance"] + 1e-12), np.sqrt([7, 8]) + 1e-6, rtol=1e-7)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (lambda data: data[:-4], "truncated-weights", "ends inside [connected], layer 1"),
        (lambda data: data[: 20 + 4 * 13], "truncated-weights", "ends inside [convolutional], layer 0"),
        (lambda data: data[:-1], "truncated-weights", "ends inside a number"),
        (lambda data: data[:20], "truncated-weights", "ends inside [convolutional], layer 0"),
        (lambda data: data[:16], "truncated-weights", "ends inside a number"),
        (lambda data: data + b"\0" * 4, "wrong-weights", "goes on after the last layer"),
        (lambda data: data[:7], "wrong-file", "no Darknet weights file"),
        (lambda data: b"", "wrong-file", "no Darknet weights file"),
        (lambda data: b"\xff" * 12 + data[12:], "wrong-file", "no Darknet weights file"),
        (
            lambda data: data[:-4] + b"\0\0\xc0\x7f",
            "wrong-weights",
            "layer 1 has numbers that are not finite",
        ),
        (lambda data: data[:44] + b"\0\0\x80\xbf" + data[48:], "wrong-weights", "layer 0 has negative variances"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, change, code: str, message: str) -> None:
    weights = write_weights(tmp_path, SMALL_COUNT)
    weights.write_bytes(change(weights.read_bytes()))
    with pytest.raises(UserError) as caught:
        import_darknet(write_cfg(tmp_path, SMALL), DarknetOptions(weights))
    (fault,) = caught.value.diagnostics
    assert (fault.code, message in fault.message, fault.location.file) == (code, True, str(weights))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        import_darknet(write_cfg(tmp_path, SMALL), DarknetOptions(tmp_path / "none"))
    assert caught.value.diagnostics[0].code == "unreadable-file"


def test_without_a_file_only_fixed_parameters_are_given(tmp_path: Path) -> None:
    assert import_darknet(write_cfg(tmp_path, SMALL))[1] is None
    network, parameters = import_darknet(write_cfg(tmp_path, net(conv(4), "[route] layers=0 groups=2")))
    assert parameters is not None
    assert parameters.keys() == network.parameter_shapes().keys()
    assert np.array_equal(parameters["group0_1.weight"][:, :, 0, 0], [[1, 0, 0, 0], [0, 1, 0, 0]])

"""Each section of a .cfg file as layers: kinds, shapes, faults with their lines."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from binpoint.backends.float_reference import run_float
from binpoint.compiler.frontends.darknet.importer import DarknetOptions, import_darknet
from binpoint.compiler.network import NetworkGraph
from binpoint.compiler.pipeline import compile_network
from binpoint.support.diagnostics import UserError
from binpoint.support.target_file import load_target
from tests.compiler.frontends.darknet.darknet_files import conv, head, net, write_cfg


def read(folder: Path, text: str, **options) -> NetworkGraph:
    return import_darknet(write_cfg(folder, text), DarknetOptions(**options))[0]


def faults(folder: Path, text: str, **options) -> list[tuple[str, int | None]]:
    with pytest.raises(UserError) as caught:
        read(folder, text, **options)
    return [(fault.code, fault.location.line) for fault in caught.value.diagnostics]


def shapes(network: NetworkGraph) -> dict[str, tuple[int, int, int]]:
    return {name: network.shapes[name] for name in network.layers}


def test_the_number_in_a_name_is_darknets_index(tmp_path: Path) -> None:
    network = read(tmp_path, net(conv(4), "[maxpool] size=2 stride=2", "[dropout]", conv(5, 1, "linear", 0)))
    assert list(network.layers) == ["conv0", "bn0", "act0", "pool1", "conv3"]
    assert network.inputs["image"].scale == Fraction(1, 255)
    assert network.layers["act0"].attributes["slope"] == Fraction(1, 10)


@pytest.mark.parametrize("extent", [7, 8])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [None, 0, 1])
def test_max_pools_have_darknets_size_and_start(
    tmp_path: Path, extent: int, size: int, stride: int, padding: int | None
) -> None:
    """As make_maxpool_layer and forward_maxpool_layer compute them."""
    more = "" if padding is None else f" padding={padding}"
    text = net(f"[maxpool] size={size} stride={stride}{more}", size=(extent, extent))
    whole = size - 1 if padding is None else padding
    if whole > 0 and whole - whole // 2 >= size:
        return  # a window could lie in the padding alone: the language has no such pool
    network = read(tmp_path, text)
    outputs = (extent + whole - size) // stride + 1
    assert network.shapes["pool0"] == (3, outputs, outputs)
    top, left, bottom, _ = network.layers["pool0"].attributes["padding"]
    assert top == left == whole // 2
    last = -top + (outputs - 1) * stride + size
    assert bottom == max(0, last - extent)


def test_pad_means_half_the_kernel_and_padding_its_number(tmp_path: Path) -> None:
    base = "[convolutional] filters=2 size=5 activation=linear"
    assert shapes(read(tmp_path, net(f"{base} pad=1"))) == {"conv0": (2, 8, 8)}
    assert shapes(read(tmp_path, net(f"{base} padding=1"))) == {"conv0": (2, 6, 6)}
    assert shapes(read(tmp_path, net(f"{base} pad=1 padding=1 stride=2"))) == {"conv0": (2, 4, 4)}


def test_groups(tmp_path: Path) -> None:
    network = read(tmp_path, net(conv(4, norm=0), conv(4, norm=0, more="groups=2"), conv(8, norm=0, more="groups=4")))
    assert [network.layers[name].kind for name in ("conv1", "conv2")] == ["conv2d", "depthwise"]
    assert network.parameter_shapes()["conv1.weight"] == (4, 2, 3, 3)
    assert network.parameter_shapes()["conv2.weight"] == (8, 1, 3, 3)


def test_route_reads_one_map_or_joins_several(tmp_path: Path) -> None:
    network = read(tmp_path, net(conv(4, norm=0), conv(6, norm=0), "[route] layers=-2", "[route] layers=-1,1"))
    assert network.layers["concat3"].inputs == ("act0", "act1")
    assert network.shapes["concat3"] == (10, 8, 8)


def test_groups_of_a_route_are_channels(tmp_path: Path) -> None:
    text = net("[route] layers=0 groups=3 group_id=1", channels=6).replace("[route]", "[dropout]\n\n[route]")
    network, parameters = import_darknet(write_cfg(tmp_path, text))
    assert parameters is not None
    images = np.random.default_rng(0).normal(size=(2, 6, 8, 8))
    compilation = compile_network(network, parameters, load_target("tiny16"))
    found = run_float(compilation.program, compilation.floats, {"image": images}, np.float64)
    assert np.array_equal(found[network.outputs[0]], images[:, 2:4])


def test_reorg_is_darknets_reorg_cpu(tmp_path: Path) -> None:
    network, parameters = import_darknet(write_cfg(tmp_path, net("[reorg] stride=2", channels=8, size=(4, 6))))
    assert parameters is not None
    images = np.random.default_rng(0).normal(size=(1, 8, 4, 6))
    compilation = compile_network(network, parameters, load_target("tiny16"))
    found = run_float(compilation.program, compilation.floats, {"image": images}, np.float64)[network.outputs[0]]
    flat, expected = images.ravel(), np.zeros(images.size)
    width, height, channels, stride = 6, 4, 8, 2
    share = channels // stride**2
    for k in range(channels):
        for j in range(height):
            for i in range(width):
                channel, offset = k % share, k // share
                across, down = i * stride + offset % stride, j * stride + offset // stride
                source = across + width * stride * (down + height * stride * channel)
                expected[i + width * (j + height * k)] = flat[source]
    assert network.shapes[network.outputs[0]] == (32, 2, 3)
    assert np.array_equal(found.ravel(), expected)


def test_a_shortcut_to_another_shape_is_darknets_shortcut_cpu(tmp_path: Path) -> None:
    wide = "[convolutional] filters=6 size=1 stride=2 activation=linear"
    network, parameters = import_darknet(write_cfg(tmp_path, net(conv(4, 1, "linear", 0), wide, "[shortcut] from=0")))
    assert parameters is not None
    images = np.random.default_rng(0).normal(size=(1, 3, 8, 8))
    compilation = compile_network(network, parameters, load_target("tiny16"))
    found = run_float(compilation.program, compilation.floats, {"image": images}, np.float64)
    expected = found["conv1"].copy()
    for k in range(4):
        for j in range(4):
            for i in range(4):
                expected[0, k, j, i] += found["conv0"][0, k, 2 * j, 2 * i]
    assert np.allclose(found["add2"], expected, rtol=1e-12)


def test_a_crop_makes_the_input_smaller_and_shifts_it(tmp_path: Path) -> None:
    declared = read(tmp_path, net("[crop] crop_height=6 crop_width=4 flip=1", conv(2, norm=0))).inputs["image"]
    assert (declared.shape, declared.scale, declared.mean) == ((3, 6, 4), Fraction(2, 255), (1,))
    still = read(tmp_path, net("[crop] crop_height=6 crop_width=4 noadjust=1", conv(2, norm=0))).inputs["image"]
    assert (still.scale, still.mean) == (Fraction(1, 255), (0,))


def test_a_classifier(tmp_path: Path) -> None:
    text = net(conv(4), "[avgpool]", "[connected] output=5 activation=relu", "[softmax] groups=1", "[cost] type=sse")
    network = read(tmp_path, text)
    assert list(network.layers)[3:] == ["pool1", "fc2", "act2", "softmax3"]
    assert network.outputs == ("softmax3",)
    flattened = read(tmp_path, net(conv(4), "[connected] output=5 activation=linear"))
    assert flattened.parameter_shapes()["fc1.weight"] == (5, 4 * 8 * 8)


def test_heads_become_outputs_with_a_detector(tmp_path: Path) -> None:
    text = net(conv(14, 1, "linear", 0), head(more="mask=1,0 jitter=.3"), "[route] layers=0", head())
    assert faults(tmp_path, text) == [("wrong-detection", 26)]
    text = net(conv(14, 1, "linear", 0), head(more="mask=1,0"), "[route] layers=0", conv(14, 1, "linear", 0), head())
    network = read(tmp_path, text)
    assert network.outputs == ("conv0", "conv3")
    assert network.detector is not None
    first, second = network.detector.heads
    assert (first.output, first.anchors, first.softmax) == ("conv0", ((3, 4), (1, 2)), False)
    assert (second.output, second.anchors) == ("conv3", ((1, 2), (3, 4)))


def test_anchors_of_a_region_are_cells_and_become_pixels(tmp_path: Path) -> None:
    pooled = net(conv(14, 1, "linear", 0), "[maxpool] size=2 stride=2", head(kind="region", more="softmax=1 coords=4"))
    (only,) = read(tmp_path, pooled).detector.heads
    assert (only.anchors, only.softmax) == (((2, 4), (6, 8)), True)
    (larger,) = read(tmp_path, pooled, size=(32, 64)).detector.heads
    assert larger.anchors == only.anchors


def test_class_names(tmp_path: Path) -> None:
    (tmp_path / "two.names").write_text("dog\ntraffic light\n")
    text = net(conv(14, 1, "linear", 0), head())
    assert read(tmp_path, text, classes=tmp_path / "two.names").detector.classes == ("dog", "traffic light")
    (tmp_path / "one.names").write_text("dog\n")
    assert faults(tmp_path, text, classes=tmp_path / "one.names") == [("wrong-count", None)]
    assert faults(tmp_path, net(conv(4)), classes=tmp_path / "two.names") == [("useless-option", None)]


def test_another_size(tmp_path: Path) -> None:
    assert read(tmp_path, net(conv(4)), size=(16, 24)).shapes["act0"] == (4, 16, 24)
    text = net(conv(4), "[connected] output=2")
    assert faults(tmp_path, text, size=(16, 24)) == [("wrong-size", 16)]


@pytest.mark.parametrize(
    ("section", "code", "line"),
    [
        ("[gru] output=3", "unknown-section", 8),
        ("[convolution] filters=3", "unknown-section", 8),
        ("[convolutional] filters=3 sise=3", "unknown-option", 10),
        ("[convolutional] filters=three", "wrong-type", 9),
        ("[convolutional] filters=0", "wrong-type", 9),
        ("[convolutional] filters=2.5", "wrong-type", 9),
        ("[convolutional] filters=2 activation=mish", "wrong-type", 10),
        ("[convolutional] filters=2 batch_normalize=2", "wrong-type", 10),
        ("[convolutional] filters=2 xnor=1", "unsupported-option", 10),
        ("[convolutional] filters=4 groups=2 activation=linear", "shape-mismatch", 8),
        ("[convolutional] filters=4 size=9 activation=linear", "shape-mismatch", 8),
        ("[maxpool] size=9 padding=0", "shape-mismatch", 8),
        ("[route] groups=2", "missing-option", 8),
        ("[route] layers=0", "unknown-layer", 9),
        ("[route] layers=-2", "unknown-layer", 9),
        ("[route] layers=-1,", "unknown-layer", 9),
        ("[route] layers=a", "wrong-type", 9),
        ("[shortcut] from=-1", "unknown-layer", 9),
        ("[reorg] stride=3", "shape-mismatch", 8),
        ("[reorg] stride=2 reverse=1", "unsupported-option", 10),
        ("[upsample] stride=2 scale=2", "unsupported-option", 10),
        ("[softmax] temperature=2", "unsupported-option", 9),
        ("[softmax] tree=x.tree", "unsupported-option", 9),
        ("[crop] crop_height=9 crop_width=8", "shape-mismatch", 8),
        ("[yolo] anchors=1,2 num=1 classes=2", "shape-mismatch", 8),
        ("[yolo] anchors=1,2 num=2 classes=2", "wrong-type", 9),
        ("[yolo] anchors=1,-2 num=1 classes=2", "wrong-type", 9),
        ("[yolo] anchors=1,2 num=1 mask=1", "out-of-range", 11),
        ("[yolo] num=1", "missing-option", 8),
        ("[region] anchors=1,2 num=1 coords=5", "unsupported-option", 11),
    ],
)
def test_faults_have_their_place(tmp_path: Path, section: str, code: str, line: int) -> None:
    assert faults(tmp_path, net(section)) == [(code, line)]


def test_a_fault_is_reported_once_and_does_not_hide_others(tmp_path: Path) -> None:
    text = net("[convolutional] filters=x", "[maxpool] size=2", "[shortcut] from=-2 what=1", "[nothing]")
    assert faults(tmp_path, text) == [("wrong-type", 9), ("unknown-option", 16), ("unknown-section", 18)]


def test_the_input_comes_first(tmp_path: Path) -> None:
    assert faults(tmp_path, "[maxpool]\nsize=2\n") == [("not-a-cfg", 1)]
    assert faults(tmp_path, "[net]\nwidth=3\nheight=0\n\n[maxpool]\nsize=2\n") == [
        ("wrong-type", 3),
        ("missing-option", 1),
    ]

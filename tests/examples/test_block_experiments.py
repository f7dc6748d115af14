"""Experiments about blocks: on a detector of a few layers with drawn weights, and pictures of noise."""

import sys
from argparse import Namespace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from binpoint.backends.oracle.backend import OracleBackend
from binpoint.compiler.frontends.darknet.importer import DarknetOptions, import_darknet
from binpoint.runtime.blocks.methods import Method
from binpoint.scheduling.block_hardware import BlockWork, block_hardware
from binpoint.support.numeric import BlockMethod, Granularity, TensorClass
from binpoint.support.target_file import load_target
from examples.experiments import bias_within_map, block_vs_layer, hardware, low_frame_rate
from examples.experiments.detector import (
    CHANNEL,
    COLOURS,
    LAYER,
    WAYS,
    WHOLE_MAP,
    Case,
    Subject,
    Thresholds,
    fingerprint,
)
from examples.experiments.report import read_csv
from tests.compiler.frontends.darknet.darknet_files import conv, head, net, write_cfg, write_weights

SIZE = 32
DETECTOR = net(
    conv(4),
    "[maxpool] size=2 stride=2",
    conv(6),
    "[maxpool] size=2 stride=1",
    conv(14, 1, "linear", 0),
    head(),
    size=(SIZE, SIZE),
)
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The .cfg and the .weights file of a small detector."""
    folder = tmp_path_factory.mktemp("detector")
    cfg = write_cfg(folder, DETECTOR)
    network, _ = import_darknet(cfg)
    count = sum(int(np.prod(shape)) for shape in network.parameter_shapes().values())
    return [str(cfg), str(write_weights(folder, count))]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three numbered pictures, the second one darker, one half of it nearly black."""
    folder = tmp_path_factory.mktemp("frames")
    draws = np.random.default_rng(0)
    paths = []
    for number in range(3):
        pixels = draws.integers(0, 256, (20, 40, 3)).astype(np.uint8)
        if number == 1:
            pixels //= 3
            pixels[:, 20:] //= 20
        paths.append(folder / f"{number:03}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


def run(monkeypatch: pytest.MonkeyPatch, experiment: ModuleType, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", [experiment.__name__, *words])
    experiment.main()


def test_every_way_has_a_colour_and_becomes_a_policy() -> None:
    assert COLOURS.keys() == WAYS.keys()
    policy = Case("channel-predicted-0", 6, CHANNEL, "2x8", 4).numeric
    assert policy.width(TensorClass.ACTIVATIONS) == 6
    assert policy.weights_per_channel
    assert policy.granularity == Granularity((2, 8), per_channel=True)
    assert policy.blocks is not None
    assert (policy.blocks.method, policy.blocks.threshold, policy.blocks.candidates) == (BlockMethod.PREDICT, 0, 4)
    assert Case("shared", block=WHOLE_MAP).numeric.granularity == Granularity()
    assert Case("current-frame").numeric.granularity == Granularity()
    assert [WAYS[way].method for way in ("calibrated", "previous-frame", "shared")] == [
        Method.FIXED,
        Method.FRAME,
        Method.BLOCKS,
    ]


def test_cases_that_differ_in_nothing_are_measured_once() -> None:
    found = list(block_vs_layer.cases(["calibrated", "current-frame", "shared"], [8], [LAYER], ["2x2", "4x4"], [4, 8]))
    assert [case.way for case in found].count("calibrated") == 1
    assert {(case.block, case.candidates) for case in found if case.way == "current-frame"} == {("4x4", 4), ("4x4", 8)}
    assert len([case for case in found if case.way == "shared"]) == 4


def test_blocks_are_compared_with_layers(
    files: list[str], pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ["--backend", "oracle", "--size", str(SIZE), "--score", "0.1", "-o", str(tmp_path)]
    choice = ["--weights-per", "layer", "--ways", "calibrated", "shared", "channel", "--candidates", "4"]
    words = [*files, *map(str, pictures), *common, *choice]
    run(monkeypatch, block_vs_layer, *words, "--bits", "6", "12")
    run(monkeypatch, block_vs_layer, *words, "--bits", "6", "--blocks", "4x4", "map")
    rows = read_csv(tmp_path / "block_vs_layer.csv")
    assert len(rows) == 8
    by_case = {(row["way"], row["bits"], row["block"]): row for row in rows}
    snr = {case: float(row["snr_db"]) for case, row in by_case.items()}
    for way in ("calibrated", "shared", "channel"):
        assert snr[way, "12", "4x4"] > snr[way, "6", "4x4"] + 15
    assert snr["channel", "6", "4x4"] > snr["shared", "6", "4x4"] > snr["calibrated", "6", "4x4"]
    best = by_case["channel", "12", "4x4"]
    assert int(best["float_detections"]) > 0
    assert float(best["f1"]) > float(by_case["channel", "6", "4x4"]["f1"])
    layers = read_csv(tmp_path / "block_vs_layer_layers.csv")
    own = [row for row in layers if (row["way"], row["bits"], row["block"]) == ("channel", "6", "4x4")]
    assert [row["layer"] for row in own] == ["image", "conv0", "conv2", "pool3", "conv4"]
    assert float(own[-1]["snr_db"]) == pytest.approx(snr["channel", "6", "4x4"])
    for name in ("", "_layers", "_sizes"):
        assert (tmp_path / f"block_vs_layer{name}.png").read_bytes().startswith(PNG)


def test_rows_of_other_pictures_do_not_count(files: list[str], pictures: list[Path]) -> None:
    arguments = Namespace(
        cfg=Path(files[0]), weights=Path(files[1]), size=SIZE, score=Fraction(1, 10), r_max=Fraction(0)
    )
    assert fingerprint(arguments, pictures) == fingerprint(arguments, list(pictures))
    assert fingerprint(arguments, pictures) != fingerprint(arguments, pictures[:2])


def test_a_low_frame_rate(
    files: list[str], pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ["--backend", "oracle", "--size", str(SIZE), "--score", "0.1", "-o", str(tmp_path), "--bits", "6"]
    ways = ["--ways", "previous-frame", "current-frame", "shared"]
    run(monkeypatch, low_frame_rate, *files, str(pictures[0].parent), *common, *ways)
    rows = {row["way"]: row for row in read_csv(tmp_path / "low_frame_rate.csv")}
    assert [row["frames"] for row in rows.values()] == ["2", "2", "2"]
    assert 0 < float(rows["previous-frame"]["stale_positions"]) < 1
    assert float(rows["shared"]["snr_db"]) > float(rows["current-frame"]["snr_db"])
    frames = [row for row in read_csv(tmp_path / "low_frame_rate_frames.csv") if row["way"] == "shared"]
    assert [row["frame"] for row in frames] == ["0", "1", "2"]
    later = np.mean([float(row["snr_db"]) for row in frames[1:]])
    assert float(rows["shared"]["snr_db"]) == pytest.approx(later)
    assert (tmp_path / "low_frame_rate.png").read_bytes().startswith(PNG)


def test_the_bias_within_a_map(
    files: list[str], pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ["--backend", "oracle", "--size", str(SIZE), "-o", str(tmp_path)]
    run(monkeypatch, bias_within_map, *files, str(pictures[1]), *common, "--layers", "conv0", "conv2")
    rows = read_csv(tmp_path / "bias_within_map.csv")
    shares = {(row["way"], row["layer"]): 0.0 for row in rows}
    for row in rows:
        shares[row["way"], row["layer"]] += float(row["share"])
    assert list(shares.values()) == pytest.approx([1] * 4)
    assert (tmp_path / "bias_within_map.png").read_bytes().startswith(PNG)


def test_dark_blocks_choose_more_fraction_bits(files: list[str], pictures: list[Path]) -> None:
    network, parameters = import_darknet(Path(files[0]), DarknetOptions(Path(files[1])))
    assert parameters is not None
    subject = Subject(network, parameters, pictures, OracleBackend(), Thresholds(Fraction(0), Fraction(1, 10)))
    bits = subject.chosen_positions(Case("shared"), pictures[1], ["conv0"])["conv0"]
    assert bits.shape == (4, SIZE, SIZE)
    inside = bits[:, SIZE // 2 - 4 : SIZE // 2 + 4]  # the picture is twice as wide as high
    assert inside[:, :, 24:].mean() > inside[:, :, :8].mean()


def test_hardware_is_that_of_the_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, hardware, "--map", "8x20x20", "32x10x10", "--inputs", "5", "-o", str(tmp_path))
    rows = read_csv(tmp_path / "hardware.csv")
    assert len(rows) == 8
    (row,) = (row for row in rows if (row["map"], row["target"], row["sharing"]) == ("8x20x20", "block16", "shared"))
    expected = block_hardware(load_target("block16"), BlockWork((8, 20, 20), 5))
    assert int(row["delay_buffer_bits_array"]) == expected.delay_buffer_bits_array
    assert int(row["latency_cycles_block"]) == expected.latency_cycles_block
    assert (tmp_path / "hardware.png").read_bytes().startswith(PNG)

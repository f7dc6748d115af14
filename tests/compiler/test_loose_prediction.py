"""Thresholds that tolerate too large a share of a block's results: where, and what changes them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.loose_prediction import LoosePrediction, loose_prediction
from binpoint.compiler.pipeline import lower_network
from binpoint.compiler.settings import apply_to_network, parse_settings
from binpoint.support.target_file import load_target

LAYERS = """
network n {
  input image: 3x32x32
  a = relu(conv2d(image, channels=8, kernel=3, padding=1))
  b = conv2d(a, channels=32, kernel=3, padding=1)
  fc = linear(flatten(b), features=2)
  output fc
}
"""


def found(numeric: str = "", target: str = "block16-neighbour", *settings: str) -> LoosePrediction | None:
    network = parse_network_text(f"{LAYERS}\nnumeric {{ {numeric} }}", "n.bp", None)
    network = apply_to_network(network, parse_settings(settings))
    return loose_prediction(lower_network(network, load_target(target)), network.numeric)


def test_the_layer_with_the_fewest_results_for_its_threshold():
    # 4x4 blocks shared by 8 channels have 128 results, the other layer's 512; 10 are more than a 64th of both.
    assert found() == LoosePrediction("a.conv2d", Fraction(10), 128, 1, "numeric.blocks")
    assert found("blocks = predict(threshold = 5)") == LoosePrediction(
        "a.conv2d", Fraction(5), 128, 0, "numeric.blocks"
    )
    # Of one channel, all have 16. The vector has one block, and nothing to predict it from.
    assert found("exponent = channel-block<4x4>") == LoosePrediction("a.conv2d", Fraction(10), 16, 1, "numeric.blocks")
    worst = found("exponent = channel-block<4x4> layer b { exponent = channel-block<2x3> }")
    assert (worst.kernel, worst.results) == ("b", 6)
    # A block larger than the map has the map's results.
    assert found("exponent = block<4x64>  blocks = predict(threshold = 64)").results == 4 * 32 * 8


@pytest.mark.parametrize(("threshold", "loose"), [("2", True), ("15/8", False), ("0", False)])
def test_a_threshold_is_loose_from_a_share_on(threshold, loose):
    assert (found(f"blocks = predict(threshold = {threshold})") is not None) == loose


@pytest.mark.parametrize(
    "numeric",
    [
        "blocks = analyse",
        "blocks = predict(measure = mse)",
        "blocks = predict(candidates = 1)",
        "blocks = predict(positions = [3])",
        "exponent = block<4x32>  blocks = predict(threshold = 500, neighbours = [left, upper-left, upper-right])",
        "exponent = block<32x4>  blocks = predict(threshold = 500, neighbours = [upper, upper-left, upper-right])",
        "exponent = block<32x32>",
        "exponent = tensor",
    ],
)
def test_what_reads_no_threshold_is_not_loose(numeric):
    assert found(numeric) is None


@pytest.mark.parametrize(
    ("numeric", "setting"),
    [
        ("", "numeric.blocks"),
        ("layer a { rounding = floor }", "numeric.blocks"),
        ("blocks = analyse  layer a { blocks = predict }", "layer.a.blocks"),
        (
            "blocks = predict(threshold = 1)  layer a.conv2d { blocks = predict(threshold = 20) }",
            "layer.a.conv2d.blocks",
        ),
    ],
)
def test_the_setting_that_is_named_changes_it(numeric, setting):
    warned = found(numeric)
    assert warned.setting == setting
    text = str(warned)
    assert text.startswith('the prediction of "a.conv2d" ')
    remedy = text.split("--set '")[1].split("'")[0]
    assert found(numeric, "block16-neighbour", remedy) is None

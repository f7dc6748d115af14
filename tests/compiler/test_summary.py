"""Parameters and multiply-accumulates, counted by hand."""

from pathlib import Path

import pytest

from binpoint.compiler.frontends.dsl.parser import parse_network, parse_network_text
from binpoint.compiler.summary import summarize

EXAMPLES = Path(__file__).parents[2] / "examples" / "networks"


def test_layers_in_data_flow_order():
    network = parse_network_text(
        """
        network n {
          input x: 3x8x8
          input unread: 4
          fc = linear(flatten(sep), features=5)
          sep = depthwise(conv, kernel=3, stride=2)
          conv = conv2d(x, channels=4, kernel=1x3, groups=1, bias=false)
          norm = batch_norm(conv)
          output fc
        }
        """,
        "n.bp",
        None,
    )
    summary = summarize(network)
    assert [(layer.name, layer.parameters, layer.macs) for layer in summary.layers] == [
        ("conv", 4 * 3 * 3, 4 * 3 * 3 * 8 * 6),
        ("sep", 4 * 9 + 4, 4 * 9 * 3 * 2),
        ("fc.flatten", 0, 0),
        ("fc", 24 * 5 + 5, 24 * 5),
        ("norm", 4 * 4, 0),
    ]
    assert summary.layers[0].shape == (4, 8, 6)
    assert summary.layers[0].inputs == ("x",)
    assert summary.unused == ("unread", "norm")
    assert summary.macs == sum(layer.macs for layer in summary.layers)
    assert summary.parameters == 36 + 40 + 125 + 16


@pytest.mark.parametrize(
    ("name", "macs"),
    # Published: 1.8e9 (He et al. 2015, table 1), 7.6e9 (torchvision), 5.56e9 / 2 (darknet counts two a MAC).
    [("resnet18", 1.814e9), ("vgg11", 7.609e9), ("yolov3-tiny", 5.56e9 / 2)],
)
def test_published_counts(name, macs):
    assert summarize(parse_network(EXAMPLES / f"{name}.bp")).macs == pytest.approx(macs, rel=0.005)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.bp")), ids=lambda path: path.stem)
def test_nothing_is_unused_in_the_examples(path):
    assert summarize(parse_network(path)).unused == ()

"""The figure: right format, the same bytes each time, any kind of array."""

import io
import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from binpoint.scheduling.allocation import schedule_layer
from binpoint.scheduling.plot import plot_schedule
from binpoint.support.diagnostics import UserError
from binpoint.support.target import Target
from binpoint.support.target_file import load_target

TINY = load_target("tiny16")


def test_png_is_an_image_with_content() -> None:
    data = plot_schedule([schedule_layer("conv1", 4, 6, TINY)], TINY, 0, "png")
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert pixels.shape[1] > 1000
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20


def test_svg_names_what_it_shows() -> None:
    layers = [schedule_layer(name, 4, 6, TINY) for name in ("conv1", "conv2")]
    data = plot_schedule(layers, TINY, 1, "svg")
    comments = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    texts = " ".join(str(node.text) for node in ElementTree.fromstring(data, comments).iter() if node.text)
    for words in (
        "tiny16: thinned-rotated (x = 2, y = 2), statistics circuits in 4 of 16 PEs",
        "conv1: image on each PE, round 1 of 0 to 1",
        "conv2: output channel on each PE, round 1 of 0 to 1",
        "conv2: 6 of 24 pairs sampled",
        "output channel (6 of 6 sampled)",
        "image (2 of 4 sampled)",
        "statistics PE",
        "idle",
    ):
        assert words in texts, words


def texts_of(data: bytes) -> list[str]:
    """The comments of an SVG, in which matplotlib repeats its texts."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    texts = [str(node.text).strip() for node in ElementTree.fromstring(data, parser).iter() if node.text]
    return [text for text in texts if text]


def test_colours_of_tiles_are_those_of_their_beginnings() -> None:
    target = replace(TINY, tile=(3, 5))
    texts = texts_of(plot_schedule([schedule_layer("conv1", 12, 20, target)], target, 0, "svg"))
    assert "first image of the tile" in texts
    assert "first output channel of the tile" in texts
    images = texts.index("first image of the tile")
    assert texts[images - 4 : images] == ["0", "3", "6", "9"]
    channels = texts.index("first output channel of the tile")
    assert texts[channels - 4 : channels] == ["0", "5", "10", "15"]


def test_where_no_statistics_are_taken_nothing_is_sampled() -> None:
    layers = [schedule_layer(name, 4, 6, TINY) for name in ("conv1", "pool1")]
    texts = texts_of(plot_schedule(layers, TINY, 0, "svg", without_statistics=["pool1"]))
    assert "pool1: no statistics" in texts
    assert "conv1: 6 of 24 pairs sampled" in texts
    assert not any(text.startswith("pool1") and "sampled" in text for text in texts)


@pytest.mark.parametrize("file_format", ["svg", "png"])
def test_the_same_schedule_gives_the_same_bytes(file_format: str) -> None:
    layers = [schedule_layer("conv1", 2, 6, TINY)]
    assert plot_schedule(layers, TINY, 0, file_format) == plot_schedule(layers, TINY, 0, file_format)


@pytest.mark.parametrize(
    "target",
    [
        Target("one", 1, (1, 1), (0,)),
        replace(TINY, statistics_pes=()),
        replace(TINY, tile=(2, 3)),
        Target("many", 6400, (80, 80), tuple(range(6400))),
    ],
    ids=["one PE", "no statistics", "tiles", "statistics everywhere"],
)
def test_any_array_can_be_drawn(target: Target) -> None:
    layer = schedule_layer("conv1", 3, 5, target)
    assert plot_schedule([layer], target, layer.rounds - 1, "svg").startswith(b"<?xml")


def test_without_matplotlib_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'binpoint\[report\]'"):
        plot_schedule([schedule_layer("conv1", 2, 6, TINY)], TINY, 0, "png")

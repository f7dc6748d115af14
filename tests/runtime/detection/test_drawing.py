"""Drawn detections: boxes and labels where they belong."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from binpoint.runtime.detection.decode import Detection
from binpoint.runtime.detection.drawing import class_colour, draw_detections


def drawn(*detections: Detection, size: tuple[int, int] = (400, 300)) -> np.ndarray:
    return np.asarray(draw_detections(Image.new("RGB", size, (128, 128, 128)), detections))


def test_a_box_has_the_colour_of_its_class_and_the_picture_stays_elsewhere() -> None:
    pixels = drawn(Detection(3, "dog", 0.9, (50, 100, 200, 250)))
    for y, x in ((180, 50), (250, 120), (180, 200), (100, 199)):
        assert tuple(pixels[y, x]) == class_colour(3)
    assert (pixels[110:240, 60:190] == 128).all()
    assert (pixels[260:] == 128).all()


def test_the_original_is_not_touched() -> None:
    picture = Image.new("RGB", (100, 100))
    draw_detections(picture, [Detection(0, "x", 0.5, (0, 0, 99, 99))])
    assert not np.asarray(picture).any()


@pytest.mark.parametrize("box", [(0, 0, 399, 299), (380, 0, 399, 10), (-5, -5, 5, 5), (390, 290, 400, 300)])
def test_labels_stay_inside(box: tuple[float, float, float, float]) -> None:
    """A label is a filled strip: a row of the picture holds many pixels of the class's colour."""
    pixels = drawn(Detection(1, "person", 0.75, box))
    strip = (pixels == class_colour(1)).all(axis=2)
    assert strip.sum(axis=1).max() >= 30
    assert strip.sum() >= 300


def test_labels_of_boxes_at_one_place_do_not_cover_each_other() -> None:
    box = (100.0, 100.0, 250.0, 250.0)
    pixels = drawn(Detection(0, "horse", 0.9, box), Detection(1, "cow", 0.8, box))
    for index in (0, 1):
        assert ((pixels == class_colour(index)).all(axis=2).sum(axis=1) >= 20).sum() >= 8


def test_colours_differ() -> None:
    assert len({class_colour(index) for index in range(80)}) == 80

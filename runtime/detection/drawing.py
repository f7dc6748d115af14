"""Detections drawn into their picture: boxes with class names and scores."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from binpoint.runtime.detection.decode import Detection

if TYPE_CHECKING:
    from PIL.Image import Image

Rectangle = tuple[float, float, float, float]
"""x0, y0, x1, y1 in pixels."""

GOLDEN_RATIO = 0.618034
"""Steps of the hue from class to class: neighbours in number look different."""

LEAST_FONT, FONT_SHARE = 12, 0.021
"""The font's height: pixels at least, else a share of the picture's mean side."""

LINE_SHARE = 0.16
"""The width of lines, as a share of the font's height."""

DARK, BRIGHT = (20, 20, 20), (255, 255, 255)


def draw_detections(picture: Image, detections: Sequence[Detection]) -> Image:
    """A copy of an RGB picture with its detections, the best on top."""
    from PIL import ImageDraw, ImageFont

    drawn = picture.convert("RGB")
    size = max(LEAST_FONT, round(FONT_SHARE * sum(drawn.size) / 2))
    brush = ImageDraw.Draw(drawn)
    font = ImageFont.load_default(size)
    line = max(2, round(LINE_SHARE * size))
    for detection in reversed(detections):
        brush.rectangle(detection.box, outline=class_colour(detection.class_index), width=line)
    taken: list[Rectangle] = []
    labels: list[tuple[Detection, Rectangle]] = []
    for detection in detections:
        extent = _extent(brush, _text(detection), font, size)
        place = _place(detection.box, extent, drawn.size, taken)
        taken.append(place)
        labels.append((detection, place))
    for detection, place in reversed(labels):
        colour = class_colour(detection.class_index)
        brush.rectangle(place, fill=colour)
        middle = place[0] + size / 4, (place[1] + place[3]) / 2
        brush.text(middle, _text(detection), fill=_ink(colour), font=font, anchor="lm")
    return drawn


def png_bytes(picture: Image) -> bytes:
    """The picture as a PNG file."""
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


def class_colour(index: int) -> tuple[int, int, int]:
    """The colour of a class, (red, green, blue) of 0 to 255: always the same, bright enough on photos."""
    red, green, blue = colorsys.hsv_to_rgb((0.33 + GOLDEN_RATIO * index) % 1, 0.85, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)


def _text(detection: Detection) -> str:
    return f"{detection.class_name} {detection.score:.2f}"


def _ink(colour: tuple[int, int, int]) -> tuple[int, int, int]:
    """Dark on bright colours, white on dark ones (luma of ITU-R BT.601)."""
    luma = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
    return DARK if luma > 140 else BRIGHT


def _extent(brush: Any, text: str, font: Any, size: int) -> tuple[float, float]:
    """Width and height of a label with its margins."""
    return float(brush.textlength(text, font=font)) + size / 2, 1.35 * size


def _place(
    box: Rectangle, extent: tuple[float, float], picture: tuple[int, int], taken: Sequence[Rectangle]
) -> Rectangle:
    """Where a label stands: above its box, inside at the top, inside at the bottom or below; the first free place."""
    width, height = extent
    left = max(0.0, min(box[0], picture[0] - width))
    tops = (box[1] - height, box[1], box[3] - height, box[3])
    inside = [top for top in tops if 0 <= top <= picture[1] - height] or [0.0]
    places = [(left, top, left + width, top + height) for top in inside]
    return next((place for place in places if not any(_touch(place, other) for other in taken)), places[0])


def _touch(first: Rectangle, second: Rectangle) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]

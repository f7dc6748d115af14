"""The sections [yolo] and [region]: stripped to the maps that they read, and to how boxes are read from those."""

from __future__ import annotations

from fractions import Fraction

from binpoint.compiler.frontends.darknet.builder import Builder
from binpoint.compiler.frontends.darknet.options import Options
from binpoint.support.detector import BOX_NUMBERS, LARGEST_ANCHOR, Head, are_anchors

Anchors = tuple[tuple[Fraction, Fraction], ...]


def yolo(options: Options, builder: Builder) -> None:
    """YOLOv3: the anchors that `mask` picks, in pixels of the input; a sigmoid for each class."""
    count, classes = options.integer("num", 1, 1), options.integer("classes", 20, 1)
    anchors = _anchors(options, count)
    mask = options.integers("mask", tuple(range(count)))
    if any(not 0 <= number < count for number in mask):
        options.fault("out-of-range", f"the mask picks an anchor that is none of the {count}", "mask")
    for name, default in (("scale_x_y", "1"), ("new_coords", "0")):
        options.only(name, default, "boxes are decoded as YOLOv3 does")
    options.finish()
    _declare(options, builder, tuple(anchors[number] for number in mask), classes, softmax=False)


def region(options: Options, builder: Builder) -> None:
    """YOLOv2: anchors in cells of the grid, softmax over the classes."""
    count, classes = options.integer("num", 1, 1), options.integer("classes", 20, 1)
    anchors = _anchors(options, count)
    softmax = options.flag("softmax")
    options.only("coords", "4", "a box has four coordinates")
    options.only("background", "0", "a box has its objectness")
    options.only("tree", "", "the language has no tree of classes")
    options.finish()
    _, height, width = builder.shapes[builder.source()]
    _, rows, columns = builder.input.shape
    cell = Fraction(columns, width), Fraction(rows, height)
    in_pixels = tuple((across * cell[0], down * cell[1]) for across, down in anchors)
    if not all(map(are_anchors, in_pixels)):
        options.fault("out-of-range", f"an anchor is larger than {LARGEST_ANCHOR} pixels", "anchors")
    _declare(options, builder, in_pixels, classes, softmax=softmax)


HANDLERS = {"yolo": yolo, "region": region}


def _anchors(options: Options, count: int) -> Anchors:
    numbers = options.numbers("anchors")
    if numbers and (len(numbers) != 2 * count or not are_anchors(numbers)):
        message = f"{count} anchors are {2 * count} numbers above 0, up to {LARGEST_ANCHOR}"
        options.fault("wrong-type", message, "anchors")
        return ()
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _declare(options: Options, builder: Builder, anchors: Anchors, classes: int, *, softmax: bool) -> None:
    """Make the map before this section an output that holds boxes."""
    source = builder.source()
    channels, wanted = builder.shapes[source][0], len(anchors) * (BOX_NUMBERS + classes)
    if channels != wanted:
        expected = f"{len(anchors)} anchors * ({BOX_NUMBERS} + {classes} classes) = {wanted}"
        raise builder.mismatch("the map before the head has other channels", f"{channels} channels", expected)
    if source in builder.heads or source == builder.input.name:
        raise options.error("wrong-detection", "the map before the head is the input, or has a head already")
    if builder.classes not in (None, classes):
        raise options.error("wrong-detection", f"a head before has {builder.classes} classes", "classes")
    builder.classes = classes
    builder.heads[source] = Head(source, anchors, softmax, options.location)

"""What the outputs of an object detector mean: heads, anchor boxes, class names and thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from binpoint.support.diagnostics import Collector, Diagnostic, Location

BOX_NUMBERS = 5
"""Numbers of a box before those of its classes: x, y, width, height, objectness."""

DEFAULT_SCORE, DEFAULT_IOU = Fraction(1, 2), Fraction(9, 20)
"""Thresholds where nobody says others, as Darknet has them."""

LARGEST_ANCHOR = 2**24
"""The largest width and height of an anchor in pixels: that of a feature map."""


def are_anchors(sides: Iterable[Fraction]) -> bool:
    """Whether all numbers can be widths and heights of anchors."""
    return all(0 < side <= LARGEST_ANCHOR for side in sides)


@dataclass(frozen=True)
class Head:
    """One output that holds boxes: A * (5 + classes) channels on a grid of cells (Redmon and Farhadi 2018, sec. 2.1).

    Attributes:
        output: the layer of the network.
        anchors: (width, height) of each of the A anchor boxes, in pixels of the network's input.
        softmax: whether the classes exclude each other (softmax, YOLOv2) or not (a sigmoid each, YOLOv3).
        location: where the network file declares it.
    """

    output: str
    anchors: tuple[tuple[Fraction, Fraction], ...]
    softmax: bool = False
    location: Location | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Detector:
    """How to read detections out of a network.

    Attributes:
        heads: at least one.
        classes: the names of the classes in the order of their channels; none calls them by number.
        score: least objectness * class probability of a detection, from 0 up to 1.
        iou: of two boxes of a class that overlap more (intersection over union), only the better one stays.
    """

    heads: tuple[Head, ...]
    classes: tuple[str, ...] = ()
    score: Fraction = DEFAULT_SCORE
    iou: Fraction = DEFAULT_IOU

    def class_name(self, index: int) -> str:
        """What a class is called."""
        return self.classes[index] if self.classes else str(index)


def check_detector(
    detector: Detector, outputs: Mapping[str, tuple[int, int, int]], inputs: Mapping[str, tuple[int, int, int]]
) -> None:
    """Compare a detector with the network around it: the shapes (C, H, W) of its outputs and of its inputs.

    Raises:
        UserError: with every head that is no output or has other channels, and where there is not one input of pixels.
    """
    collector = Collector()
    if len(inputs) != 1 or next(iter(inputs.values()))[0] not in (1, 3):
        shapes = ", ".join("x".join(map(str, shape)) for shape in inputs.values())
        message, expected = "detection needs a picture as the only input", "one input of 1 or 3 channels"
        collector.add(Diagnostic("wrong-detection", message, detector.heads[0].location, shapes, expected))
    counts: dict[int, str] = {}
    for head in detector.heads:
        if head.output not in outputs:
            message = f'the head "{head.output}" is no output of the network'
            expected = f"one of {', '.join(outputs)}"
            collector.add(Diagnostic("wrong-detection", message, head.location, head.output, expected))
            continue
        channels, anchors = outputs[head.output][0], len(head.anchors)
        classes = channels // anchors - BOX_NUMBERS
        if channels % anchors or classes < 1 or len(detector.classes) not in (0, classes):
            named = f"{len(detector.classes)} classes" if detector.classes else "classes"
            message = f'the channels of the head "{head.output}" do not fit its {anchors} anchors'
            expected = f"{anchors} * ({BOX_NUMBERS} + {named}) channels"
            collector.add(Diagnostic("wrong-detection", message, head.location, f"{channels} channels", expected))
        else:
            counts.setdefault(classes, head.output)
    if len(counts) > 1:
        found = ", ".join(f"{count} in {output}" for count, output in counts.items())
        message = "the heads have different numbers of classes"
        collector.add(Diagnostic("wrong-detection", message, detector.heads[-1].location, found))
    collector.raise_any()

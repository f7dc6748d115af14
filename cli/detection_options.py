"""The options of `run` about detection: what they say, and when they make no sense."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

    from binpoint.runtime.artifact import Artifact
    from binpoint.support.detector import Detector

PICTURE = ".png"
"""The format of drawn pictures."""


def add_detection_arguments(parser: argparse.ArgumentParser, data: argparse._MutuallyExclusiveGroup) -> None:
    """The options; `data` is the group of options that name the data."""
    data.add_argument(
        "--frames", type=Path, metavar="DIR", help="a stream of numbered pictures, for networks that detect"
    )
    group = parser.add_argument_group("detection", "For networks with a detection section, and pictures of any size.")
    group.add_argument("--score", metavar="S", help="least score of a detection (default: as the network says)")
    group.add_argument("--iou", metavar="S", help="most overlap of two boxes of a class (default: as the network says)")
    group.add_argument(
        "--draw",
        type=Path,
        metavar="PATH",
        help="draw the boxes: a .png for one picture, else a folder; with --frames also CSV files",
    )
    group.add_argument("--replace", action="store_true", help="remove the results of an earlier stream from the folder")
    group.add_argument("--float", action="store_true", help="detect in floating point, too, and compare")


def reads_pictures(arguments: argparse.Namespace) -> bool:
    """Whether the data are picture files."""
    from binpoint.runtime.images import is_image

    if arguments.frames is not None:
        return True
    if arguments.data is not None:
        return Path(arguments.data).is_dir()
    return all(is_image(Path(word)) for word in arguments.input)


def detects(arguments: argparse.Namespace, artifact: Artifact) -> bool:
    """Whether the run detects objects. Raises UserError for options of detection where it does not."""
    from binpoint.support.diagnostics import user_error

    if artifact.detector is not None and reads_pictures(arguments):
        return True
    names = ("frames", "score", "iou", "draw", "replace", "float")
    given = [name for name in names if getattr(arguments, name) not in (None, False)]
    if given:
        what = "the network has no detection section" if artifact.detector is None else "the data are no pictures"
        raise user_error("useless-option", f"there is nothing to detect: {what}", found=f"--{given[0]}")
    return False


def chosen_detector(arguments: argparse.Namespace, detector: Detector) -> Detector:
    """The network's detector with the thresholds of the command line. Raises UserError."""
    score = detector.score if arguments.score is None else _share("score", arguments.score)
    iou = detector.iou if arguments.iou is None else _share("iou", arguments.iou)
    return replace(detector, score=score, iou=iou)


def check_detection(arguments: argparse.Namespace, pictures: Sequence[Path]) -> None:
    """Refuse options of detection that contradict each other or cannot be written, before anything is computed."""
    from binpoint.support.diagnostics import Location, user_error
    from binpoint.support.files import check_writable

    if arguments.resize:
        raise user_error("useless-option", "detection scales pictures by itself", found="--resize")
    if arguments.float and arguments.no_float:
        message = "detections in floating point are wanted and not wanted"
        raise user_error("contradicting-options", message, found="--float --no-float", expected="one of them")
    _check_drawing(arguments)
    if arguments.frames is not None:
        if arguments.draw is None:
            expected = "--draw DIR, a folder for the pictures and the CSV files"
            raise user_error("missing-option", "a stream needs a folder for what comes out", expected=expected)
        if arguments.draw.resolve() == arguments.frames.resolve():
            place = Location(str(arguments.draw))
            raise user_error("same-file", "the results would lie among the frames", location=place)
        if arguments.draw.exists() and not arguments.draw.is_dir():
            raise user_error("unwritable-file", "this is no folder", location=Location(str(arguments.draw)))
        return
    if arguments.replace:
        raise user_error("useless-option", "only the results of a stream are replaced", found="--replace")
    for path in drawn_paths(arguments.draw, pictures) if arguments.draw is not None else ():
        if path.parent.is_dir() or path == arguments.draw:
            check_writable(path, pictures)


def _check_drawing(arguments: argparse.Namespace) -> None:
    """Refuse a new folder that is called like a picture: drawn pictures are PNG, and a stream has several."""
    from binpoint.runtime.images import is_image
    from binpoint.support.diagnostics import Location, user_error

    target = arguments.draw
    if target is None or target.is_dir() or not is_image(target):
        return
    several = arguments.frames is not None
    if several or target.suffix.lower() != PICTURE:
        message = "a stream is drawn into a folder" if several else f"pictures are drawn as {PICTURE} files"
        expected = "a folder" if several else f"a name in {PICTURE}, or a folder"
        raise user_error("wrong-suffix", message, location=Location(str(target)), expected=expected)


def drawn_paths(target: Path, pictures: Sequence[Path]) -> list[Path]:
    """Where each picture is drawn: the file for a single one, else in the folder under its own name.

    Raises:
        UserError: several pictures for one file.
    """
    from binpoint.support.diagnostics import Location, user_error

    if target.suffix.lower() == PICTURE and not target.is_dir():
        if len(pictures) > 1:
            raise user_error(
                "several-pictures",
                f"a {PICTURE} file holds one picture",
                location=Location(str(target)),
                found=f"{len(pictures)} pictures",
                expected="a folder",
            )
        return [target]
    stems = [picture.stem for picture in pictures]
    if len(set(stems)) == len(stems):
        return [target / f"{stem}{PICTURE}" for stem in stems]
    return [target / f"{'_'.join(picture.parts).strip('/_')}{PICTURE}" for picture in pictures]


def _share(name: str, text: str) -> Fraction:
    from binpoint.support.diagnostics import user_error
    from binpoint.support.number_text import parse_number

    try:
        value = parse_number(text)
    except ValueError:
        raise user_error(
            "wrong-number", f"--{name} is no number", found=text, expected="a number such as 0.5"
        ) from None
    if not 0 <= value < 1:
        expected = "a number from 0 up to, not including, 1"
        raise user_error("out-of-range", f"--{name} is out of range", found=text, expected=expected)
    return value

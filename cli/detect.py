"""`binpoint run` of a network that detects: pictures or frames in, boxes out, drawn if asked for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from binpoint.cli.detection_options import check_detection, chosen_detector, drawn_paths
from binpoint.cli.detection_report import detection_facts, print_detections
from binpoint.cli.output import print_json, progress
from binpoint.cli.run_report import Report, Way, facts, print_report
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.blocks.session import BlockSession
from binpoint.runtime.detection.drawing import draw_detections, png_bytes
from binpoint.runtime.detection.frames import FrameLog, list_frames, prepare_folder
from binpoint.runtime.detection.letterbox import PictureFiles
from binpoint.runtime.detection.stream import DetectionStream, PictureResult
from binpoint.runtime.evaluation import Evaluation
from binpoint.runtime.images import check_pictures, decode, list_folder
from binpoint.runtime.session import Session
from binpoint.support.diagnostics import UserError, user_error
from binpoint.support.files import make_directory, write_atomically

RGB = 3
"""Channels of a picture to draw on."""


def load_stream(arguments: argparse.Namespace, artifact: Artifact) -> DetectionStream:
    """The pictures or frames that the options name, and how to read detections. Raises UserError."""
    if artifact.detector is None:
        raise ValueError("the artifact has no detector")
    detector = chosen_detector(arguments, artifact.detector)
    paths, names = _pictures(arguments)
    check_detection(arguments, paths)
    (declared,) = artifact.program.inputs
    count = arguments.limit or len(paths)
    pictures = PictureFiles(declared, paths[:count])
    check_pictures(pictures.paths)
    return DetectionStream(artifact, detector, pictures, names[:count], arguments.float)


def detect_pictures(
    arguments: argparse.Namespace, stream: DetectionStream, session: Session | BlockSession, way: Way
) -> tuple[Report, dict[str, NDArray[np.float32]]]:
    """Run all pictures, draw and print what was found. Frames come one by one.

    Args:
        arguments: the options of the verb.
        stream: the pictures.
        session: accounts for every tensor.
        way: how the network is executed.

    Returns:
        The report of the run, and the network's outputs (N, C, H, W) where --output wants them.
    """
    done, noun = _Done(), "pictures"
    if arguments.frames is not None:
        prepare_folder(arguments.draw, replace=arguments.replace)
        way, noun = replace(way, batch=1), "frames"
    with _telling_how_far(done, len(stream.pictures), noun):
        _detect(arguments, stream, session, way, done)
    evaluation = Evaluation(len(done.results), None, None, done.seconds, {})
    report = Report(stream.artifact, session, stream.samples, evaluation, None, way)
    if arguments.json:
        print_json({**facts(report), **detection_facts(done.results)})
    else:
        print_detections(done.results, arguments.draw)
        print_report(report)
    return report, {name: np.concatenate(parts) for name, parts in done.outputs.items()}


@dataclass
class _Done:
    """What has been finished so far; outputs, in parts, where they are wanted."""

    results: list[PictureResult] = field(default_factory=list)
    outputs: dict[str, list[NDArray[np.float32]]] = field(default_factory=dict)
    seconds: float = 0.0


def _detect(
    arguments: argparse.Namespace,
    stream: DetectionStream,
    session: Session | BlockSession,
    way: Way,
    done: _Done,
) -> None:
    """Run all pictures, draw and log each as it is done."""
    with ExitStack() as stack:
        log = None
        if arguments.frames is not None:
            log = stack.enter_context(FrameLog(arguments.draw))
        drawer = _Drawer(arguments.draw, stream.pictures.paths)
        advance = stack.enter_context(progress("detection", len(stream.pictures)))
        for results, batch in stream.run(session, way.batch, warm_up=not way.literal):
            done.seconds += batch.seconds
            for result in results:
                drawn = drawer.draw(result)
                if log is not None:  # first: it names the pictures that a later stream may replace
                    log.add(result.path, result.detections, batch.seconds, session.layers)
                drawer.write(len(done.results), drawn)
                done.results.append(result)
            for name, output in batch.outputs.items() if arguments.output is not None else ():
                done.outputs.setdefault(name, []).append(output.values.astype(np.float32))
            advance(len(results))


@contextmanager
def _telling_how_far(done: _Done, total: int, noun: str) -> Iterator[None]:
    """Let the error of one of several pictures say how many were finished before: their results are there."""
    try:
        yield
    except UserError as error:
        if total == 1:
            raise
        far = f"after {len(done.results)} of {total} {noun}"
        raise UserError(*(replace(each, message=f"{each.message}, {far}") for each in error.diagnostics)) from None


def _pictures(arguments: argparse.Namespace) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The files, and what they are called."""
    if arguments.frames is not None:
        if arguments.batch not in (None, 1):
            raise user_error("useless-option", "frames come one by one", found=f"--batch {arguments.batch}")
        frames = list_frames(arguments.frames)
        return frames, tuple(path.name for path in frames)
    if arguments.data is not None:
        folder = Path(arguments.data)
        paths, _ = list_folder(folder)
        return paths, tuple(str(path.relative_to(folder)) for path in paths)
    return tuple(map(Path, arguments.input)), tuple(arguments.input)


class _Drawer:
    """Draws pictures where --draw says."""

    def __init__(self, target: Path | None, pictures: Sequence[Path]) -> None:
        self._paths: list[Path] = []
        if target is not None:
            self._paths = drawn_paths(target, pictures)
            if target not in self._paths:
                make_directory(target)

    def draw(self, result: PictureResult) -> bytes:
        """A picture with its detections as a file; nothing where nothing is to be drawn."""
        if not self._paths:
            return b""
        return png_bytes(draw_detections(decode(result.path, RGB), result.detections))

    def write(self, index: int, drawn: bytes) -> None:
        """The file of that picture, whole or not at all."""
        if self._paths:
            write_atomically(self._paths[index], drawn)

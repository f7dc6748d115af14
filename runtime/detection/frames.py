"""Numbered frames of a stream: in their order, and what each gave as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from binpoint.backends.kernel import Events
from binpoint.runtime.blocks.report import MapReport, snr_db
from binpoint.runtime.detection.decode import Detection
from binpoint.runtime.images import is_image
from binpoint.runtime.session import TensorReport
from binpoint.runtime.training.line_file import LineFile
from binpoint.support.diagnostics import Location, user_error
from binpoint.support.files import make_directory, read_text, remove_file

FRAMES, DETECTIONS, LAYERS = "frames.csv", "detections.csv", "layers.csv"

PICTURE = ".png"
"""The format of drawn pictures."""

FRAME_COLUMNS = ("frame", "file", "detections", "classes", "milliseconds")
DETECTION_COLUMNS = ("frame", "class", "score", "x0", "y0", "x1", "y1")
EVENT_COLUMNS = ("results", "saturated", "underflowed", "accumulator_overflows")
LAYER_COLUMNS = ("frame", "layer", "finest_exponent", "coarsest_exponent", *EVENT_COLUMNS, "snr_db")

LayerReport = TensorReport | MapReport
"""What a session says of a layer since it began."""

LONGEST_NUMBER = 18
"""Digits of the longest number of a frame."""

_NUMBER = re.compile(r"[0-9]+")


def frame_number(path: Path) -> int | None:
    """The last number in the name of a file, None where there is none."""
    numbers = _NUMBER.findall(path.stem)
    return int(numbers[-1]) if numbers and len(numbers[-1]) <= LONGEST_NUMBER else None


def list_frames(folder: Path) -> tuple[Path, ...]:
    """The frames of a folder in the order of their numbers (see `frame_number`).

    Raises:
        UserError: where the folder cannot be listed, holds no pictures, or two of one number or one without.
    """
    place = Location(str(folder))
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file() and is_image(path))
    except OSError as error:
        raise user_error("unreadable-file", "cannot list the folder", location=place, found=error.strerror) from None
    if not paths:
        raise user_error(
            "empty-data", "the folder holds no pictures", location=place, expected="files such as 0001.jpg"
        )
    frames: dict[int, Path] = {}
    for path in paths:
        number = frame_number(path)
        if number is None:
            message, expected = "a frame has no number in its name", "names such as 0001.jpg"
            raise user_error("not-a-frame", message, location=Location(str(path)), expected=expected)
        if number in frames:
            found = f'"{frames[number].name}" and "{path.name}"'
            raise user_error("not-a-frame", f"two frames have the number {number}", location=place, found=found)
        frames[number] = path
    return tuple(frames[number] for number in sorted(frames))


def prepare_folder(folder: Path, *, replace: bool) -> None:
    """Make an empty folder for the results of a stream.

    `replace` removes the results of an earlier stream from it. A folder with anything else in it stays as it is.

    Raises:
        UserError: where the folder is not empty and may not be replaced, or holds other files, or cannot be made.
    """
    make_directory(folder)
    present = sorted(folder.iterdir())
    if not present:
        return
    place = Location(str(folder))
    known = _results(folder)
    foreign = [path.name for path in present if path.name not in known]
    if foreign:
        found = foreign[0]
        message = "the folder holds other files than the results of a stream"
        raise user_error("occupied-folder", message, location=place, found=found, expected="an empty or a new folder")
    if not replace:
        message, hint = "the folder holds the results of another stream", "--replace removes them first"
        raise user_error("occupied-folder", message, location=place, found=f"{len(present)} files", hint=hint)
    for path in sorted(present, key=lambda path: path.name == FRAMES):  # last what says that the others may go
        remove_file(path)


def _results(folder: Path) -> set[str]:
    """The files that an earlier stream left in a folder, as its list of frames says."""
    if not (folder / FRAMES).is_file():
        return set()
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(folder / FRAMES, "list of frames"))))
    except csv.Error:
        return set()
    drawn = {f"{Path(row.get('file') or '').stem}{PICTURE}" for row in rows}
    return {FRAMES, DETECTIONS, LAYERS, *drawn}


class FrameLog:
    """Writes the CSV files of a stream, frame by frame: what is there can be read while the stream goes on.

    `frames.csv` has a row a frame, `detections.csv` a row a detection, `layers.csv` a row a frame and layer. A frame
    comes into `frames.csv` last: wherever a stream ends, the others have all rows of the frames in it.
    """

    def __init__(self, folder: Path) -> None:
        self._files = {name: LineFile(folder / name) for name in (FRAMES, DETECTIONS, LAYERS)}
        self._states: dict[str, _State] = {}
        for name, columns in ((FRAMES, FRAME_COLUMNS), (DETECTIONS, DETECTION_COLUMNS), (LAYERS, LAYER_COLUMNS)):
            self._write(name, [columns])

    def __enter__(self) -> FrameLog:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def add(self, path: Path, detections: Sequence[Detection], seconds: float, layers: Iterable[LayerReport]) -> None:
        """Write the rows of one frame. `layers` reports what happened since the stream began. Raises UserError."""
        number = frame_number(path)
        counts = Counter(detection.class_name for detection in detections)
        classes = "; ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        boxes = [(each, [f"{side:.2f}" for side in each.box]) for each in detections]
        self._write(DETECTIONS, [(number, each.class_name, f"{each.score:.6f}", *sides) for each, sides in boxes])
        self._write(LAYERS, [(number, report.name, *self._layer(report)) for report in layers])
        self._write(FRAMES, [(number, path.name, len(detections), classes, f"{1000 * seconds:.3f}")])

    def _layer(self, report: LayerReport) -> list[object]:
        """What the frame added to a layer's account."""
        state = _State.of(report)
        before = self._states.get(report.name, _State(Counter(), Events(0), 0.0, 0.0))
        self._states[report.name] = state
        exponents = state.blocks - before.blocks
        events = [getattr(state.events, name) - getattr(before.events, name) for name in EVENT_COLUMNS]
        snr = snr_db(state.signal - before.signal, state.noise - before.noise)
        return [min(exponents), max(exponents), *events, "" if snr is None else f"{snr:.2f}"]

    def _write(self, name: str, rows: Sequence[Sequence[object]]) -> None:
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows(rows)
        self._files[name].write(stream.getvalue())
        self._files[name].position()


@dataclass(frozen=True)
class _State:
    """A layer's account up to a frame: how many blocks took each exponent, events, and sums of squares."""

    blocks: Counter[int]
    events: Events
    signal: float
    noise: float

    @staticmethod
    def of(report: LayerReport) -> _State:
        if isinstance(report, MapReport):
            return _State(report.blocks.copy(), report.events, report.signal, report.noise)
        return _State(Counter({report.exponent: report.events.results}), report.events, 0.0, 0.0)

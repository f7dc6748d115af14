"""Pictures through a session, batch by batch: what was found in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from binpoint.backends.float_reference import run_float
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.data import Samples
from binpoint.runtime.detection.decode import Detection, Outputs, read_detections
from binpoint.runtime.detection.letterbox import PictureFiles, Placement
from binpoint.runtime.evaluation import Result, Runner
from binpoint.support.detector import Detector


@dataclass(frozen=True)
class PictureResult:
    """What was found in one picture, best first.

    Attributes:
        name: how the picture is called.
        path: its file.
        size: (width, height) in pixels, upright.
        detections: of the fixed-point network.
        in_float: of the float network, None where it did not run.
    """

    name: str
    path: Path
    size: tuple[int, int]
    detections: tuple[Detection, ...]
    in_float: tuple[Detection, ...] | None = None


@dataclass(frozen=True)
class DetectionStream:
    """Detection over many pictures.

    Attributes:
        artifact: the network.
        detector: how its outputs are read.
        pictures: the files, scaled to the network's input.
        names: how they are called, as many as the files.
        in_float: whether the float network runs beside.
    """

    artifact: Artifact
    detector: Detector
    pictures: PictureFiles
    names: tuple[str, ...]
    in_float: bool = False

    @property
    def samples(self) -> Samples:
        """The pictures as the network reads them."""
        return Samples({self.pictures.declared.name: self.pictures}, None, self.names)

    def run(
        self, session: Runner, batch: int, *, warm_up: bool = False
    ) -> Iterator[tuple[list[PictureResult], Result]]:
        """Run all pictures, `batch` at a time: what was found in each, and what the session gave.

        `warm_up` runs the first batch once ahead of all, so that no time goes into compiling kernels.

        Raises:
            UserError: a file cannot be read.
        """
        for first in range(0, len(self.pictures), batch):
            chosen = slice(first, min(first + batch, len(self.pictures)))
            numbers, placements = self.pictures.read_placed(chosen.start, chosen.stop)
            inputs = {self.pictures.declared.name: numbers}
            if warm_up and first == 0:
                session.warm_up(inputs)
            result = session.run(inputs)
            found = self._read({name: output.values for name, output in result.outputs.items()}, placements)
            floats: list[tuple[Detection, ...] | None] = [None] * len(found)
            if self.in_float:
                heads = [head.output for head in self.detector.heads]
                values = run_float(self.artifact.program, self.artifact.floats, inputs, keep=heads)
                floats = list(self._read(values, placements))
            sizes = [placement.picture for placement in placements]
            columns = (self.names[chosen], self.pictures.paths[chosen], sizes, found, floats)
            yield [PictureResult(*row) for row in zip(*columns, strict=True)], result

    def _read(self, outputs: Outputs, placements: list[Placement]) -> list[tuple[Detection, ...]]:
        _, rows, columns = self.pictures.declared.tensor.shape
        return read_detections(self.detector, outputs, (columns, rows), placements)

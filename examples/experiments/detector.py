"""A Darknet detector for the experiments about blocks: what it finds in floating point and in fixed point."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from binpoint.backends.blocks import BlockBackend, spread
from binpoint.backends.float_reference import run_float
from binpoint.backends.kernel import IntArray, StatisticsRecord
from binpoint.backends.program import Program
from binpoint.cli.backend_options import add_backend_arguments, chosen_threads, make_backend
from binpoint.compiler.frontends.darknet.importer import DarknetOptions, import_darknet
from binpoint.compiler.network import NetworkGraph
from binpoint.compiler.parameters import Parameters
from binpoint.compiler.pipeline import compile_network
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.blocks.methods import Method
from binpoint.runtime.blocks.session import BlockSession
from binpoint.runtime.calibration import movable_tensors, trial_records
from binpoint.runtime.detection.decode import Detection, read_detections
from binpoint.runtime.detection.letterbox import PictureFiles
from binpoint.runtime.detection.stream import DetectionStream, PictureResult
from binpoint.runtime.images import picture_size
from binpoint.runtime.pixels import FloatArray
from binpoint.support.detector import Detector
from binpoint.support.number_text import parse_number
from binpoint.support.numeric import (
    DEFAULT_UPDATE,
    BlockMethod,
    BlockWords,
    Granularity,
    Measure,
    NumericPolicy,
    TensorClass,
)
from binpoint.support.target_file import load_target
from examples.experiments.report import options

TARGET = "block16"

WHOLE_MAP = "map"
"""The block that is as large as the map."""

LAYER, CHANNEL = "layer", "channel"
"""What shares an exponent of weights: all of a layer's, or an output channel's."""


@dataclass(frozen=True)
class Way:
    """How a network finds its positions.

    Attributes:
        title: as plots call it.
        method: of the session.
        per_channel: whether blocks of an image's channels have positions of their own.
        words: how blocks find theirs.
    """

    title: str
    method: Method = Method.BLOCKS
    per_channel: bool = False
    words: BlockWords = BlockWords(BlockMethod.ANALYSE)

    @property
    def of_layers(self) -> bool:
        """Whether a layer has one position."""
        return self.method is not Method.BLOCKS


def _predict(threshold: int) -> BlockWords:
    return BlockWords(BlockMethod.PREDICT, threshold=Fraction(threshold))


WAYS: Mapping[str, Way] = {
    "calibrated": Way("layer, calibrated", Method.FIXED),
    "previous-frame": Way("layer, previous frame", Method.FRAME),
    "current-frame": Way("layer, current frame", Method.CURRENT),
    "shared": Way("block, shared"),
    "shared-mse": Way("block, shared, least squared error", words=BlockWords(BlockMethod.ANALYSE, Measure.MSE)),
    "shared-predicted": Way("block, shared, predicted", words=_predict(10)),
    "shared-predicted-0": Way("block, shared, predicted, threshold 0", words=_predict(0)),
    "channel": Way("block, per channel", per_channel=True),
    "channel-mse": Way(
        "block, per channel, least squared error",
        per_channel=True,
        words=BlockWords(BlockMethod.ANALYSE, Measure.MSE),
    ),
    "channel-predicted": Way("block, per channel, predicted", per_channel=True, words=_predict(10)),
    "channel-predicted-0": Way("block, per channel, predicted, threshold 0", per_channel=True, words=_predict(0)),
}
"""Ways by their names in the CSV. Predictions tolerate 10 overflows of a block, as the patent does, or none."""

QUICK_WAYS = tuple(name for name, way in WAYS.items() if way.words.measure is None)
"""Those that compiled kernels compute; squared errors are summed by the reference."""

COLOURS = {
    "calibrated": "#8c8c8c",
    "previous-frame": "#d6604d",
    "current-frame": "#e6a23c",
    "shared": "#1f78b4",
    "shared-mse": "#08306b",
    "shared-predicted": "#6baed6",
    "shared-predicted-0": "#b3d4ea",
    "channel": "#1b7837",
    "channel-mse": "#00441b",
    "channel-predicted": "#5aae61",
    "channel-predicted-0": "#a6dba0",
}
"""Of each way in plots."""


@dataclass(frozen=True)
class Case:
    """One setting of the arithmetic: bits of activations, who shares an exponent of weights, way, block, candidates."""

    way: str
    bits: int = 8
    weights: str = LAYER
    block: str = "4x4"
    candidates: int = 8

    def __str__(self) -> str:
        block = "" if WAYS[self.way].of_layers else f", {self.block}"
        return f"{self.way}{block}, {self.bits} bits, weights per {self.weights}, {self.candidates} candidates"

    @property
    def numeric(self) -> NumericPolicy:
        """What a network file would say of widths and blocks."""
        way = WAYS[self.way]
        block = None if self.block == WHOLE_MAP or way.of_layers else tuple(map(int, self.block.split("x")))
        return NumericPolicy(
            bits={TensorClass.ACTIVATIONS: self.bits},
            granularity=Granularity((block[0], block[1]) if block else None, way.per_channel),
            blocks=replace(way.words, candidates=self.candidates),
            weights_per_channel=self.weights == CHANNEL,
        )


@dataclass(frozen=True)
class Thresholds:
    """The share of a layer's results that calibration may leave out, and the least score of a detection."""

    r_max: Fraction
    score: Fraction


def detector_options(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every experiment with a detector has."""
    parser = options(description)
    parser.add_argument("cfg", type=Path, help="a Darknet detector, such as yolov3-tiny.cfg")
    parser.add_argument("weights", type=Path, help="its .weights file")
    parser.add_argument("--size", type=int, default=448, metavar="PIXELS", help="side of the input (default 448)")
    parser.add_argument(
        "--r-max",
        type=parse_number,
        default=DEFAULT_UPDATE.r_max,
        metavar="SHARE",
        help="share of a layer's results that calibration may leave out (default: that of a network that says nothing)",
    )
    parser.add_argument("--score", type=parse_number, default=Fraction(3, 10), help="least score (default 0.3)")
    add_backend_arguments(parser)
    return parser


class Subject:
    """A detector, the pictures that its exponents are calibrated with, and what computes.

    Args:
        network: with a detection section.
        parameters: its floats by name.
        calibration: pictures; the numbers of each feature map in all of them give its candidates.
        backend: compiles kernels.
        thresholds: what calibration may leave out, and the least score of a detection.
    """

    def __init__(
        self,
        network: NetworkGraph,
        parameters: Parameters,
        calibration: Sequence[Path],
        backend: BlockBackend,
        thresholds: Thresholds,
    ) -> None:
        self._network, self._parameters, self._backend = network, parameters, backend
        self._calibration = tuple(calibration)
        self._thresholds = thresholds
        self._records: dict[str, StatisticsRecord] = {}
        self._float_detections: dict[Path, tuple[Detection, ...]] = {}

    @property
    def name(self) -> str:
        """What the network is called."""
        return self._network.name

    def run(self, case: Case, pictures: Sequence[Path]) -> Iterator[tuple[PictureResult, BlockSession]]:
        """The pictures one by one, in order, through one session: what was found, in floating point, too."""
        artifact = self._compiled(case)
        records = self._records_of(artifact.program)
        session = BlockSession(artifact, self._backend, WAYS[case.way].method, compare=True, records=records)
        names = tuple(path.name for path in pictures)
        stream = DetectionStream(artifact, self._detector(artifact), _files(artifact.program, pictures), names)
        for results, _ in stream.run(session, 1):
            for result in results:
                yield replace(result, in_float=self.float_detections(result.path)), session

    def float_detections(self, path: Path) -> tuple[Detection, ...]:
        """What the float network finds in a picture."""
        if path not in self._float_detections:
            artifact = self._plain
            detector, program = self._detector(artifact), artifact.program
            files = _files(program, [path])
            heads = [head.output for head in detector.heads]
            outputs = run_float(program, artifact.floats, {files.declared.name: files.read(0, 1)}, keep=heads)
            _, rows, columns = files.declared.tensor.shape
            placements = [files.placement(picture_size(path))]
            (found,) = read_detections(detector, outputs, (columns, rows), placements)
            self._float_detections[path] = found
        return self._float_detections[path]

    def chosen_positions(self, case: Case, path: Path, layers: Sequence[str]) -> dict[str, IntArray]:
        """Fraction bits (C, H, W) of each element in a picture above the layer's coarsest candidate."""
        artifact = self._compiled(case)
        program = replace(artifact.program, outputs=tuple(layers))
        artifact, records = replace(artifact, program=program), self._records_of(program)
        session = BlockSession(artifact, self._backend, WAYS[case.way].method, records=records)
        files = _files(program, [path])
        outputs = session.run({files.declared.name: files.read(0, 1)}).outputs
        candidates = {report.name: report.candidates for report in session.layers}
        found = {}
        for layer, output in outputs.items():
            choice = candidates[layer]
            if choice is None:
                raise ValueError(f"the positions of {layer} are those of its input")
            found[layer] = choice.exponents[0] - spread(output.exponents, output.tensor)[0]
        return found

    def pixels(self, path: Path) -> FloatArray:
        """A picture as the network reads it, (C, H, W)."""
        pixels: FloatArray = _files(self._plain.program, [path]).read(0, 1)[0]
        return pixels

    def _compiled(self, case: Case) -> Artifact:
        numeric = replace(case.numeric, update=replace(DEFAULT_UPDATE, r_max=self._thresholds.r_max))
        network = self._network.with_numeric(numeric)
        return compile_network(network, self._parameters, load_target(TARGET)).artifact()

    def _detector(self, artifact: Artifact) -> Detector:
        if artifact.detector is None:
            raise ValueError(f"{self.name} detects nothing")
        return replace(artifact.detector, score=self._thresholds.score)

    @cached_property
    def _plain(self) -> Artifact:
        """For floating point, which no case changes."""
        return self._compiled(Case(next(iter(WAYS))))

    def _records_of(self, program: Program) -> Mapping[str, StatisticsRecord]:
        """Bit positions of a program's movable feature maps in the calibration pictures."""
        if any(tensor.name not in self._records for tensor in movable_tensors(program)):
            files = _files(program, self._calibration)
            inputs = {files.declared.name: files.read(0, len(files))}
            self._records |= trial_records(program, self._plain.floats, inputs)
        return self._records


def load_subject(arguments: argparse.Namespace, calibration: Sequence[Path]) -> Subject:
    """The subject that the options name. Raises UserError."""
    size = arguments.size, arguments.size
    network, parameters = import_darknet(arguments.cfg, DarknetOptions(arguments.weights, size))
    if parameters is None:
        raise ValueError("a .weights file gives parameters")
    backend = make_backend(arguments.backend, chosen_threads(arguments.backend, arguments.threads))
    return Subject(network, parameters, calibration, backend, Thresholds(arguments.r_max, arguments.score))


def fingerprint(arguments: argparse.Namespace, pictures: Sequence[Path]) -> str:
    """Eight hexadecimal digits that say what was measured: network, weights, input, thresholds and pictures."""
    digest = sha256(f"{arguments.size} {arguments.r_max} {arguments.score}".encode())
    for path in (arguments.cfg, arguments.weights, *pictures):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def _files(program: Program, pictures: Sequence[Path]) -> PictureFiles:
    (declared,) = program.inputs
    return PictureFiles(declared, tuple(pictures))

"""Running a whole data set: in fixed point with outputs, accuracy and time, and in floating point for comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.float_reference import run_float
from binpoint.backends.program import Program
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.data import Samples
from binpoint.runtime.pixels import FloatArray
from binpoint.support.diagnostics import user_error


class Scored(Protocol):
    """A tensor that leaves the network: numbers (N, C, H, W), and what orders the classes of a sample."""

    @property
    def values(self) -> NDArray[np.float64]:
        """The numbers."""

    @property
    def scores(self) -> NDArray[Any]:
        """Numbers in the same order."""


class Result(Protocol):
    """What one batch gave."""

    @property
    def outputs(self) -> Mapping[str, Scored]:
        """The network's outputs by name."""

    @property
    def seconds(self) -> float:
        """The time of the fixed-point inference."""


class Runner(Protocol):
    """A session of any kind."""

    def run(self, inputs: Mapping[str, FloatArray]) -> Result:
        """Run one batch: numbers (N, C, H, W) by input name."""

    def warm_up(self, inputs: Mapping[str, FloatArray]) -> None:
        """Run one batch and forget it."""


Advance = Callable[[int], None]
"""Called with the number of images after each mini-batch."""


@dataclass(frozen=True)
class Evaluation:
    """What a fixed-point run over a data set gave.

    Attributes:
        samples: how many images ran.
        correct: how many got the class of their label, None without labels or classes.
        classes: the class of each image (N,) by its highest score, None without classes.
        seconds: of fixed-point inference alone, without loading, calibration and compiling.
        outputs: float32 outputs by name, a vector (N, C), another map (N, C, H, W); empty where not kept.
    """

    samples: int
    correct: int | None
    classes: NDArray[np.int64] | None
    seconds: float
    outputs: Mapping[str, NDArray[np.float32]]

    @property
    def accuracy(self) -> float | None:
        """The share of images that got the right class, 0 to 1."""
        return None if self.correct is None else self.correct / self.samples

    @property
    def images_per_second(self) -> float:
        """Throughput of the fixed-point inference."""
        return self.samples / self.seconds


def class_output(program: Program) -> str | None:
    """The output that holds a score for each class: the first one that is a vector; None if there is none."""
    shapes = {call.spec.name: call.spec.output for call in program.calls}
    vectors = (name for name in program.outputs if name in shapes and shapes[name].shape[1:] == (1, 1))
    return next(vectors, None)


def evaluate(
    program: Program,
    session: Runner,
    samples: Samples,
    batch: int,
    *,
    keep_outputs: bool = False,
    warm_up: bool = False,
    advance: Advance | None = None,
) -> Evaluation:
    """Run all samples through a session, `batch` at a time.

    Args:
        program: what the session runs.
        session: a fresh session.
        samples: the data.
        batch: images a mini-batch; the last one may be smaller.
        keep_outputs: whether to return the outputs, which takes their memory.
        warm_up: whether to run the first mini-batch once ahead of all, so that no time goes into compiling kernels.
        advance: called after each mini-batch.

    Raises:
        UserError: a file cannot be read, or a label is no class of the network.
    """
    scored = class_output(program)
    _check_labels(program, scored, samples)
    kept: dict[str, list[NDArray[np.float32]]] = {name: [] for name in program.outputs if keep_outputs}
    classes: list[NDArray[np.int64]] = []
    seconds = 0.0
    for part in samples.batches(batch):
        if warm_up and part.first == 0:
            session.warm_up(part.inputs)
        result = session.run(part.inputs)
        seconds += result.seconds
        for name, outputs in kept.items():
            outputs.append(_flat(result.outputs[name].values))
        if scored is not None:
            classes.append(_classes(result.outputs[scored].scores))
        if advance is not None:
            advance(len(part))
    found = np.concatenate(classes) if classes else None
    labels = samples.labels
    return Evaluation(
        samples=len(samples),
        correct=None if found is None or labels is None else int((found == labels[: len(found)]).sum()),
        classes=found,
        seconds=seconds,
        outputs={name: np.concatenate(outputs) for name, outputs in kept.items()},
    )


def float_accuracy(artifact: Artifact, samples: Samples, batch: int, advance: Advance | None = None) -> float | None:
    """The share of images that the float network gives their class, 0 to 1; None without labels or classes.

    Runs apart from `evaluate`: the threads of float kernels would take time from those of fixed-point kernels.
    """
    scored = class_output(artifact.program)
    _check_labels(artifact.program, scored, samples)
    if scored is None or samples.labels is None:
        return None
    correct = 0
    for part in samples.batches(batch):
        scores = run_float(artifact.program, artifact.floats, part.inputs, keep=[scored])[scored]
        if part.labels is not None:
            correct += int((_classes(scores) == part.labels).sum())
        if advance is not None:
            advance(len(part))
    return correct / len(samples)


def top_classes(scores: NDArray[np.float32], count: int) -> list[tuple[int, float]]:
    """The classes of the highest scores of one sample (C,), highest first; equal scores in the order of classes."""
    order = np.argsort(-scores, kind="stable")[:count]
    return [(int(index), float(scores[index])) for index in order]


def _classes(scores: NDArray[Any]) -> NDArray[np.int64]:
    """The class of each sample's highest score; of equal scores the first counts."""
    return np.asarray(scores.reshape(len(scores), -1).argmax(axis=1), np.int64)


def _check_labels(program: Program, output: str | None, samples: Samples) -> None:
    """Refuse labels that the output with the scores has no class for."""
    if samples.labels is None or output is None:
        return
    classes = next(call.spec.output.channels for call in program.calls if call.spec.name == output)
    highest = int(samples.labels[: len(samples)].max())
    if highest >= classes:
        raise user_error(
            "unknown-class",
            f'the data has labels that the network output "{output}" has no class for',
            found=f"label {highest}",
            expected=f"0 to {classes - 1}",
        )


def _flat(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """As float32, infinite past its range; a vector without height and width."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    return single[:, :, 0, 0] if single.shape[2:] == (1, 1) else single

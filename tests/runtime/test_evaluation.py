from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from binpoint.backends.float_reference import run_float
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.controllers import FixedController
from binpoint.runtime.data import ArraySource, Samples
from binpoint.runtime.evaluation import class_output, evaluate, float_accuracy, top_classes
from binpoint.runtime.execution import LayerExecutor
from binpoint.runtime.pixels import PixelConverter
from binpoint.runtime.session import Session
from binpoint.support.diagnostics import UserError
from tests.programs import artifact_of, branches, classifier, images_for

ARTIFACT = artifact_of(classifier())


def session_of(artifact: Artifact) -> Session:
    executor = LayerExecutor(OracleBackend(), artifact.program, artifact.mantissas)
    return Session(artifact, executor, FixedController(artifact.program, artifact.floats, {}))


def samples_of(artifact: Artifact, count: int, labels: list[int] | None = None) -> Samples:
    inputs = images_for(artifact.program, count)
    converters = {declared.name: PixelConverter(declared) for declared in artifact.program.inputs}
    sources = {name: ArraySource(values, converters[name]) for name, values in inputs.items()}
    return Samples(sources, None if labels is None else np.array(labels))


def test_accuracy_is_the_share_of_right_classes_also_of_a_smaller_last_batch() -> None:
    inputs = images_for(ARTIFACT.program, 7)
    session = session_of(ARTIFACT)
    session.run({"image": inputs["image"][:3]})
    classes = session.run(inputs).outputs["fc"].mantissas.reshape(7, 3).argmax(axis=1)
    floats = run_float(ARTIFACT.program, ARTIFACT.floats, inputs)["fc"].reshape(7, 3).argmax(axis=1)
    labels = classes.copy()
    labels[[0, 6]] = (labels[[0, 6]] + 1) % 3
    steps: list[int] = []
    samples = samples_of(ARTIFACT, 7, labels.tolist())
    evaluation = evaluate(ARTIFACT.program, session_of(ARTIFACT), samples, 3, advance=steps.append)
    assert (evaluation.samples, evaluation.correct, evaluation.accuracy) == (7, 5, 5 / 7)
    assert evaluation.images_per_second == 7 / evaluation.seconds
    assert float_accuracy(ARTIFACT, samples, 3, steps.append) == (floats == labels).mean()
    assert steps == [3, 3, 1] * 2
    assert evaluation.outputs == {}


def test_without_labels_there_is_no_accuracy() -> None:
    samples = samples_of(ARTIFACT, 4)
    assert evaluate(ARTIFACT.program, session_of(ARTIFACT), samples, 4).accuracy is None
    assert float_accuracy(ARTIFACT, samples, 4) is None


def test_outputs_are_kept_as_numbers() -> None:
    artifact = artifact_of(branches())
    evaluation = evaluate(artifact.program, session_of(artifact), samples_of(artifact, 5), 2, keep_outputs=True)
    assert {name: values.shape for name, values in evaluation.outputs.items()} == {"share": (5, 8), "sum": (5, 4, 5, 5)}
    session = session_of(artifact)
    session.run({"image": images_for(artifact.program, 5)["image"][:2]})
    expected = session.run(images_for(artifact.program, 5)).outputs["sum"].values
    np.testing.assert_array_equal(evaluation.outputs["sum"], expected.astype(np.float32))


def test_a_warm_up_changes_nothing() -> None:
    reports = []
    for warm_up in (False, True):
        session = session_of(ARTIFACT)
        evaluate(ARTIFACT.program, session, samples_of(ARTIFACT, 5), 2, warm_up=warm_up)
        reports.append(session.layers)
    assert reports[0] == reports[1]


def test_labels_must_be_classes_of_the_network() -> None:
    with pytest.raises(UserError, match="label 3"):
        evaluate(ARTIFACT.program, session_of(ARTIFACT), samples_of(ARTIFACT, 2, [0, 3]), 2)


def test_classes_are_scored_by_the_first_vector_that_leaves_the_network() -> None:
    assert class_output(classifier()) == "fc"
    assert class_output(branches()) == "share"
    assert class_output(replace(branches(), outputs=("sum",))) is None


def test_top_classes_are_ordered_by_score_then_number() -> None:
    assert top_classes(np.float32([1, 5, 3, 5]), 3) == [(1, 5), (3, 5), (2, 3)]

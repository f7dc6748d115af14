from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from binpoint.backends.oracle.backend import OracleBackend
from binpoint.compiler.trained import compile_trained
from binpoint.runtime.artifact import Artifact, read_artifact, write_artifact
from binpoint.runtime.controllers import FixedController
from binpoint.runtime.execution import LayerExecutor
from binpoint.runtime.manifest import Origin, Source
from binpoint.runtime.session import Session
from binpoint.runtime.training.fixed_point import FixedPointEngine
from binpoint.runtime.training.floating import FloatEngine
from binpoint.support.diagnostics import UserError
from tests.training_programs import (
    NORMALISED,
    PLAIN,
    TARGET,
    engine,
    first_parameters,
    network,
    running,
    samples,
    train,
    trainable,
)

STEPS = 24


def trained(text: str) -> FixedPointEngine:
    subject = engine(text)
    train(subject, STEPS)
    return subject


def artifact_of(subject: FixedPointEngine | FloatEngine, text: str) -> Artifact:
    return compile_trained(network(text), trainable(text), first_parameters(text), subject.trained(), TARGET, 4)


def test_a_statistic_past_float32_is_an_error() -> None:
    subject = engine(NORMALISED)
    found = subject.trained()
    name = next(name for name in found.running if name.endswith(".variance"))
    broken = replace(found, running={**found.running, name: np.full_like(found.running[name], 1e40)})
    with pytest.raises(UserError, match="diverged"):
        compile_trained(network(NORMALISED), trainable(NORMALISED), first_parameters(NORMALISED), broken, TARGET, 4)


def scores(artifact: Artifact) -> np.ndarray:
    """What the artifact gives for some images, as `binpoint run` would."""
    executor = LayerExecutor(OracleBackend(), artifact.program, artifact.mantissas)
    session = Session(artifact, executor, FixedController(artifact.program, artifact.floats, artifact.exponents))
    outputs = session.run(next(samples(20, 4).batches(20)).inputs).outputs
    return next(iter(outputs.values())).values.reshape(20, -1)


def test_without_batch_norm_the_artifact_gives_what_training_evaluates_to() -> None:
    subject = trained(PLAIN)
    expected = subject.scores(next(samples(20, 4).batches(20)).inputs)
    assert np.array_equal(scores(artifact_of(subject, PLAIN)), expected)
    assert np.count_nonzero(expected.argmax(axis=1) == samples(20, 4).labels) >= 19


def test_parameters_are_the_working_copies() -> None:
    subject = trained(PLAIN)
    artifact, snapshot = artifact_of(subject, PLAIN), subject.snapshot()
    for name in ("conv.weight", "conv.bias", "fc.weight", "fc.bias"):
        assert np.array_equal(artifact.mantissas[name], snapshot.arrays[name])
        assert artifact.exponents[name] == snapshot.document["stored"][name]


def test_results_keep_the_exponents_of_training() -> None:
    subject = trained(PLAIN)
    artifact = artifact_of(subject, PLAIN)
    for name in ("image", "conv", "fc"):
        assert artifact.exponents[name] == subject.exponents[name]


def test_batch_norm_is_folded_from_its_running_statistics() -> None:
    subject = trained(NORMALISED)
    artifact = artifact_of(subject, NORMALISED)
    assert [call.spec.name for call in artifact.program.calls if call.weight] == ["conv", "fc"]
    assert artifact.exponents["conv"] == subject.exponents["bn"]
    assert np.array_equal(artifact.mantissas["fc.weight"], subject.snapshot().arrays["fc.weight"])
    expected = subject.scores(next(samples(20, 4).batches(20)).inputs)
    assert np.abs(scores(artifact) - expected).max() < 0.1 * np.abs(expected).max()
    assert np.array_equal(scores(artifact).argmax(axis=1), expected.argmax(axis=1))


def test_a_float_training_leaves_exponents_to_the_float_trial() -> None:
    subject = FloatEngine(trainable(), first_parameters(), running())
    train(subject, STEPS)
    artifact = artifact_of(subject, PLAIN)
    assert artifact.exponents.keys() == artifact.mantissas.keys()
    labels = samples(20, 4).labels
    assert np.count_nonzero(scores(artifact).argmax(axis=1) == labels) >= 19


def test_trained_exponents_come_before_those_that_the_network_names() -> None:
    named = PLAIN.replace("numeric {", "numeric { exponents { conv = 3  fc.weight = 3 } ")
    subject = engine(named)
    train(subject, 2)
    assert subject.exponents["conv"] < 3
    artifact = artifact_of(subject, named)
    assert artifact.exponents["conv"] == subject.exponents["conv"]
    assert np.array_equal(scores(artifact), subject.scores(next(samples(20, 4).batches(20)).inputs))


@pytest.mark.parametrize("text", [PLAIN, NORMALISED], ids=["plain", "normalised"])
def test_the_artifact_can_be_written_and_read(text: str, tmp_path: object) -> None:
    artifact = artifact_of(trained(text), text)
    write_artifact(tmp_path / "a.bpz", artifact)
    found = read_artifact(tmp_path / "a.bpz")
    assert found.origin == Origin(Source.TRAINING)
    assert found.exponents == artifact.exponents
    assert np.array_equal(scores(found), scores(replace(artifact, ir="")))

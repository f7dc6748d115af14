from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from binpoint.backends.float_reference import run_float
from binpoint.backends.kernel import Draw, Events, KernelExponents, KernelResult
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.program import KernelCall
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.controllers import Controller, FixedController, StatisticsController
from binpoint.runtime.conversion import quantize
from binpoint.runtime.execution import LayerExecutor
from binpoint.runtime.exponents import decide
from binpoint.runtime.session import Session, first_images
from binpoint.scheduling.allocation import schedule_layer
from binpoint.scheduling.schedule import LayerSchedule, Schedule
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import Rounding, UpdatePolicy
from binpoint.support.target import RotationCount
from tests.programs import TARGET, artifact_of, branches, classifier, images_for


class Recorder(LayerExecutor):
    """The fast path, with a note of every call and of the feature maps alive."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(OracleBackend(), artifact.program, artifact.mantissas)
        self.exponents: dict[str, KernelExponents] = {}
        self.schedules: dict[str, LayerSchedule | None] = {}
        self.draws: list[Draw | None] = []

    def execute(
        self, call: KernelCall, inputs: Sequence[Any], exponents: KernelExponents, *rest: Any, **options: Any
    ) -> KernelResult:
        self.exponents[call.spec.name] = exponents
        self.schedules[call.spec.name], draw = rest
        self.draws.append(draw)
        return super().execute(call, inputs, exponents, *rest, **options)


def fixed(artifact: Artifact) -> FixedController:
    return FixedController(artifact.program, artifact.floats, artifact.exponents)


def moving(artifact: Artifact) -> StatisticsController:
    return StatisticsController(artifact.program, artifact.floats, artifact.exponents, artifact.target)


def open_session(artifact: Artifact, controller: Controller | None = None, **options: Any) -> tuple[Session, Recorder]:
    executor = Recorder(artifact)
    return Session(artifact, executor, controller or fixed(artifact), **options), executor


def test_outputs_come_close_to_the_float_network() -> None:
    for program in (classifier(bits=16), branches()):
        artifact = artifact_of(program)
        inputs = images_for(program, 5)
        session, _ = open_session(artifact)
        outputs = session.run(inputs).outputs
        floats = run_float(program, artifact.floats, inputs)
        assert list(outputs) == list(program.outputs)
        for name, output in outputs.items():
            assert np.abs(output.values - floats[name]).max() < 0.05 * np.abs(floats[name]).max()


def test_kernels_get_the_exponents_of_what_they_read() -> None:
    artifact = artifact_of(classifier(), exponents={"image": -6, "conv": -4, "fc": -3})
    session, executor = open_session(artifact)
    result = session.run(images_for(artifact.program, 2))
    weight, bias = artifact.exponents["fc.weight"], artifact.exponents["fc.bias"]
    assert executor.exponents["conv"].inputs == (-6,)
    assert executor.exponents["fc"] == KernelExponents((-4,), -3, weight, bias)
    assert result.exponents == {"image": -6, "conv": -4, "pool": -4, "flat": -4, "fc": -3}
    assert result.outputs["fc"].exponent == -3


def test_a_batch_gives_what_its_images_give_alone() -> None:
    artifact = artifact_of(branches())
    inputs = images_for(artifact.program, 5)
    session, _ = open_session(artifact)
    whole = session.run(inputs).outputs["share"].mantissas
    single = [session.run({"image": inputs["image"][n : n + 1]}).outputs["share"].mantissas for n in range(5)]
    np.testing.assert_array_equal(np.concatenate(single), whole)


def test_samples_are_those_of_the_targets_statistics_pes() -> None:
    artifact = artifact_of(classifier())
    session, executor = open_session(artifact)
    session.run(images_for(artifact.program, 5))
    conv, pool, flat, fc = session.layers
    assert executor.schedules["conv"] == schedule_layer("conv", 5, 5, TARGET)
    assert executor.schedules["flat"] is None
    assert conv.record is not None
    assert conv.record.samples == int(schedule_layer("conv", 5, 5, TARGET).sample_mask().sum()) * 36
    assert fc.record is not None
    assert pool.record is flat.record is None


def test_statistics_can_be_left_away() -> None:
    for artifact, statistics in (
        (artifact_of(classifier()), False),
        (artifact_of(classifier(), replace(TARGET, statistics_pes=())), True),
    ):
        session, _ = open_session(artifact, statistics=statistics)
        session.run(images_for(artifact.program, 2))
        assert all(report.record is None for report in session.layers)
        assert session.layers[0].events.results == 2 * 5 * 36
    with pytest.raises(ValueError, match="needs statistics"):
        open_session(artifact_of(classifier()), moving(artifact_of(classifier())), statistics=False)


def test_reports_add_up_over_batches() -> None:
    artifact = artifact_of(classifier(), exponents={"image": -7, "conv": -9, "fc": -9})
    inputs = images_for(artifact.program, 6)
    session, _ = open_session(artifact)
    assert session.inputs == session.layers == ()
    reports = []
    for start in (0, 4):
        fresh, _ = open_session(artifact)
        part = {"image": inputs["image"][start : start + 4]}
        session.run(part)
        fresh.run(part)
        reports.append(fresh.layers[0])
    assert session.layers[0].events == reports[0].events.merge(reports[1].events)
    assert session.layers[0].events.saturated > 0
    assert reports[0].record is not None
    assert reports[1].record is not None
    assert session.layers[0].record == reports[0].record.merge(reports[1].record)
    expected = quantize(inputs["image"], -7, 8)[1]
    assert expected.saturated > 0
    assert session.inputs[0].events == expected


def test_statistics_move_exponents_one_batch_late() -> None:
    artifact = artifact_of(classifier(), exponents={"image": 0, "conv": 0, "fc": 0})
    session, _ = open_session(artifact, moving(artifact))
    inputs = images_for(artifact.program, 4)
    first = session.run(inputs)
    assert (first.exponents["image"], first.exponents["conv"], first.exponents["fc"]) == (0, 0, 0)
    record = session.layers[0].record
    assert record is not None
    second = session.run(inputs)
    assert second.exponents["conv"] == decide(UpdatePolicy(), record, 8, 0) < 0
    assert second.exponents["pool"] == second.exponents["conv"]
    assert second.exponents["image"] < 0
    assert session.layers[0].exponent == second.exponents["conv"]
    assert session.layers[0].exponent_changes == 1


def test_evaluation_moves_nothing() -> None:
    artifact = artifact_of(classifier(), exponents={"image": 0, "conv": 0, "fc": 0})
    session, _ = open_session(artifact, moving(artifact))
    inputs = images_for(artifact.program, 4)
    before = session.run(inputs, observe=False).exponents
    assert session.run(inputs).exponents == before
    assert session.run(inputs).exponents != before


def test_every_batch_is_a_step_of_stochastic_rounding() -> None:
    artifact = artifact_of(classifier(Rounding.STOCHASTIC))
    session, executor = open_session(artifact, seed=9)
    inputs = images_for(artifact.program, 2)
    first, second = session.run(inputs), session.run(inputs)
    assert [draw for draw in executor.draws if draw] == [Draw(9, 0, 0), Draw(9, 3, 0), Draw(9, 0, 1), Draw(9, 3, 1)]
    again = open_session(artifact, seed=9)[0].run(inputs)
    np.testing.assert_array_equal(first.outputs["fc"].mantissas, again.outputs["fc"].mantissas)
    assert (first.outputs["fc"].mantissas != second.outputs["fc"].mantissas).any()


def test_feature_maps_live_until_their_last_reader() -> None:
    artifact = artifact_of(branches())
    alive: list[set[str]] = []

    class Spy(Session):
        def _release(self, index: int, call: KernelCall, tensors: dict[str, Any]) -> None:
            super()._release(index, call, tensors)
            alive.append(set(tensors))

    Spy(artifact, Recorder(artifact), fixed(artifact)).run(images_for(artifact.program, 1))
    assert alive == [
        {"image", "left"},
        {"left", "right"},
        {"left", "sum"},
        {"sum", "join"},
        {"sum", "mean"},
        {"sum", "share"},
    ]


def edited(images: int) -> Schedule:
    """conv with the first two PEs of the target exchanged, everything else as allocated."""
    layer = schedule_layer("conv", images, 5, TARGET)
    pe = np.where(layer.pe == 0, 1, np.where(layer.pe == 1, 0, layer.pe)).astype(np.int32)
    return Schedule("classifier", TARGET.name, images, (replace(layer, pe=pe, sampled=TARGET.statistics_mask[pe]),))


def test_an_edited_schedule_is_obeyed_also_by_smaller_batches() -> None:
    artifact = replace(artifact_of(classifier()), schedule=edited(6))
    session, executor = open_session(artifact)
    for count in (6, 3):
        session.run(images_for(artifact.program, count))
        schedule = executor.schedules["conv"]
        assert schedule is not None
        assert schedule == first_images(edited(6).layers[0], count)
        np.testing.assert_array_equal(schedule.sample_mask(), edited(6).layers[0].sample_mask()[:count])
        assert executor.schedules["fc"] == schedule_layer("fc", count, 3, TARGET)
    with pytest.raises(UserError, match="--batch 6"):
        session.run(images_for(artifact.program, 7))


def test_rotation_goes_on_from_batch_to_batch() -> None:
    allocation = replace(TARGET.allocation, rotation=RotationCount.CONTINUOUS)
    artifact = replace(artifact_of(classifier()), target=replace(TARGET, allocation=allocation))
    session, executor = open_session(artifact)
    for number in range(5):
        session.run(images_for(artifact.program, 4))
        for name, channels in (("conv", 5), ("fc", 3)):
            assert executor.schedules[name] == schedule_layer(name, 4, channels, artifact.target, number)


def test_first_images_cut_whole_tiles() -> None:
    schedule = schedule_layer("conv", 7, 5, replace(TARGET, tile=(3, 2)))
    part = first_images(schedule, 4)
    part_images = part.tiling.pairs_of((1, 0))[0]
    assert part.pe.shape == (2, 3)
    assert part_images == range(3, 4)


def test_an_events_total_counts_all_results() -> None:
    artifact = artifact_of(branches())
    session, _ = open_session(artifact)
    session.run(images_for(artifact.program, 3))
    sizes = {call.spec.name: 3 * np.prod(call.spec.output.shape) for call in artifact.program.calls}
    assert {report.name: report.events.results for report in session.layers} == sizes
    assert all(report.events != Events(0) for report in session.layers)

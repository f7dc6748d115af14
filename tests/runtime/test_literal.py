from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from binpoint.backends.kernel import EMPTY_RECORD, StatisticsRecord
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.program import Program
from binpoint.runtime.artifact import Artifact
from binpoint.runtime.controllers import FixedController
from binpoint.runtime.execution import Executor, LayerExecutor
from binpoint.runtime.literal import LiteralExecutor, StatisticsPe, steps
from binpoint.runtime.session import BatchResult, Session
from binpoint.scheduling.allocation import schedule_layer
from binpoint.support.numeric import Rounding
from binpoint.support.target import Allocation, RotationCount, Strategy
from tests.programs import TARGET, artifact_of, branches, classifier, images_for

ALLOCATIONS = (
    Allocation(Strategy.ROTATED),
    Allocation(Strategy.ROTATED, shift=2, rotation=RotationCount.ROUND),
    Allocation(Strategy.MECHANICAL, 2, 2),
    Allocation(Strategy.THINNED_ROTATED, 2, 2),
)


def run(artifact: Artifact, executor: Executor, count: int) -> tuple[Session, BatchResult]:
    controller = FixedController(artifact.program, artifact.floats, {})
    session = Session(artifact, executor, controller, seed=5)
    return session, session.run(images_for(artifact.program, count))


def assert_literal_is_fast(artifact: Artifact, count: int) -> LiteralExecutor:
    backend = OracleBackend()
    literal = LiteralExecutor(backend, artifact.program, artifact.mantissas, artifact.target.tile)
    by_tile, tile_result = run(artifact, literal, count)
    by_layer, layer_result = run(artifact, LayerExecutor(backend, artifact.program, artifact.mantissas), count)
    for name, output in layer_result.outputs.items():
        np.testing.assert_array_equal(tile_result.outputs[name].mantissas, output.mantissas)
    assert by_tile.layers == by_layer.layers
    assert any(report.record and report.record.samples for report in by_tile.layers)
    return literal


@pytest.mark.parametrize("allocation", ALLOCATIONS, ids=lambda each: f"{each.strategy}-{each.rotation}")
@pytest.mark.parametrize("tile", [(1, 1), (2, 3), (3, 2), (16, 64)], ids=str)
def test_outputs_and_statistics_equal_the_fast_path(allocation: Allocation, tile: tuple[int, int]) -> None:
    target = replace(TARGET, allocation=allocation, tile=tile)
    assert_literal_is_fast(artifact_of(classifier(), target), 5)


@pytest.mark.parametrize("program", [branches(), branches(Rounding.STOCHASTIC), classifier(Rounding.STOCHASTIC, 16)])
@pytest.mark.parametrize("count", [1, 3])
def test_so_do_all_operations_and_roundings(program: Program, count: int) -> None:
    target = replace(TARGET, pes=5, grid=(1, 5), statistics_pes=(0, 1, 4), tile=(2, 1))
    assert_literal_is_fast(artifact_of(program, target), count)


def test_each_statistics_pe_keeps_its_own_record_until_the_next_layer() -> None:
    target = replace(TARGET, statistics_pes=(1, 6))
    literal = assert_literal_is_fast(artifact_of(classifier(), target), 5)
    assert sorted(literal.pes) == [1, 6]
    schedule = schedule_layer("fc", 5, 3, target)
    for number, pe in literal.pes.items():
        assert pe.read().samples == int((schedule.pe == number).sum())


def test_steps_go_round_by_round_and_pe_by_pe() -> None:
    target = replace(TARGET, tile=(2, 2))
    schedule = schedule_layer("conv", 9, 7, target)
    places = [(step.round, step.pe) for step in steps(schedule)]
    assert places == sorted(set(places))
    computed = np.zeros((9, 7), int)
    for step in steps(schedule):
        tile = step.tile
        images = slice(tile.first_image, tile.first_image + tile.images)
        computed[images, tile.first_channel : tile.first_channel + tile.channels] += 1
        assert step.sampled == (step.pe in target.statistics_pes)
    assert (computed == 1).all()


def test_a_statistics_pe_accumulates_from_a_clear_command_until_it_is_read() -> None:
    pe = StatisticsPe()
    record = StatisticsRecord({2: 1}, {0: 1}, 1, 2)
    pe.acquire(record)
    pe.acquire(record)
    assert pe.read() == record.merge(record)
    pe.clear()
    assert pe.read() == EMPTY_RECORD

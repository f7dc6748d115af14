"""The recorded messages of a whole training: their order is that of JP7367595B2 figs. 9 and 10."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import groupby

import pytest

from binpoint.runtime.training.accelerator import Acquisition
from binpoint.runtime.training.trace import Trace
from binpoint.support.target import Allocator, Target
from tests.training_programs import NORMALISED, TARGET, engine, machine, samples, train

DERIVED = replace(TARGET, allocator=Allocator.CONTROLLER)


def traced(text: str, target: Target, acquisition: Acquisition = Acquisition.CIRCUITS) -> list[dict]:
    """The messages of two mini-batches and an evaluation."""
    stream = io.StringIO()
    trained = engine(text, machine(target, acquisition=acquisition, trace=Trace(stream)))
    train(trained, 2)
    trained.scores(samples().take(range(3)).inputs)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


BASIC_LINES = traced(NORMALISED, TARGET)
DERIVED_LINES = traced(NORMALISED, DERIVED)


def of_step(lines: list[dict], step: int) -> list[dict]:
    return [line for line in lines if line["step"] == step and line["stage"] != "evaluation"]


@pytest.mark.parametrize("lines", [BASIC_LINES, DERIVED_LINES], ids=["basic", "derived"])
def test_a_mini_batch_goes_from_s3_to_s11(lines: list[dict]) -> None:
    assert {line["stage"] for line in lines if line["step"] == 0} == {"S1", "S2"}
    for step in (1, 2):
        stages = [line["stage"] for line in of_step(lines, step)]
        pairs = {"S5": "S4", "S7": "S6", "S9": "S8", "S11": "S10"}
        phases = [pairs.get(stage, stage) for stage in stages]
        assert [phase for phase, _ in groupby(phases)] == ["S3", "S4", "S6", "S8", "S10"]


@pytest.mark.parametrize("stage", ["S5", "S7", "S9"])
def test_the_accelerator_does_each_thing_that_the_host_calls(stage: str) -> None:
    calls = {"S5": "S4", "S7": "S6", "S9": "S8"}
    lines = of_step(BASIC_LINES, 1)
    called = [line["layer"] for line in lines if line["stage"] == calls[stage] and line["kind"].startswith("call")]
    assert called == [line["layer"] for line in lines if line["stage"] == stage and line["kind"] == "finished"]
    assert called


def exchanges(lines: list[dict], layer: str) -> list[tuple[str | None, str, str, str]]:
    return [
        (line["call"], line["from"], line["to"], line["kind"])
        for line in of_step(lines, 1)
        if line["layer"] == layer and line["stage"] in ("S4", "S5")
    ]


def test_in_the_basic_form_the_host_allocates() -> None:
    assert exchanges(BASIC_LINES, "conv") == [
        ("S21", "host", "host", "allocate"),
        ("S22", "host", "accelerator", "call-kernel"),
        ("S23", "accelerator", "accelerator", "execute"),
        (None, "accelerator", "host", "finished"),
    ]


def test_in_the_derived_form_the_controller_allocates() -> None:
    assert exchanges(DERIVED_LINES, "conv") == [
        ("S26", "host", "controller", "call-kernel"),
        ("S27", "controller", "controller", "allocate"),
        ("S28", "controller", "pes", "call-pes"),
        ("S29", "pes", "pes", "execute"),
        ("S30", "pes", "controller", "done"),
        (None, "controller", "host", "finished"),
    ]


def test_the_derived_form_spares_the_link_the_allocation() -> None:
    def call_bytes(lines: list[dict]) -> int:
        return next(line["bytes"] for line in of_step(lines, 1) if line["layer"] == "conv" and line["call"] in CALLS)

    assert call_bytes(BASIC_LINES) - call_bytes(DERIVED_LINES) == 8 * 4 * 8  # 8 images, 4 channels, PE and round


CALLS = ("S22", "S26")


def test_batch_norm_goes_through_the_host() -> None:
    kinds = [(line["kind"], line["layer"]) for line in of_step(BASIC_LINES, 1) if line["stage"] in ("S4", "S5")]
    places = [kinds.index(each) for each in [("call-sums", "bn.sums"), ("write", "bn.scale"), ("call-kernel", "bn")]]
    assert places == sorted(places)


def test_evaluation_asks_for_no_statistics() -> None:
    kinds = {line["kind"] for line in BASIC_LINES if line["stage"] == "evaluation"}
    assert {"call-kernel", "write", "read", "data"} <= kinds
    assert not kinds & {"read-statistics", "set-exponents", "call-update", "call-sums"}


def test_circuits_are_read_from_the_pes_and_instructions_leave_tables_in_the_dram() -> None:
    by_instructions = traced(NORMALISED, TARGET, Acquisition.INSTRUCTIONS)
    for lines, source in ((BASIC_LINES, "pes"), (by_instructions, "dram")):
        assert {line["from"] for line in lines if line["kind"] == "collect-statistics"} == {source}
    assert [line["bytes"] for line in by_instructions] == [line["bytes"] for line in BASIC_LINES]


def test_without_a_stream_nothing_is_recorded() -> None:
    train(engine(on=machine(trace=Trace(None))), 1)

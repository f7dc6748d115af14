from __future__ import annotations

import io
import json

import pytest

from binpoint.runtime.training.journal import Journal, LoggedDecisions
from tests.training_programs import RATE, engine, train, trainable

COUNTED = {"conv", "fc"}


@pytest.fixture(scope="module")
def mini_batches() -> list:
    return train(engine(), 2)


def lines(mini_batches: list, decisions: LoggedDecisions = LoggedDecisions.ALL) -> list[dict]:
    stream = io.StringIO()
    journal = Journal(stream, trainable().formats, COUNTED, decisions)
    journal.start({"network": "plain"}, {"conv": -3})
    for number, batch in enumerate(mini_batches, 1):
        journal.step(number, 1, batch, RATE, 12.34)
    journal.epoch({"epoch": 1})
    journal.end({"reason": "epochs"})
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_events_come_in_order(mini_batches: list) -> None:
    events = [line["event"] for line in lines(mini_batches)]
    assert list(dict.fromkeys(events)) == ["start", "first-exponents", "decision", "step", "epoch", "end"]
    assert events.count("step") == 2


def test_every_decision_has_a_line(mini_batches: list) -> None:
    found = [line for line in lines(mini_batches) if line["event"] == "decision"]
    assert len(found) == sum(len(batch.decisions) for batch in mini_batches)
    conv = next(line for line in found if line["tensor"] == "conv")
    decision = mini_batches[0].decisions["conv"]
    assert (conv["step"], conv["class"], conv["rule"]) == (1, "activations", decision.rule)
    assert (conv["old"], conv["new"], conv["samples"]) == (decision.old, decision.new, decision.samples)
    assert conv["rate"] == decision.rate


def test_kept_exponents_can_be_left_out(mini_batches: list) -> None:
    found = [line for line in lines(mini_batches, LoggedDecisions.CHANGES) if line["event"] == "decision"]
    assert len(found) == sum(batch.exponent_changes for batch in mini_batches)
    assert all(line["old"] != line["new"] for line in found)


def test_a_step_has_its_loss_accuracy_and_saturation(mini_batches: list) -> None:
    batch = mini_batches[1]
    step = [line for line in lines(mini_batches) if line["event"] == "step"][1]
    assert (step["step"], step["epoch"], step["loss"]) == (2, 1, batch.loss)
    assert step["accuracy"] == batch.correct / batch.images
    assert step["learning_rate"] == str(RATE)
    assert step["images_per_second"] == 12.3
    saturated = sum(batch.events[name].saturated for name in COUNTED)
    assert step["saturation"] == saturated / (8 * 4 * 36 + 8 * 3)
    assert step["saturated"] == {name: each.saturated for name, each in batch.events.items() if each.saturated}
    assert step["exponent_changes"] == batch.exponent_changes


def test_without_a_stream_nothing_is_written(mini_batches: list) -> None:
    journal = Journal(None, trainable().formats, COUNTED)
    journal.start({}, {})
    journal.step(1, 1, mini_batches[0], RATE, 1.0)

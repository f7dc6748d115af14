from __future__ import annotations

import json

from binpoint.backends.kernel import StatisticsRecord
from binpoint.backends.training_program import TensorFormat
from binpoint.runtime.training.exponent_table import ExponentTable
from binpoint.support.numeric import ExponentRule, TensorClass, TensorPolicy, UpdatePolicy

FORMATS = {
    "fixed": TensorFormat(TensorClass.ACTIVATIONS, 8, TensorPolicy(UpdatePolicy(ExponentRule.FIXED))),
    "max": TensorFormat(TensorClass.ACTIVATIONS, 8, TensorPolicy(UpdatePolicy(ExponentRule.MSB_MAX))),
    "late": TensorFormat(TensorClass.GRADIENTS, 16, TensorPolicy(UpdatePolicy(ExponentRule.MSB_MAX, period=3))),
}


def table() -> ExponentTable:
    return ExponentTable.start(FORMATS, {"fixed": 1, "max": 2, "late": 3})


def record(top: int) -> StatisticsRecord:
    return StatisticsRecord({top: 5}, {top: 5}, 0, 5)


def test_it_starts_with_the_given_exponents() -> None:
    assert {name: table()[name] for name in table()} == {"fixed": 1, "max": 2, "late": 3}


def test_only_rules_that_use_statistics_follow_them() -> None:
    assert [table().follows(name) for name in ("fixed", "max", "late", "nothing")] == [False, True, True, False]


def test_a_decision_holds_from_then_on() -> None:
    exponents = table()
    decisions = exponents.follow({"max": record(10)})
    assert list(decisions) == ["max"]
    assert (decisions["max"].old, decisions["max"].new) == (2, 10 - 6)
    assert exponents["max"] == 4
    assert exponents["fixed"] == 1


def test_a_period_merges_the_records_of_its_mini_batches() -> None:
    exponents = table()
    assert "late" not in exponents.follow({"late": record(20)})
    assert "late" not in exponents.follow({"late": record(5)})
    decision = exponents.follow({"late": record(7)})["late"]
    assert (decision.samples, exponents["late"]) == (15, 20 - 14)


def test_without_a_record_the_exponent_stays() -> None:
    exponents = table()
    assert exponents.follow({})["max"].new == 2


def test_a_state_goes_through_json_and_goes_on_alike() -> None:
    exponents = table()
    exponents.follow({"late": record(20), "max": record(3)})
    other = ExponentTable.restore(FORMATS, json.loads(json.dumps(exponents.state())))
    records = [{"late": record(1), "max": record(4)}, {"late": record(2)}, {}]
    assert [exponents.follow(each) for each in records] == [other.follow(each) for each in records]
    assert other["late"] == 20 - 14

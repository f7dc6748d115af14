from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from binpoint.backends.kernel import Events, StatisticsRecord
from binpoint.backends.program import Program, TensorPolicy
from binpoint.runtime.calibration import movable_tensors, trial_exponent, trial_records
from binpoint.runtime.controllers import FixedController, Observation, StatisticsController
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import ExponentRule, UpdatePolicy
from binpoint.support.target import Target
from tests.programs import TARGET, artifact_of, classifier, images_for, with_policies

NAMES = ("image", "conv", "fc")
ALL_GIVEN = dict.fromkeys(NAMES, 0)


def trial(program: Program) -> dict[str, int]:
    records = trial_records(program, artifact_of(program).floats, images_for(program, 4))
    return {tensor.name: trial_exponent(tensor, records[tensor.name]) for tensor in movable_tensors(program)}


def fixed(program: Program, known: dict[str, int] | None = None) -> FixedController:
    return FixedController(program, artifact_of(program).floats, known or {})


def statistics(program: Program, target: Target = TARGET) -> StatisticsController:
    return StatisticsController(program, artifact_of(program).floats, ALL_GIVEN, target)


def observed(top: int, count: int = 100) -> dict[str, Observation]:
    """A batch in which every value of every tensor has its highest bit at `top`."""
    record = StatisticsRecord({top: count}, {top: count}, 0, count)
    return dict.fromkeys(NAMES, Observation(Events(count), record))


def test_the_first_batch_calibrates_what_nobody_gave() -> None:
    program = classifier()
    controller = fixed(program)
    first = controller.exponents(images_for(program, 4))
    assert first == trial(program)
    tiny = {"image": images_for(program, 4)["image"] / 1024}
    assert controller.exponents(tiny) == first


def test_the_artifact_comes_before_the_network_and_the_network_before_the_trial() -> None:
    program = with_policies(classifier(), {"conv": TensorPolicy(initial=9), "fc": TensorPolicy(initial=9)})
    exponents = fixed(program, {"fc": 4}).exponents(images_for(program, 4))
    assert exponents == {"image": trial(program)["image"], "conv": 9, "fc": 4}


def test_exponents_are_moved_into_their_range_and_counted() -> None:
    policies = {"conv": TensorPolicy(exponent_range=(2, 6)), "fc": TensorPolicy(exponent_range=(-3, 3))}
    program = with_policies(classifier(), policies)
    controller = fixed(program, {"fc": 5})
    assert trial(program)["conv"] < 2
    exponents = controller.exponents(images_for(program, 4))
    assert (exponents["conv"], exponents["fc"]) == (2, 3)
    assert {name: count for name, count in controller.clamps.items() if count} == {"conv": 1, "fc": 1}


def test_fixed_exponents_learn_nothing() -> None:
    program = classifier()
    controller = fixed(program, ALL_GIVEN)
    controller.observe(observed(20))
    assert controller.exponents({}) == ALL_GIVEN


def test_statistics_of_one_batch_decide_the_next() -> None:
    program = classifier()
    controller = statistics(program)
    assert controller.exponents({}) == ALL_GIVEN
    for top in (20, 3):
        controller.observe(observed(top))
        assert controller.exponents({}) == dict.fromkeys(NAMES, top - 6)


def test_records_of_a_period_are_merged() -> None:
    # 3 of 202 values above position 2: within a tolerance of 1/50 of both batches, not of the second one alone.
    update = UpdatePolicy(ExponentRule.MSB_HISTOGRAM, Fraction(1, 50), period=2)
    program = with_policies(classifier(), {"conv": TensorPolicy(update)})
    controller = statistics(program)
    controller.observe(observed(2, 199))
    assert controller.exponents({}) == {"image": -4, "conv": 0, "fc": -4}
    controller.observe(observed(9, 3))
    assert controller.exponents({}) == {"image": 3, "conv": -4, "fc": 3}
    controller.observe(observed(9, 3))
    controller.observe(observed(9, 3))
    assert controller.exponents({})["conv"] == 3


def test_nothing_sampled_keeps_the_exponent() -> None:
    controller = statistics(classifier())
    controller.observe(dict.fromkeys(NAMES, Observation(Events(7), None)))
    assert controller.exponents({}) == ALL_GIVEN


def test_moved_exponents_are_clamped_and_counted_too() -> None:
    program = with_policies(classifier(), {"fc": TensorPolicy(exponent_range=(-1, 1))})
    controller = statistics(program)
    for _ in range(2):
        controller.observe(observed(20))
    assert controller.exponents({})["fc"] == 1
    assert controller.clamps["fc"] == 2


@pytest.mark.parametrize(
    ("rule", "acquires", "fits"),
    [
        (ExponentRule.MSB_HISTOGRAM, ("msb",), True),
        (ExponentRule.LSB_MIN, ("lsb",), True),
        (ExponentRule.MSB_MAX, ("lsb",), False),
        (ExponentRule.MSB_LSB, ("msb",), False),
        (ExponentRule.FIXED, ("lsb",), True),
    ],
)
def test_rules_need_what_the_target_acquires(rule: ExponentRule, acquires: tuple[str, ...], fits: bool) -> None:
    program = with_policies(classifier(), dict.fromkeys(NAMES, TensorPolicy(UpdatePolicy(rule))))
    target = replace(TARGET, acquires=acquires)
    if fits:
        assert statistics(program, target).exponents({}) == ALL_GIVEN
    else:
        with pytest.raises(UserError, match=f'the rule "{rule.replace("+", "[+]")}" needs'):
            statistics(program, target)


def test_a_target_without_statistics_pes_cannot_move_exponents() -> None:
    with pytest.raises(UserError, match="no statistics PEs"):
        statistics(classifier(), replace(TARGET, statistics_pes=()))

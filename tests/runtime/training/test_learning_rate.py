from __future__ import annotations

from fractions import Fraction

import pytest

from binpoint.runtime.training.learning_rate import RateSchedule, ScheduleKind, parse_schedule
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import FixedConstant

START = Fraction(1, 20)


def rates(text: str, steps: int = 8, steps_per_epoch: int = 2) -> list[float]:
    schedule = parse_schedule(text)
    constants = [schedule.rate(START, step, steps_per_epoch, steps) for step in range(steps)]
    return [constant.multiplier / 2**constant.fraction_bits for constant in constants]


def test_a_rate_is_an_exact_constant_of_16_bits() -> None:
    rate = RateSchedule().rate(START, 0, 1, 1)
    assert rate == FixedConstant(52429, 20)  # 0.05 = 52428.8 * 2^-20
    assert rate.multiplier.bit_length() == 16


def test_constant_stays() -> None:
    assert len(set(rates("constant"))) == 1


def test_step_falls_every_so_many_epochs() -> None:
    assert rates("step:2:1/4") == pytest.approx([0.05] * 4 + [0.0125] * 4, rel=1e-4)


def test_linear_falls_along_a_line_that_ends_at_0() -> None:
    assert rates("linear") == pytest.approx([0.05 * (8 - step) / 8 for step in range(8)], rel=1e-4)


def test_cosine_starts_at_the_rate_and_is_half_in_the_middle() -> None:
    found = rates("cosine")
    assert found[0] == pytest.approx(0.05, rel=1e-4)
    assert found[4] == pytest.approx(0.025, rel=1e-4)
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("text", ["constant", "linear", "cosine", "step:3:1/10"])
def test_a_schedule_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_schedule(text)) == text


def test_only_schedules_that_end_at_the_end_depend_on_it() -> None:
    assert [RateSchedule(kind).needs_end for kind in ScheduleKind] == [False, False, True, True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cosin",
        "step",
        "step:2",
        "step:0:0.5",
        "step:1:2",
        "step:1:0",
        "step:1:1/0",
        "step:x:0.1",
        "linear:2",
        "step:1:1e-99999999",
    ],
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="bad-schedule"):
        parse_schedule(text)


def test_a_close_name_is_suggested() -> None:
    with pytest.raises(UserError, match='did you mean "cosine"'):
        parse_schedule("cosin")

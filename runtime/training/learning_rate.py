"""Learning rates: a start and a schedule, each rate an exact fixed-point number of 16 bits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import cos, pi

from binpoint.support.diagnostics import did_you_mean, user_error
from binpoint.support.number_text import parse_number
from binpoint.support.numeric import FixedConstant, fixed_constant

RATE_BITS = 16
"""Width of the multiplier of a learning rate."""


class ScheduleKind(StrEnum):
    """How the rate falls."""

    CONSTANT = "constant"
    STEP = "step"
    LINEAR = "linear"
    COSINE = "cosine"


@dataclass(frozen=True)
class RateSchedule:
    """How the rate moves from its start.

    constant: not at all. step: times `factor` every `epochs` epochs. linear and cosine: to 0 at the end of training,
    along a line or half a cosine (I. Loshchilov, F. Hutter, "SGDR", ICLR 2017, eq. 5 without restarts).
    """

    kind: ScheduleKind = ScheduleKind.CONSTANT
    epochs: int = 1
    factor: Fraction = Fraction(1, 10)

    def __str__(self) -> str:
        """As the command line writes it."""
        return f"{self.kind}:{self.epochs}:{self.factor}" if self.kind is ScheduleKind.STEP else str(self.kind)

    @property
    def needs_end(self) -> bool:
        """Whether the rate depends on when training ends."""
        return self.kind in (ScheduleKind.LINEAR, ScheduleKind.COSINE)

    def rate(self, start: Fraction, step: int, steps_per_epoch: int, last_step: int) -> FixedConstant:
        """The rate of one mini-batch.

        Args:
            start: the rate of the first mini-batch.
            step: the mini-batch, from 0.
            steps_per_epoch: mini-batches of an epoch.
            last_step: mini-batches of the whole training.
        """
        return fixed_constant(start * self._share(step, steps_per_epoch, last_step), RATE_BITS)

    def _share(self, step: int, steps_per_epoch: int, last_step: int) -> Fraction:
        match self.kind:
            case ScheduleKind.CONSTANT:
                return Fraction(1)
            case ScheduleKind.STEP:
                return self.factor ** (step // steps_per_epoch // self.epochs)
            case ScheduleKind.LINEAR:
                return 1 - Fraction(step, last_step)
            case ScheduleKind.COSINE:
                return Fraction((1 + cos(pi * step / last_step)) / 2)


def parse_schedule(text: str) -> RateSchedule:
    """`constant`, `linear`, `cosine` or `step:EPOCHS:FACTOR`, such as step:2:1/10. Raises UserError."""
    name, *numbers = text.split(":")
    kinds = [kind.value for kind in ScheduleKind]
    if name not in kinds:
        raise _fault(text, did_you_mean(name, kinds))
    kind = ScheduleKind(name)
    if kind is not ScheduleKind.STEP:
        if numbers:
            raise _fault(text, f"{kind} has no numbers")
        return RateSchedule(kind)
    try:
        epochs, factor = numbers
        schedule = RateSchedule(kind, int(epochs), parse_number(factor))
    except ValueError:
        raise _fault(text, "step:2:0.1 makes the rate a tenth every 2 epochs") from None
    if schedule.epochs < 1 or not 0 < schedule.factor <= 1:
        raise _fault(text, "at least 1 epoch, and a factor above 0, at most 1")
    return schedule


def _fault(text: str, hint: str | None) -> Exception:
    return user_error(
        "bad-schedule",
        "this is no schedule of the learning rate",
        found=text,
        expected="constant, linear, cosine or step:EPOCHS:FACTOR",
        hint=hint,
    )

"""The parts of a mini-batch of training."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The parts of a mini-batch (JP7367595B2 fig. 9): S4/S5, the loss, S6/S7, S8/S9."""

    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    UPDATE = "update"

from __future__ import annotations

import numpy as np
import pytest

from binpoint.backends.kernel import Draw, Events, StatisticsRecord
from binpoint.runtime.training.allocation import PeAllocator
from binpoint.runtime.training.areas import Area
from binpoint.runtime.training.messages import (
    CallKernel,
    CallSums,
    CallUpdate,
    Data,
    Finished,
    LoadProgram,
    Read,
    ReadStatistics,
    ReserveArea,
    SetExponents,
    Statistics,
    Write,
)
from binpoint.support.numeric import FixedConstant
from tests.training_programs import TARGET, trainable

ALLOCATION = PeAllocator(TARGET).allocate("conv", 3, 4, 0)
CONV = trainable().steps[0]
RECORD = StatisticsRecord({1: 2, 3: 4}, {0: 6}, 0, 6)


@pytest.mark.parametrize(
    ("message", "payload_bytes"),
    [
        (ReserveArea(Area("x", 0, 64, None)), 16),
        (LoadProgram("conv", CONV.call.spec), None),
        (Write(0, np.zeros((2, 3), np.int16), -1), 8 + 2 + 12),
        (SetExponents({0: 1, 64: 2}), 2 * 10),
        (CallKernel("conv", (0,), 64, 128, None, None, 0, True), 4 * 8),
        (CallKernel("conv", (0,), 64, 128, 192, None, 0, True), 5 * 8),
        (CallKernel("conv", (0,), 64, 128, 192, ALLOCATION, 0, True), 5 * 8 + 3 * 4 * 8),
        (CallKernel("conv", (0, 1), 64, None, None, None, 0, True, Draw(0, 0, 0), (0, 1)), 4 * 8 + 24 + 4),
        (CallSums("sums", (0, 64), 128), 3 * 8),
        (CallUpdate("u", 0, None, 64, 128, FixedConstant(1, 1), None, 0, True), 6 * 8 + 2),
        (CallUpdate("u", 0, 1, 64, 128, FixedConstant(1, 1), ALLOCATION, 0, True), 7 * 8 + 2 + 3 * 4 * 8),
        (Read(0), 8),
        (ReadStatistics((0, 64)), 16),
        (Finished({0: Events(5), 1: Events(5)}), 2 * 5 * 8),
        (Data(np.zeros(3, np.int8), (1, 2)), 3 + 4),
        (Statistics({0: RECORD}), 3 * 8 + 3 * 10),
    ],
)
def test_payloads_are_counted(message: object, payload_bytes: int | None) -> None:
    assert message.payload_bytes == payload_bytes


def test_the_exponent_of_a_tensor_is_its_only_one() -> None:
    assert Data(np.zeros(3, np.int8), (-4,)).exponent == -4

"""The statistics circuits in code, against the oracle's records, and what is remembered of masks."""

from __future__ import annotations

import numpy as np
import pytest

from binpoint.backends.memory import aligned_copy
from binpoint.backends.oracle.statistics import record
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.buffers import argument
from binpoint.backends.tensor_expression.layout import Layout
from binpoint.backends.tensor_expression.plan import Container, Form
from binpoint.backends.tensor_expression.statistics import (
    REMEMBERED_MASKS,
    TASK_VALUES,
    Remembered,
    StatisticsCircuits,
    pair_list,
    select,
)

EXTREMES = (0, -1, 1, -2, 2)


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("container", [Container.INT32, Container.INT64])
@pytest.mark.parametrize("pixels", [1, TASK_VALUES // 8 - 1, TASK_VALUES // 8, TASK_VALUES])
def test_records_do_not_depend_on_how_many_tasks_share_the_values(
    container: Container, form: Form, pixels: int
) -> None:
    generator = np.random.default_rng(pixels)
    least = -(1 << (container.bits - 1))
    values = generator.integers(least, -least - 1, (2, 1, 1, pixels, 8), np.int64, endpoint=True)
    values >>= generator.integers(0, container.bits, values.shape)
    values.reshape(-1)[:7] = (*EXTREMES, least, -least - 1)
    sample = np.ones((2, 8), np.bool_)
    circuits = StatisticsCircuits(form, TensorExpressionBackend(threads=2).compiler)
    stored = argument(aligned_copy(values.astype(container.dtype)))
    found = circuits.acquire(container, [stored], pair_list(sample), -5)
    assert found == record(values, -5)


def test_what_is_known_of_a_mask_that_nobody_writes_to_is_not_found_again() -> None:
    asked = []

    def find(sample: np.ndarray) -> int:
        asked.append(sample)
        return int(sample.sum())

    remembered, mask = Remembered(find), np.eye(3, dtype=np.bool_)
    assert remembered(mask) == 3
    mask[0, 1] = True
    assert remembered(mask) == 4
    mask.flags.writeable = False
    assert [remembered(mask), remembered(mask)] == [4, 4]
    assert len(asked) == 3
    for _ in range(REMEMBERED_MASKS):
        other = np.zeros((2, 2), np.bool_)
        other.flags.writeable = False
        assert remembered(other) == 0
    assert remembered(mask) == 4
    assert len(asked) == 3 + REMEMBERED_MASKS + 1


def test_the_groups_of_a_selection_are_its_pairs_by_eight_channels() -> None:
    sample = np.zeros((2, 16), np.bool_)
    sample[0, 3] = sample[0, 11] = sample[1, 8] = True
    selection = select(sample, Layout(16))
    assert selection.picks is not None
    assert selection.groups.tolist() == [[0, 0], [0, 1], [1, 1]]

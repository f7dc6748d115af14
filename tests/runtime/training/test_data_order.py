from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from binpoint.runtime.training.data_order import DataOrder


@given(st.integers(1, 200), st.integers(1, 50), st.integers(0, 2**40), st.integers(0, 1000))
def test_an_epoch_holds_every_sample_once_in_mini_batches(samples: int, batch: int, seed: int, epoch: int) -> None:
    order = DataOrder(samples, batch, seed)
    first = epoch * order.steps_per_epoch
    parts = [order.step(first + number) for number in range(order.steps_per_epoch)]
    assert all(len(part) == batch for part in parts[:-1])
    assert 1 <= len(parts[-1]) <= batch
    together = np.concatenate(parts)
    assert np.array_equal(together, order.epoch(epoch))
    assert np.array_equal(np.sort(together), np.arange(samples))


def test_epochs_and_seeds_differ() -> None:
    order = DataOrder(50, 10, 0)
    assert not np.array_equal(order.epoch(0), order.epoch(1))
    assert not np.array_equal(order.epoch(0), DataOrder(50, 10, 1).epoch(0))
    assert not np.array_equal(order.epoch(0), np.arange(50))


def test_the_order_depends_on_the_numbers_alone_not_on_what_was_asked_before() -> None:
    order = DataOrder(50, 10, 0)
    order.step(17)
    assert np.array_equal(order.step(3), DataOrder(50, 10, 0).step(3))


def test_the_order_never_changes() -> None:
    # Runs of older versions could not be repeated otherwise.
    assert DataOrder(8, 8, 1).epoch(0).tolist() == [5, 1, 7, 3, 2, 6, 0, 4]

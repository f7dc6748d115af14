from __future__ import annotations

import itertools

import pytest

from binpoint.runtime.training.areas import ALIGNMENT, plan_areas, total_bytes
from tests.training_programs import NORMALISED, PLAIN, trainable


@pytest.mark.parametrize("text", [PLAIN, NORMALISED])
def test_no_two_areas_overlap_and_all_are_aligned(text: str) -> None:
    areas = sorted(plan_areas(trainable(text), 8).values(), key=lambda area: area.address)
    assert all(area.address % ALIGNMENT == 0 and area.size > 0 for area in areas)
    assert all(one.address + one.size <= other.address for one, other in itertools.pairwise(areas))


@pytest.mark.parametrize("text", [PLAIN, NORMALISED])
def test_every_tensor_that_has_an_exponent_has_an_area(text: str) -> None:
    program = trainable(text)
    assert program.formats.keys() <= plan_areas(program, 8).keys()


def test_sizes_are_those_of_the_mantissas() -> None:
    areas = plan_areas(trainable(), 5)
    assert areas["conv"].size == 5 * 4 * 6 * 6  # 8 bits, a row an image
    assert areas["conv.weight"].size == 4 * 9
    assert areas["conv.weight.master"].size == areas["conv.weight.velocity"].size == 2 * 4 * 9  # 16 bits
    assert areas["conv.weight.grad"].size == 2 * 4 * 9  # a row an output channel
    assert areas["conv.bias.grad"].size == 2 * 4


def test_sums_and_coefficients_have_areas() -> None:
    areas = plan_areas(trainable(NORMALISED), 5)
    assert areas["bn.sums"].size == 2 * 4 * 8  # two int64 a channel
    assert areas["bn.grad.scale"].size == 2 * 4 * 2
    assert areas["bn.gamma.grad"].size == 4 * 2


def test_feature_maps_know_their_row_and_arrays_do_not() -> None:
    areas = plan_areas(trainable(), 5)
    assert areas["conv"].tensor is not None
    assert areas["conv"].tensor.shape == (4, 6, 6)
    assert areas["conv.weight"].tensor is None


def test_total_bytes_ends_with_the_last_area() -> None:
    areas = plan_areas(trainable(), 5)
    assert total_bytes(areas) == max(area.address + area.size for area in areas.values())
    assert total_bytes({}) == 0

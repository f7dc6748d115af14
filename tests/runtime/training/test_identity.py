from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from binpoint.runtime.training.identity import (
    COMPILED,
    SHOWN_CHARACTERS,
    data_fields,
    differences,
    parameter_fields,
    program_fields,
    target_fields,
)
from binpoint.support.target import Allocation, Allocator
from tests.training_programs import PLAIN, TARGET, first_parameters, samples, trainable


def differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in {*one, *other} if one.get(name) != other.get(name)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("numeric {", "numeric { layer fc { weights = 6 bits } "),
        ("window = 4", "window = 5"),
        ("network plain", "network other"),
    ],
)
def test_whatever_changes_a_program_is_part_of_its_hash(before: str, after: str) -> None:
    assert before in PLAIN
    assert program_fields(trainable()) == program_fields(trainable(PLAIN))
    assert differing(program_fields(trainable()), program_fields(trainable(PLAIN.replace(before, after)))) == {COMPILED}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"pes": 16, "grid": (4, 4)}, "target.array.pes"),
        ({"statistics_pes": (0, 2)}, "target.statistics.pes"),
        ({"allocation": Allocation()}, "target.allocation.rotation"),
        ({"accumulator_bits": 48}, "target.arithmetic.accumulator_bits"),
    ],
)
def test_a_target_is_compared_key_by_key(change: dict, field: str) -> None:
    assert field in differing(target_fields(TARGET), target_fields(replace(TARGET, **change)))


def test_who_allocates_does_not_matter() -> None:
    derived = replace(TARGET, allocator=Allocator.CONTROLLER, description="the derived form")
    assert target_fields(TARGET) == target_fields(derived)


def test_data_is_known_by_its_numbers_and_labels() -> None:
    fields = data_fields(samples(), "--data")
    assert fields["samples of --data"] == "60"
    assert differing(fields, data_fields(samples().limited(50), "--data")) == {"samples of --data"}
    relabelled = replace(samples(), labels=np.zeros(60, np.int64))
    assert differing(fields, data_fields(relabelled, "--data")) == {"content of --data"}
    assert differing(fields, data_fields(samples(seed=4), "--data")) == {"content of --data"}


def test_first_parameters_are_drawn_or_known_by_their_values() -> None:
    parameters, file = first_parameters(), Path("w.safetensors")
    changed = parameters | {"fc.bias": parameters["fc.bias"] + 1}
    assert parameter_fields(parameters, None) == {"first parameters": "drawn"} == parameter_fields(changed, None)
    assert parameter_fields(parameters, file) == parameter_fields(dict(parameters), Path("moved.safetensors"))
    assert differing(parameter_fields(parameters, file), parameter_fields(changed, file)) == {"first parameters"}


def test_differences_are_told_in_order_and_what_follows_from_others_is_not() -> None:
    kept = {"--lr": "0.05", "--steps": "4", "--seed": "0", COMPILED: "sha256 a"}
    now = {"--float": "given", "--lr": "0.1", "--seed": "0", COMPILED: "sha256 b"}
    assert differences(kept, dict(kept)) == []
    assert differences(now, kept) == [
        ("--lr", "0.1", "0.05"),
        ("--steps", "not given", "4"),
        ("--float", "given", "not given"),
    ]
    assert differences({COMPILED: "sha256 b"}, {COMPILED: "sha256 a"}) == [(COMPILED, "sha256 b", "sha256 a")]


def test_long_values_are_cut_to_where_they_differ() -> None:
    common = ", ".join(map(str, range(100)))
    ((_, found, expected),) = differences({"pes": f"[{common}, 7]"}, {"pes": f"[{common}, 8, {common}]"})
    assert found.startswith("...")
    assert found.endswith("99, 7]")
    assert "99, 8, 0, 1" in expected
    assert expected.endswith("...")
    ((_, found, expected),) = differences({"pes": "x" * 1000}, {"pes": "y" * 10})
    assert (found, expected) == ("x" * SHOWN_CHARACTERS + "...", "y" * 10)

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from binpoint.runtime.training.identity import data_fields, parameter_fields, program_fields, target_fields
from binpoint.support.target import Allocation, Allocator
from tests.training_programs import NORMALISED, PLAIN, TARGET, first_parameters, samples, trainable


def differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in {*one, *other} if one.get(name) != other.get(name)}


def test_every_step_and_format_of_a_program_is_a_field() -> None:
    program = trainable(NORMALISED)
    fields = program_fields(program)
    assert fields["network"] == "normalised"
    assert {f"format.{name}" for name in program.formats} <= fields.keys()
    assert len([name for name in fields if name.startswith("step.")]) == len(program.steps)


def test_another_width_of_one_layer_changes_its_fields_alone() -> None:
    changed = trainable(PLAIN.replace("numeric {", "numeric { layer fc { weights = 6 bits } "))
    assert differing(program_fields(trainable()), program_fields(changed)) == {
        "step.fc",
        "step.fc.flatten.grad",
        "step.fc.weight.update",
        "format.fc.weight",
        "parameter.fc.weight",
    }


def test_a_policy_is_part_of_the_program() -> None:
    changed = trainable(PLAIN.replace("window = 4", "window = 5"))
    assert "format.conv" in differing(program_fields(trainable()), program_fields(changed))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"pes": 16, "grid": (4, 4)}, "target.pes"),
        ({"statistics_pes": (0, 2)}, "target.statistics_pes"),
        ({"allocation": Allocation()}, "target.allocation.rotation"),
        ({"accumulator_bits": 48}, "target.accumulator_bits"),
    ],
)
def test_a_target_is_compared_key_by_key(change: dict, field: str) -> None:
    assert field in differing(target_fields(TARGET), target_fields(replace(TARGET, **change)))


def test_who_allocates_does_not_matter() -> None:
    derived = replace(TARGET, allocator=Allocator.CONTROLLER, description="the derived form")
    assert target_fields(TARGET) == target_fields(derived)


def test_data_is_known_by_its_numbers_and_labels() -> None:
    fields = data_fields(samples(), "training data")
    assert fields["training data.samples"] == "60"
    assert differing(fields, data_fields(samples().limited(50), "training data")) == {"training data.samples"}
    relabelled = replace(samples(), labels=np.zeros(60, np.int64))
    assert differing(fields, data_fields(relabelled, "training data")) == {"training data.sha256"}
    assert differing(fields, data_fields(samples(seed=4), "training data")) == {"training data.sha256"}


def test_first_parameters_are_hashed_one_by_one() -> None:
    parameters = first_parameters()
    changed = parameters | {"fc.bias": parameters["fc.bias"] + 1}
    assert differing(parameter_fields(parameters), parameter_fields(changed)) == {"first.fc.bias"}

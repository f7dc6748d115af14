from __future__ import annotations

from binpoint.runtime.parameters import ParameterSpec, parameter_specs
from tests.programs import branches, classifier


def test_weights_and_biases_in_the_order_of_the_calls() -> None:
    assert parameter_specs(classifier()) == {
        "conv.weight": ParameterSpec((5, 1, 3, 3), 8),
        "conv.bias": ParameterSpec((5,), 16),
        "fc.weight": ParameterSpec((3, 45, 1, 1), 8),
        "fc.bias": ParameterSpec((3,), 16),
    }


def test_groups_share_the_input_channels() -> None:
    specs = parameter_specs(branches())
    assert list(specs) == ["left.weight", "right.weight"]
    assert specs["right.weight"].shape == (4, 1, 3, 3)


def test_mantissas_are_twos_complement() -> None:
    assert ParameterSpec((1,), 6).range == (-32, 31)

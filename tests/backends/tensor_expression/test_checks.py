"""Widths that kernels cannot hold are the user's errors, reported all at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpoint.backends.kernel import Accumulator, KernelParameters, LeakyRelu, TensorSpec
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.checks import check_spec
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import FixedConstant
from tests.backends.layers import LAYERS, convolution


@pytest.mark.parametrize("name", LAYERS)
def test_what_fits(name: str) -> None:
    check_spec(LAYERS[name])


def test_what_does_not_fit() -> None:
    spec = replace(
        LAYERS["conv"],
        operation=convolution(weight_bits=17),
        inputs=(TensorSpec(20, 5, 7, 24),),
        output=TensorSpec(17, 5, 7, 1),
        accumulator=Accumulator(65),
        activation=LeakyRelu(FixedConstant(1 << 28, 29)),
    )
    with pytest.raises(UserError) as error:
        check_spec(spec)
    found = [diagnostic.found for diagnostic in error.value.diagnostics]
    assert found == ["24 bits", "1 bits", "65 bits", "17 bits", "29 bits", "29 bits"]
    assert {diagnostic.code for diagnostic in error.value.diagnostics} == {"unsupported-width"}


def test_the_backend_checks(generic: TensorExpressionBackend) -> None:
    spec = replace(LAYERS["relu"], output=TensorSpec(16, 3, 3, 32))
    with pytest.raises(UserError, match="32 bits"):
        generic.prepare(spec, KernelParameters())
    with pytest.raises(UserError, match="32 bits"):
        generic.prepare_pe_program(spec, KernelParameters(), 1, 1)

"""The parameters of a network after its passes: expressions evaluated, by the names that kernels use.

Expressions are computed in float64; each result is rounded once, to float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from binpoint.dialect.assembly import location_of
from binpoint.dialect.nn_layers import FilterOp, LinearOp
from binpoint.dialect.nn_network import NetworkOp
from binpoint.dialect.nn_parameters import (
    BatchScaleOp,
    BatchShiftOp,
    DiagonalFiltersOp,
    NamedParameterOp,
    ParameterOp,
    ScaleFiltersOp,
)
from binpoint.support.diagnostics import user_error

Array = NDArray[np.float64]
Floats = NDArray[np.float32]


def materialize_parameters(network: NetworkOp, parameters: Mapping[str, Floats]) -> dict[str, Floats]:
    """Weights and biases by final name: `conv1.weight` (K, C / groups, R, S), `conv1.bias` (K,).

    Args:
        network: a network whose batch normalisations have been folded.
        parameters: what the weights file holds, by the names of `nn.parameter`.

    Raises:
        UserError: a value is not finite: a variance below -epsilon, or numbers too large for float32.
    """
    values: dict[SSAValue, Array | Floats] = {}
    results: dict[str, Floats] = {}
    for op in network.body.block.ops:
        if isinstance(op, ParameterOp):
            values[op.result] = _evaluate(op, [values[operand] for operand in op.operands], parameters)
        elif isinstance(op, FilterOp):
            for short, operand in (("weight", op.weight), ("bias", op.bias)):
                if operand is not None:
                    results[f"{op.label.data}.{short}"] = _finish(op, short, values[operand])
    return results


def _evaluate(op: ParameterOp, operands: Sequence[Array | Floats], parameters: Mapping[str, Floats]) -> Array | Floats:
    if isinstance(op, NamedParameterOp):
        return parameters[op.label.data]
    return EXPRESSIONS[type(op)](op, *(operand.astype(np.float64) for operand in operands))


def _batch_scale(op: BatchScaleOp, gamma: Array, variance: Array) -> Array:
    epsilon = float(op.epsilon.data)
    if (variance + epsilon <= 0).any():
        raise user_error(
            "negative-variance",
            "a batch normalisation divides by the root of what is not positive",
            location=location_of(op),
            found=f"variance {variance.min():g} with epsilon {epsilon:g}",
            expected="variance + epsilon > 0",
        )
    return gamma / np.sqrt(variance + epsilon)


def _batch_shift(op: BatchShiftOp, scale: Array, beta: Array, mean: Array, bias: Array | None = None) -> Array:
    return beta + ((0.0 if bias is None else bias) - mean) * scale


def _scale_filters(op: ScaleFiltersOp, weight: Array, scale: Array) -> Array:
    return weight * scale.reshape(-1, *[1] * (weight.ndim - 1))


def _diagonal_filters(op: DiagonalFiltersOp, scale: Array) -> Array:
    return scale.reshape(-1, 1, 1, 1)


EXPRESSIONS: Mapping[type[ParameterOp], Callable[..., Array]] = {
    BatchScaleOp: _batch_scale,
    BatchShiftOp: _batch_shift,
    ScaleFiltersOp: _scale_filters,
    DiagonalFiltersOp: _diagonal_filters,
}
"""What each expression computes from its operands."""


def _finish(op: FilterOp, short: str, value: Array | Floats) -> Floats:
    """Rounded to float32 and, for a linear layer's weights, as 1x1 filters."""
    with np.errstate(over="ignore"):
        rounded = value.astype(np.float32, copy=False)
    if not np.isfinite(rounded).all():
        raise user_error(
            "not-finite",
            f"{op.label.data}.{short} has values that are not finite",
            location=location_of(op),
            found=_first_infinite(rounded),
        )
    if isinstance(op, LinearOp) and short == "weight":
        return rounded.reshape(*rounded.shape, 1, 1)
    return rounded


def _first_infinite(values: NDArray[Any]) -> str:
    return str(values[~np.isfinite(values)][0])

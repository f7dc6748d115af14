"""Workloads of a program: which kernels PEs compute, and what one result costs."""

import pytest

from binpoint.backends.kernel import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    KernelSpec,
    MaxPool,
    Operation,
    Reshape,
    Resize,
    Sigmoid,
    Softmax,
    TensorSpec,
    Widen,
)
from binpoint.backends.program import KernelCall, Program
from binpoint.backends.workload import layer_workloads
from binpoint.scheduling.workload import Workload

MAP = TensorSpec(6, 8, 8, 8)


def workload(operation: Operation, *inputs: TensorSpec, output: TensorSpec = MAP) -> Workload:
    call = KernelCall(KernelSpec("layer", operation, inputs or (MAP,), output), ("x",), fused=("layer", "relu"))
    (found,) = layer_workloads(Program("net", (), (call,), ("layer",)))
    return found


def test_a_convolution_multiplies_its_window_by_its_channels() -> None:
    conv = Convolution((3, 5), groups=2, weight_bits=8, bias_bits=16)
    assert workload(conv, output=TensorSpec(10, 8, 8, 16)) == Workload(
        layer="layer",
        channels=10,
        height=8,
        width=8,
        operations_per_result=3 * 15,
        input_bytes=6 * 64,
        parameter_bytes=10 * 45 + 10 * 2,
        output_bytes=10 * 64 * 2,
        statistics=True,
        fused=("layer", "relu"),
    )


def test_widths_are_stored_in_whole_bytes() -> None:
    conv = Convolution((1, 1), weight_bits=12)
    found = workload(conv, TensorSpec(6, 8, 8, 4), output=TensorSpec(10, 8, 8, 9))
    assert (found.input_bytes, found.parameter_bytes, found.output_bytes) == (6 * 64, 60 * 2, 10 * 64 * 2)


@pytest.mark.parametrize(
    ("operation", "inputs", "operations", "statistics"),
    [
        (MaxPool((2, 3), (2, 2)), 1, 6, False),
        (AveragePool((2, 3), (2, 2)), 1, 6, True),
        (Add(), 3, 3, True),
        (Concat(), 2, 1, True),
        (Widen(), 1, 1, True),
        (Sigmoid(), 1, 1, True),
        (Softmax(), 1, 6, True),
        (Resize(), 1, 1, False),
    ],
)
def test_the_operations_of_one_result(operation: Operation, inputs: int, operations: int, statistics: bool) -> None:
    found = workload(operation, *[MAP] * inputs)
    assert (found.operations_per_result, found.statistics) == (operations, statistics)
    assert found.input_bytes == inputs * 6 * 64
    assert found.parameter_bytes == 0


def test_a_reshape_is_not_scheduled() -> None:
    specs = [
        KernelSpec("conv1", Convolution((3, 3)), (MAP,), MAP),
        KernelSpec("flat", Reshape(), (MAP,), TensorSpec(384, 1, 1, 8)),
    ]
    calls = tuple(KernelCall(spec, ("x",)) for spec in specs)
    assert [found.layer for found in layer_workloads(Program("net", (), calls, ("flat",)))] == ["conv1"]

"""The literal PE of JP7819764B2 against the kernels over whole feature maps."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpoint.backends.blocks import BlockExponents, BlockMap, grid_shape, spread
from binpoint.backends.kernel import (
    Accumulator,
    Convolution,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    Relu,
    Reshape,
    Resize,
    Sigmoid,
    Softmax,
    TensorSpec,
    Widen,
)
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.oracle.pe_backend import LiteralPeBackend
from binpoint.support.numeric import BlockMethod, BlockPolicy, Granularity, Neighbour, Selection, fixed_constant
from tests.backends.block_networks import (
    assert_equal,
    assert_same_maps,
    block_kernels,
    calls,
    run_blocks,
    run_network,
)

LITERAL, ORACLE = LiteralPeBackend(), OracleBackend()


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_random_kernels(data: st.DataObject) -> None:
    spec = data.draw(block_kernels())
    call = data.draw(calls(spec, spread=data.draw(st.sampled_from([0, 3, 7, 30]))))
    assert_equal(run_blocks(ORACLE, spec, call), run_blocks(LITERAL, spec, call))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_narrow_accumulators(data: st.DataObject) -> None:
    """Sums and shifts that leave the accumulator, which saturates or wraps step by step."""
    spec = data.draw(block_kernels().filter(lambda spec: not isinstance(spec.operation, Sigmoid | Softmax)))
    spec = replace(spec, accumulator=Accumulator(data.draw(st.sampled_from([9, 12, 16])), data.draw(st.booleans())))
    call = data.draw(calls(spec, spread=12))
    assert_equal(run_blocks(ORACLE, spec, call), run_blocks(LITERAL, spec, call))


@pytest.mark.parametrize("selection", Selection)
def test_a_steep_leaky_relu_leaves_the_registers(selection: Selection) -> None:
    """A slope above 1 saturates in the register that holds a block's results, also where nothing has to be aligned."""
    tensor = TensorSpec(1, 1, 1, 8)
    slope = fixed_constant(Fraction(4), 8)
    policy = BlockPolicy(selection=selection)
    spec = KernelSpec("steep", Widen(), (tensor,), tensor, LeakyRelu(slope), Accumulator(9), blocks=policy)
    call = {
        "arrays": [np.full((1, 1, 1, 1), -128)],
        "grids": [np.zeros((1, 1, 1, 1), np.int32)],
        "parameters": KernelParameters(),
        "exponents": BlockExponents(candidates=(2,)),
        "draw": None,
    }
    for backend in (ORACLE, LITERAL):
        mantissas, result = run_blocks(backend, spec, call)
        # -512 in 9 bits is -256, in units of 4.
        assert int(mantissas.item()) == -64
        assert result.events.accumulator_overflows == 1


@pytest.mark.parametrize("neighbour", Neighbour)
def test_each_neighbour_predicts(neighbour: Neighbour) -> None:
    """Blocks of one element, of which some overflow at the finer candidate: each tells its follower apart."""
    tensor = TensorSpec(1, 5, 5, 8, Granularity((1, 1)))
    policy = BlockPolicy(BlockMethod.PREDICT, neighbours=(neighbour,), threshold=Fraction(0))
    spec = KernelSpec("predicted", Widen(), (tensor,), tensor, blocks=policy)
    hot = np.random.default_rng(5).integers(0, 2, (5, 5))
    call = {
        "arrays": [(hot * 126 + 1).reshape(1, 1, 5, 5)],
        "grids": [np.zeros((1, 1, 5, 5), np.int32)],
        "parameters": KernelParameters(),
        "exponents": BlockExponents(candidates=(0, -1), default=0),
        "draw": None,
    }
    down, right = {
        Neighbour.UPPER_LEFT: (-1, -1),
        Neighbour.UPPER: (-1, 0),
        Neighbour.UPPER_RIGHT: (-1, 1),
        Neighbour.LEFT: (0, -1),
    }[neighbour]
    expected = np.zeros((5, 5), np.int32)
    for row, column in np.ndindex(5, 5):
        if row + down >= 0 and 0 <= column + right < 5:
            expected[row, column] = 0 if hot[row + down, column + right] else -1
    for backend in (ORACLE, LITERAL):
        np.testing.assert_array_equal(run_blocks(backend, spec, call)[1].output.exponents[0, 0], expected)


@pytest.mark.parametrize(("wraps", "expected"), [(False, 127), (True, -56)])
def test_a_bias_leaves_the_accumulator(wraps: bool, expected: int) -> None:
    """100 + 100 in 8 bits."""
    tensor = TensorSpec(1, 1, 1, 8)
    operation, accumulator = Convolution((1, 1), bias_bits=16), Accumulator(8, wraps)
    spec = KernelSpec("bias", operation, (tensor,), tensor, accumulator=accumulator, blocks=BlockPolicy())
    call = {
        "arrays": [np.full((1, 1, 1, 1), 100)],
        "grids": [np.zeros((1, 1, 1, 1), np.int32)],
        "parameters": KernelParameters(np.ones((1, 1, 1, 1), np.int64), np.array([100])),
        "exponents": BlockExponents(candidates=(0,)),
        "draw": None,
    }
    for backend in (ORACLE, LITERAL):
        mantissas, result = run_blocks(backend, spec, call)
        assert int(mantissas.item()) == expected
        assert result.events.accumulator_overflows == 1


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_one_position_a_map_is_a_plain_kernel(data: st.DataObject) -> None:
    spec = data.draw(block_kernels())
    if isinstance(spec.operation, MaxPool | Resize):
        return
    plain = replace(spec, blocks=None, inputs=tuple(replace(each, granularity=Granularity()) for each in spec.inputs))
    plain = replace(plain, output=replace(spec.output, granularity=Granularity()))
    spec = replace(plain, blocks=BlockPolicy(selection=Selection.FRACTION), accumulator=Accumulator(40))
    plain = replace(plain, accumulator=Accumulator(40))
    call = data.draw(calls(spec, spread=2))
    exponents = call["exponents"]
    if len(exponents.weight) > 1:
        return
    shared = [int(grid.flat[0]) for grid in call["grids"]]
    call["grids"] = [np.full_like(grid, value) for grid, value in zip(call["grids"], shared, strict=True)]
    output = exponents.candidates[0]
    bias = max(exponents.bias[0], exponents.weight[0] + 2)
    call["exponents"] = BlockExponents(exponents.weight, (bias,), (output,), output)
    mantissas, result = run_blocks(ORACLE, spec, call)
    buffers = [ORACLE.upload(array, tensor) for array, tensor in zip(call["arrays"], plain.inputs, strict=True)]
    one = KernelExponents(tuple(shared), output, exponents.weight[0], bias)
    expected = ORACLE.prepare(plain, call["parameters"])(buffers, one, draw=call["draw"])
    np.testing.assert_array_equal(mantissas, expected.output.mantissas)
    assert result.events == expected.events


@pytest.mark.parametrize(
    ("operation", "before", "after"),
    [
        (MaxPool((2, 2), (2, 2)), (4, 9, 7, (4, 4)), (4, 4, 3, (2, 2))),
        (MaxPool((1, 1), (1, 1)), (3, 5, 5, (2, 3)), (3, 5, 5, (2, 3))),
        (Resize(), (3, 5, 4, (4, 4)), (3, 10, 8, (8, 8))),
        (Reshape(), (2, 3, 4, (2, 2)), (24, 1, 1, (1, 1))),
        (Reshape(), (2, 3, 4, None), (24, 1, 1, None)),
    ],
)
@pytest.mark.parametrize("per_channel", [False, True])
def test_exact_operations_move_blocks(operation, before, after, per_channel) -> None:
    channels = per_channel or isinstance(operation, Reshape)
    source = TensorSpec(*before[:3], 8, Granularity(before[3], per_channel and before[3] is not None))
    output = TensorSpec(*after[:3], 8, Granularity(after[3], channels and after[3] is not None))
    spec = KernelSpec("move", operation, (source,), output)
    rng = np.random.default_rng(3)
    array = rng.integers(-128, 128, (2, *source.shape))
    grid = rng.integers(-9, 0, (2, *grid_shape(source))).astype(np.int32)
    kernel = ORACLE.prepare_blocks(spec, KernelParameters())
    moved = kernel([BlockMap(ORACLE.upload(array, source), grid)], BlockExponents())
    # The same as one that aligns, chooses and quantises among many positions: values do not change.
    quantising = replace(spec, blocks=BlockPolicy())
    if isinstance(operation, Reshape):
        return
    wide = BlockExponents(candidates=tuple(range(0, -10, -1)))
    call = {"arrays": [array], "grids": [grid], "parameters": KernelParameters(), "exponents": wide, "draw": None}
    mantissas, result = run_blocks(ORACLE, quantising, call)
    values = np.ldexp(mantissas.astype(float), spread(result.output.exponents, output))
    own = np.ldexp(moved.output.buffer.mantissas.astype(float), spread(moved.output.exponents, output))
    np.testing.assert_array_equal(values, own)


def test_integer_alignment_loses_what_fraction_keeps() -> None:
    """7/4 and 1 add up to 2 at the position of the 1, and to 11/4 at that of 7/4."""
    tensor = TensorSpec(2, 1, 1, 8, Granularity((1, 1), per_channel=True))
    spec = KernelSpec("sum", Convolution((1, 1)), (tensor,), TensorSpec(1, 1, 1, 8), blocks=BlockPolicy())
    call = {
        "arrays": [np.array([[[[7]], [[1]]]])],
        "grids": [np.array([[[[-2]], [[0]]]], np.int32)],
        "parameters": KernelParameters(np.ones((1, 2, 1, 1), np.int64)),
        "exponents": BlockExponents(candidates=(-2,)),
        "draw": None,
    }
    for selection, expected in ((Selection.INTEGER, 8), (Selection.FRACTION, 11)):
        chosen = replace(spec, blocks=BlockPolicy(selection=selection))
        for backend in (ORACLE, LITERAL):
            assert int(run_blocks(backend, chosen, call)[0].item()) == expected


def test_integer_alignment_depends_on_the_order_of_channels() -> None:
    """A sum that has met a coarse position stays there: what comes later loses its last bits one by one."""
    tensor = TensorSpec(3, 1, 1, 8, Granularity((1, 1), per_channel=True))
    policy = BlockPolicy(selection=Selection.INTEGER)
    spec = KernelSpec("sum", Convolution((1, 1)), (tensor,), TensorSpec(1, 1, 1, 8), blocks=policy)
    results = []
    for order in ([0, 1, 2], [1, 2, 0]):
        call = {
            "arrays": [np.array([1, 3, 3]).reshape(1, 3, 1, 1)[:, order]],
            "grids": [np.array([0, -2, -2], np.int32).reshape(1, 3, 1, 1)[:, order]],
            "parameters": KernelParameters(np.ones((1, 3, 1, 1), np.int64)),
            "exponents": BlockExponents(candidates=(0,)),
            "draw": None,
        }
        results.append([int(run_blocks(backend, spec, call)[0].item()) for backend in (ORACLE, LITERAL)])
    assert results == [[1, 1], [2, 2]]


def test_one_hot_pixel_costs_only_its_block() -> None:
    tensor = TensorSpec(1, 8, 8, 8)
    spec = KernelSpec(
        "hot",
        Convolution((1, 1)),
        (tensor,),
        TensorSpec(1, 8, 8, 8, Granularity((4, 4))),
        Relu(),
        blocks=BlockPolicy(method=BlockMethod.ANALYSE),
    )
    array = np.ones((1, 1, 8, 8), np.int64)
    array[0, 0, 1, 1] = 127
    parameters = KernelParameters(np.full((1, 1, 1, 1), 16))
    call = {
        "arrays": [array],
        "grids": [np.zeros((1, 1, 1, 1), np.int32)],
        "parameters": parameters,
        "exponents": BlockExponents(candidates=(4, 3, 2, 1, 0)),
        "draw": None,
    }
    for backend in (ORACLE, LITERAL):
        _, result = run_blocks(backend, spec, call)
        assert result.output.exponents.reshape(2, 2).tolist() == [[4, 0], [0, 0]]


@pytest.mark.parametrize("selection", Selection)
@pytest.mark.parametrize("method", BlockMethod)
@pytest.mark.parametrize("per_channel", [False, True])
def test_networks_run_on_pes(per_channel: bool, method: BlockMethod, selection: Selection) -> None:
    policy = BlockPolicy(method, selection=selection)
    left, right = (run_network(backend, policy, per_channel=per_channel, seed=11) for backend in (ORACLE, LITERAL))
    assert_same_maps(left, right)

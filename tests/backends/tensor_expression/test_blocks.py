"""Kernels over blocks equal the oracle's bit for bit: mantissas, exponents, events, counts of overflows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpoint.backends.blocks import BlockExponents, BlockMap, grid_shape
from binpoint.backends.kernel import (
    Accumulator,
    Add,
    AveragePool,
    Clip,
    Concat,
    Convolution,
    Draw,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    Operation,
    Relu,
    Reshape,
    Resize,
    Sigmoid,
    Softmax,
    TensorSpec,
    Widen,
)
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.oracle.fixed_point import mantissa_range
from binpoint.backends.oracle.pe_backend import LiteralPeBackend
from binpoint.backends.tensor_expression import block_kernels
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.block_kernels import BlockLayerKernel
from binpoint.support.numeric import (
    BlockMethod,
    BlockPolicy,
    Granularity,
    Measure,
    Neighbour,
    Rounding,
    Selection,
    fixed_constant,
)
from tests.backends.block_networks import assert_same_maps, run_network

ORACLE = OracleBackend()
LEAKY = LeakyRelu(fixed_constant(Fraction(1, 10), 8))
CLIP = Clip(fixed_constant(Fraction(96), 8))
ANALYSE = BlockPolicy()
PREDICT = BlockPolicy(BlockMethod.PREDICT, threshold=Fraction(7, 2))
LEFT_ONLY = BlockPolicy(BlockMethod.PREDICT, neighbours=(Neighbour.LEFT,), threshold=Fraction(0))
CONVOLUTION = Convolution((3, 3), padding=(1, 1, 1, 1), bias_bits=16)
SPREAD = 7
"""How far exponents of inputs lie apart at most: with mantissas of 8 bits aligned ones have 15."""


def shared(height: int, width: int) -> Granularity:
    return Granularity((height, width))


def channel(height: int, width: int) -> Granularity:
    return Granularity((height, width), per_channel=True)


def layer(
    operation: Operation,
    inputs: tuple[TensorSpec, ...],
    output: TensorSpec,
    activation: Relu | Clip | LeakyRelu | None = None,
    policy: BlockPolicy | None = ANALYSE,
    rounding: Rounding = Rounding.HALF_EVEN,
    accumulator: Accumulator = Accumulator(),  # noqa: B008
) -> KernelSpec:
    return KernelSpec("layer", operation, inputs, output, activation, accumulator, rounding, False, policy)


def tensor(channels: int, height: int, width: int, granularity: Granularity, bits: int = 8) -> TensorSpec:
    return TensorSpec(channels, height, width, bits, granularity)


A, B = tensor(20, 9, 7, shared(4, 4)), tensor(20, 9, 7, channel(2, 3))
"""Two granularities of one map. Kernels that read or write them share code, which keeps these tests fast."""

SPECS = {
    "shared": layer(CONVOLUTION, (A,), A, LEAKY),
    "channel": layer(CONVOLUTION, (B,), B, LEAKY),
    "few-channels": layer(CONVOLUTION, (tensor(3, 5, 6, channel(2, 2)),), tensor(3, 5, 6, channel(4, 4)), Relu()),
    "one-element-blocks": layer(CONVOLUTION, (tensor(9, 4, 5, shared(1, 1)),), tensor(16, 4, 5, channel(1, 1))),
    "blocks-beyond-the-map": layer(CONVOLUTION, (tensor(8, 5, 5, shared(9, 2)),), tensor(32, 5, 5, channel(16, 16))),
    "stride-2": layer(replace(CONVOLUTION, stride=(2, 2)), (A,), tensor(20, 5, 4, shared(2, 2)), LEAKY),
    "1x1": layer(Convolution((1, 1), bias_bits=None), (B,), A, LEAKY),
    "5x5": layer(Convolution((5, 5), padding=(2, 2, 2, 2), bias_bits=16), (A,), B, rounding=Rounding.FLOOR),
    "depthwise": layer(replace(CONVOLUTION, groups=20), (A,), A, LEAKY, rounding=Rounding.HALF_UP),
    "linear": layer(
        Convolution((1, 1), bias_bits=16), (tensor(40, 1, 1, channel(1, 1)),), tensor(10, 1, 1, channel(1, 1))
    ),
    "predict-shared": layer(CONVOLUTION, (B,), A, Relu(), PREDICT),
    "predict-channel": layer(CONVOLUTION, (A,), B, LEAKY, PREDICT),
    "predict-left": layer(CONVOLUTION, (A,), A, LEAKY, LEFT_ONLY),
    "6-bit": layer(
        replace(CONVOLUTION, weight_bits=6),
        (replace(A, bits=6),),
        replace(B, bits=6),
        LEAKY,
        rounding=Rounding.HALF_AWAY,
    ),
    "average-pool": layer(AveragePool((3, 3), (1, 1), (1, 1, 1, 1)), (B,), B),
    "max-pool": layer(MaxPool((2, 2), (1, 1), (0, 0, 1, 1)), (B,), B),
    "resize": layer(Resize(), (tensor(20, 5, 4, shared(2, 2)),), A),
    "add": layer(Add(), (A, B), B, Relu()),
    "concat": layer(
        Concat(),
        (A, tensor(9, 9, 7, shared(2, 2)), tensor(3, 9, 7, Granularity())),
        tensor(32, 9, 7, shared(4, 4)),
        LEAKY,
    ),
    "widen": layer(Widen(), (A,), B, CLIP),
    "sigmoid": layer(Sigmoid(), (tensor(5, 3, 3, Granularity()),), tensor(5, 3, 3, shared(2, 2))),
    "softmax": layer(Softmax(), (tensor(9, 3, 3, Granularity()),), tensor(9, 3, 3, channel(2, 2))),
}
"""Every kind of layer, in sizes that divide by nothing."""

MOVES = {
    "pool": layer(
        MaxPool((2, 2), (2, 2)), (tensor(17, 8, 7, shared(4, 4)),), tensor(17, 4, 3, shared(2, 2)), policy=None
    ),
    "pool-channel": layer(
        MaxPool((2, 2), (2, 2)), (tensor(20, 8, 8, channel(2, 2)),), tensor(20, 4, 4, channel(1, 1)), policy=None
    ),
    "upsample": layer(Resize(), (tensor(16, 3, 5, channel(4, 4)),), tensor(16, 6, 10, channel(8, 8)), policy=None),
    "flatten": layer(Reshape(), (tensor(5, 3, 4, shared(2, 2)),), tensor(60, 1, 1, channel(1, 1)), policy=None),
}


def draw_call(spec: KernelSpec, seed: int, images: int = 2) -> tuple[list, KernelParameters, BlockExponents]:
    """Inputs of quiet and lively blocks, and exponents that bring results into the output's range."""
    generator = np.random.default_rng(seed)
    maps = []
    for each in spec.inputs:
        least, greatest = mantissa_range(each.bits)
        mantissas = generator.integers(least, greatest, (images, *each.shape), endpoint=True)
        quiet = generator.choice([0.0, 0.1, 1.0], (images, each.channels, each.height, each.width))
        table = isinstance(spec.operation, Sigmoid | Softmax)  # of one exponent
        grid = generator.integers(-4, -3 if table else SPREAD - 3, (images, *grid_shape(each)))
        maps.append(((mantissas * quiet).astype(np.int64), grid.astype(np.int32)))
    channels, top, weights, parameters = spec.output.channels, 7, (0,), KernelParameters()
    if isinstance(spec.operation, Convolution):
        operation, (least, greatest) = spec.operation, mantissa_range(spec.operation.weight_bits)
        shape = channels, spec.inputs[0].channels // operation.groups, *operation.kernel
        bias = None if operation.bias_bits is None else generator.integers(-(1 << 12), 1 << 12, channels)
        parameters = KernelParameters(generator.integers(least, greatest, shape, endpoint=True), bias)
        weights = tuple(generator.integers(-9, -4, channels if seed % 2 else 1).tolist())
        top = 7 + seed % 3
    if isinstance(spec.operation, Sigmoid | Softmax):
        top = -6
    biases = tuple(weight + SPREAD - 3 for weight in weights)
    return maps, parameters, BlockExponents(weights, biases, tuple(range(top, top - 8, -1)), top - 2)


def check(
    backend: TensorExpressionBackend,
    spec: KernelSpec,
    call: tuple[list, KernelParameters, BlockExponents],
    *,
    overflows: bool = False,
) -> BlockLayerKernel:
    """Compare one call with the oracle's, and that the padding of channel blocks stays zero."""
    maps, parameters, exponents = call

    def run(which: TensorExpressionBackend | OracleBackend) -> tuple:
        kernel = which.prepare_blocks(spec, parameters)
        inputs = [BlockMap(which.upload(m, each), grid) for (m, grid), each in zip(maps, spec.inputs, strict=True)]
        return kernel, kernel(inputs, exponents, overflows=overflows, draw=Draw(1, 2, 3), first_image=5)

    (kernel, result), (_, expected) = run(backend), run(ORACLE)
    np.testing.assert_array_equal(result.output.exponents, expected.output.exponents)
    np.testing.assert_array_equal(backend.download(result.output.buffer), ORACLE.download(expected.output.buffer))
    assert result.events == expected.events
    assert (result.overflows is None) == (expected.overflows is None)
    if expected.overflows is not None:
        np.testing.assert_array_equal(result.overflows, expected.overflows)
    blocked = result.output.buffer.blocked
    padding = -spec.output.channels % blocked.shape[-1]
    assert not padding or not blocked[:, -1, :, :, -padding:].any()
    return kernel


def design(backend: TensorExpressionBackend, kernel: BlockLayerKernel, call: tuple) -> str | None:
    maps, _, exponents = call
    inputs = [BlockMap(backend.upload(m, each), grid) for (m, grid), each in zip(maps, kernel.spec.inputs, strict=True)]
    return kernel.design(inputs, exponents)


@pytest.mark.parametrize("name", SPECS)
def test_every_layer(native: TensorExpressionBackend, name: str) -> None:
    spec = SPECS[name]
    for seed in range(3):
        call = draw_call(spec, seed, images=1 + seed % 2)
        kernel = check(native, spec, call)
        assert design(native, kernel, call) is not None


@pytest.mark.parametrize("name", ["shared", "channel"])
def test_counts_of_overflows(native: TensorExpressionBackend, name: str) -> None:
    check(native, SPECS[name], draw_call(SPECS[name], 3), overflows=True)


@pytest.mark.parametrize("name", ["shared", "few-channels", "predict-channel"])
def test_the_portable_design(generic: TensorExpressionBackend, name: str) -> None:
    call = draw_call(SPECS[name], 1)
    assert design(generic, check(generic, SPECS[name], call), call) is not None


@pytest.mark.parametrize("name", MOVES)
def test_moves(generic: TensorExpressionBackend, name: str) -> None:
    check(generic, MOVES[name], draw_call(MOVES[name], 0), overflows=True)


@pytest.mark.parametrize("granularity", [A.granularity, B.granularity])
def test_quiet_and_hot_blocks(native: TensorExpressionBackend, granularity: Granularity) -> None:
    """All zeros; one hot pixel; results that no candidate holds; extremes everywhere."""
    spec = replace(SPECS["shared"], output=replace(SPECS["shared"].output, granularity=granularity))
    maps, parameters, exponents = draw_call(spec, 0)
    mantissas, grid = maps[0]
    hot = np.zeros_like(mantissas)
    hot[0, 3, 4, 5] = -128
    for inputs in (np.zeros_like(mantissas), hot, np.full_like(mantissas, -128), np.full_like(mantissas, 127)):
        check(native, spec, ([(inputs, grid)], parameters, exponents))
    for top in (-30, 40):
        candidates = tuple(top - index for index in (0, 1, 4, 9))
        beyond = replace(exponents, candidates=candidates, default=candidates[1])
        check(native, spec, ([(mantissas, grid)], parameters, beyond))


@pytest.mark.parametrize("policy", [ANALYSE, PREDICT])
def test_one_candidate(native: TensorExpressionBackend, policy: BlockPolicy) -> None:
    """The exponent is given: of all blocks, or of the whole map."""
    for granularity in (A.granularity, Granularity()):
        spec = replace(SPECS["shared"], blocks=policy, output=replace(A, granularity=granularity))
        maps, parameters, exponents = draw_call(spec, 2)
        call = maps, parameters, replace(exponents, candidates=(5,), default=5)
        for overflows in (False, True):
            assert design(native, check(native, spec, call, overflows=overflows), call) is not None


def test_near_the_ends_of_32_bits(native: TensorExpressionBackend) -> None:
    """Sums that folded leaky ReLUs just hold, sums that need 64 bits, and sums that only the inputs prove small."""
    spec = layer(CONVOLUTION, (tensor(128, 4, 4, shared(2, 2)),), tensor(16, 4, 4, channel(2, 2)), LEAKY)
    generator = np.random.default_rng(0)
    maps, _, exponents = draw_call(spec, 0)
    mantissas, _ = maps[0]
    grid = np.array([[[[-4, 3], [-1, 0]]], [[[3, 3], [3, -4]]]], np.int32)
    bias = generator.integers(-1000, 1000, 16)
    coarse = replace(exponents, candidates=tuple(range(16, 8, -1)), default=16)
    for weight in (27, 28, 60, 127):
        signs = generator.choice([-1, 1], (16, 128, 3, 3))
        parameters = KernelParameters(weight * signs, bias)
        extremes = np.where(generator.random(mantissas.shape) < 0.5, -128, 127)
        for inputs in (extremes, mantissas // 64, np.full_like(mantissas, -128)):
            call = [(inputs, grid)], parameters, coarse
            assert design(native, check(native, spec, call), call) is not None


WIDE = layer(CONVOLUTION, (tensor(40, 13, 15, channel(4, 4)),), tensor(32, 13, 15, shared(4, 4)), LEAKY)
"""Channels enough for Winograd's convolution."""


def draw_windows(windows: Sequence[tuple[int, int]], spread: int, weight: int) -> tuple:
    """A call of WIDE whose aligned mantissas of channel c fill windows[c % len(windows)], both ends included."""
    generator = np.random.default_rng(spread)
    source = WIDE.inputs[0]
    grid = generator.integers(0, spread, (2, *grid_shape(source)), endpoint=True).astype(np.int32)
    grid[:, :, 0, 0], grid[:, :, 0, 1] = spread, 0
    exponents = grid.repeat(4, axis=2).repeat(4, axis=3)[:, :, : source.height, : source.width]
    low, high = np.array([windows[c % len(windows)] for c in range(source.channels)]).T[:, None, :, None, None]
    aligned = generator.integers(low, high, exponents.shape, endpoint=True)
    aligned[:, :, 0, 0], aligned[:, :, 0, 1] = low[..., 0, 0], high[..., 0, 0]
    mantissas = np.clip(np.maximum(aligned >> exponents, -(-low >> exponents)), -128, 127)
    weights = generator.integers(-weight, weight, (32, source.channels, 3, 3), endpoint=True)
    parameters = KernelParameters(weights, generator.integers(-(1 << 12), 1 << 12, 32))
    top = 7 + weight.bit_length()
    return [(mantissas, grid)], parameters, BlockExponents((0,), (spread,), tuple(range(top, top - 8, -1)), top)


@pytest.mark.parametrize(
    ("windows", "spread", "expected"),
    [
        ([(-8064, 8064)], 7, "winograd2"),
        ([(0, 127 * 128), (-127 * 128, 0), (-128, 10000), (0, 0)], 7, "winograd2"),
        ([(0, 16256), (-126, 127 * 128)], 7, "winograd2"),
        ([(0, 16256), (-128, 127 * 128)], 7, "avx2"),
        ([(-127 * 128, 0)], 7, "winograd2"),
        ([(-128 * 128, 0)], 7, "avx2"),
        ([(-256, 252), (0, 508), (-144, 508), (-512, 142)], 2, "winograd4"),
        ([(-148, 508), (0, 0)], 2, "winograd2"),
        ([(-256, 252), (0, 252)], 1, "winograd4"),
    ],
)
def test_channels_about_centres(
    native: TensorExpressionBackend, windows: list[tuple[int, int]], spread: int, expected: str
) -> None:
    """Winograd's transforms hold what lies within 16382 or 654 of each other, channel by channel."""
    call = draw_windows(windows, spread, 3)
    assert design(native, check(native, WIDE, call), call) == expected


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_windows(native: TensorExpressionBackend, data: st.DataObject) -> None:
    spread = data.draw(st.integers(1, 7))
    reach = 127 << spread
    window = st.tuples(st.integers(-reach, 0), st.integers(0, reach))
    windows = data.draw(st.lists(window, min_size=1, max_size=3))
    call = draw_windows(windows, spread, data.draw(st.sampled_from([1, 3, 30, 127])))
    assert design(native, check(native, WIDE, call), call) is not None


def test_centres_need_small_sums(native: TensorExpressionBackend) -> None:
    """F(2x2, 3x3) is exact below 2^29, whatever the windows are; single precision bounds the sums from above."""
    found = set()
    for weight in (3, 100, 127):
        maps, parameters, exponents = draw_windows([(0, 16256)], 7, weight)
        call = maps, replace(parameters, weight=np.full((32, 40, 3, 3), weight)), exponents
        found.add(design(native, check(native, WIDE, call), call))
    assert found == {"winograd2", "avx2"}


def test_centres_of_chunks(native: TensorExpressionBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_kernels, "VALUES_BYTES", 1)
    maps, parameters, exponents = draw_windows([(0, 16256), (-9000, 5000)], 7, 3)
    mantissas, grid = maps[0]
    call = [(np.tile(mantissas, (33, 1, 1, 1)), np.tile(grid, (33, 1, 1, 1)))], parameters, exponents
    assert design(native, check(native, WIDE, call), call) == "winograd2"


def test_batches_in_chunks(native: TensorExpressionBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_kernels, "VALUES_BYTES", 1)
    check(native, SPECS["channel"], draw_call(SPECS["channel"], 1, images=70), overflows=True)
    check(native, SPECS["predict-shared"], draw_call(SPECS["predict-shared"], 1, images=70))


UNPROVED = {
    "integer": replace(SPECS["shared"], blocks=replace(ANALYSE, selection=Selection.INTEGER)),
    "integer-widen": replace(SPECS["widen"], activation=None, blocks=replace(ANALYSE, selection=Selection.INTEGER)),
    "integer-concat": replace(SPECS["concat"], blocks=replace(ANALYSE, selection=Selection.INTEGER)),
    "mean-square-error": replace(SPECS["shared"], blocks=replace(ANALYSE, measure=Measure.MSE)),
    "stochastic": replace(SPECS["channel"], rounding=Rounding.STOCHASTIC),
    "narrow-accumulator": replace(SPECS["shared"], accumulator=Accumulator(18)),
    "pool-past-the-accumulator": replace(SPECS["max-pool"], accumulator=Accumulator(12)),
    "wide-mantissas": replace(SPECS["shared"], inputs=(replace(A, bits=12),)),
    "limit-that-rounds": replace(SPECS["widen"], activation=Clip(fixed_constant(Fraction(61, 10), 8))),
}


@pytest.mark.parametrize("name", UNPROVED)
def test_what_is_not_proved_exact(generic: TensorExpressionBackend, name: str) -> None:
    """The oracle computes it, in the order of the PE."""
    spec = UNPROVED[name]
    call = draw_call(spec, 0)
    assert design(generic, check(generic, spec, call, overflows=True), call) is None


def test_a_bias_finer_than_the_accumulator(generic: TensorExpressionBackend) -> None:
    """It is rounded to each pixel's own position: only where there is one position does code do it."""
    spec = SPECS["shared"]
    maps, parameters, exponents = draw_call(spec, 0)
    finer = replace(exponents, bias=(exponents.weight[0] - 3,))
    assert design(generic, check(generic, spec, (maps, parameters, finer)), (maps, parameters, finer)) is None
    single = [(mantissas, np.full_like(grid, -2)) for mantissas, grid in maps]
    call = single, parameters, replace(exponents, bias=(exponents.weight[0] - 5,))
    assert design(generic, check(generic, spec, call), call) is not None


def test_exponents_are_run_time_values(generic: TensorExpressionBackend) -> None:
    spec = SPECS["channel"]
    call = draw_call(spec, 0)
    check(generic, spec, call)
    count = generic.compiler.generated
    maps, parameters, exponents = call
    for shift in range(-3, 4):
        moved = tuple(candidate + shift for candidate in exponents.candidates)
        check(
            generic,
            replace(spec, name="twin"),
            (maps, parameters, replace(exponents, candidates=moved[:5], default=moved[0])),
        )
    assert generic.compiler.generated == count


@pytest.mark.parametrize("selection", Selection)
@pytest.mark.parametrize("method", BlockMethod)
@pytest.mark.parametrize("per_channel", [False, True])
def test_networks_equal_the_literal_pe(
    generic: TensorExpressionBackend, per_channel: bool, method: BlockMethod, selection: Selection
) -> None:
    """One PE, one block, one channel at a time, written from the patent's figures."""
    policy = BlockPolicy(method, selection=selection)
    literal = run_network(LiteralPeBackend(), policy, per_channel=per_channel, seed=5)
    assert_same_maps(run_network(generic, policy, per_channel=per_channel, seed=5), literal)

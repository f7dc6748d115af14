"""The oracle as a backend: tiles, batches, buffers."""

from itertools import product

import numpy as np
import pytest

from binpoint.backends.gradients import (
    AveragePoolGradient,
    BiasGradient,
    ChannelAffine,
    ChannelSlice,
    ClipGradient,
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    LeakyReluGradient,
    MaxPoolGradient,
    ReluGradient,
    ResizeGradient,
    SigmoidGradient,
)
from binpoint.backends.kernel import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    Draw,
    Events,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    MaxPool,
    Relu,
    Reshape,
    Resize,
    Sigmoid,
    Softmax,
    StatisticsRecord,
    TensorSpec,
    Tile,
    Widen,
)
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.support.numeric import FixedConstant, Rounding

BACKEND = OracleBackend()
NO_PARAMETERS = KernelParameters()


def run(spec, parameters, inputs, exponents, **keywords):
    buffers = [BACKEND.upload(x, tensor) for x, tensor in zip(inputs, spec.inputs, strict=True)]
    return BACKEND.prepare(spec, parameters)(buffers, exponents, **keywords)


OPERATIONS = [
    (Convolution((3, 3), (2, 1), (1, 0, 2, 1), groups=2, bias_bits=16), 1, TensorSpec(6, 3, 4, 8)),
    (Convolution((5, 5), groups=1, bias_bits=16), 1, TensorSpec(3, 1, 1, 8)),
    (AveragePool((2, 2), (1, 1), (1, 1, 0, 0)), 1, TensorSpec(4, 5, 5, 8)),
    (MaxPool((2, 2), (2, 2), (0, 1, 1, 0)), 1, TensorSpec(4, 3, 3, 8)),
    (Add(), 3, TensorSpec(4, 5, 5, 8)),
    (Concat(), 3, TensorSpec(12, 5, 5, 8)),
    (Widen(), 1, TensorSpec(4, 5, 5, 8)),
    (Sigmoid(), 1, TensorSpec(4, 5, 5, 8)),
    (Softmax(), 1, TensorSpec(4, 5, 5, 8)),
    (Resize(), 1, TensorSpec(4, 7, 3, 8)),
    (Reshape(), 1, TensorSpec(20, 1, 5, 8)),
]


@pytest.mark.parametrize("tile", [(1, 1), (2, 3), (5, 99)])
@pytest.mark.parametrize(("operation", "operands", "output"), OPERATIONS)
@pytest.mark.parametrize("rounding", [Rounding.HALF_EVEN, Rounding.STOCHASTIC])
def test_tiles_make_up_the_layer(operation, operands, output, tile, rounding):
    """PE programs over any tiling give the layer's outputs, events and sampled statistics."""
    rng = np.random.default_rng(3)
    spec = KernelSpec("layer", operation, (TensorSpec(4, 5, 5, 8),) * operands, output, Relu(), rounding=rounding)
    inputs = [rng.integers(-128, 128, (3, 4, 5, 5)) for _ in range(operands)]
    parameters = NO_PARAMETERS
    if isinstance(operation, Convolution):
        shape = (output.channels, 4 // operation.groups, *operation.kernel)
        parameters = KernelParameters(rng.integers(-128, 128, shape), rng.integers(-999, 999, output.channels))
    exponents = KernelExponents((0, 1, 3)[:operands], 4, bias=1)
    assert_tiles_make_up_the_layer(spec, parameters, inputs, 3, tile, exponents)


def assert_tiles_make_up_the_layer(spec, parameters, inputs, rows, tile, exponents):
    output, draw = spec.output, Draw(1, 2, 3)
    sampled_tiles = np.random.default_rng(4).random((rows, output.channels)) < 0.5
    program = BACKEND.prepare_pe_program(spec, parameters, *tile)
    sample = np.zeros((rows, output.channels), dtype=bool)
    got = np.zeros((rows, *output.shape), dtype=np.int64)
    events, record = Events(0), StatisticsRecord({}, {}, 0, 0)
    for row, channel in product(range(0, rows, tile[0]), range(0, output.channels, tile[1])):
        part = Tile(row, min(tile[0], rows - row), channel, min(tile[1], output.channels - channel))
        place = np.s_[row : row + part.images, channel : channel + part.channels]
        sampled = bool(sampled_tiles[row, channel])
        result = program(inputs, part, exponents, sampled=sampled, draw=draw)
        got[place], sample[place] = result.output, sampled
        events = events.merge(result.events)
        assert (result.statistics is not None) == (sampled and not spec.exact)
        record = record.merge(result.statistics) if result.statistics else record
    whole = run(spec, parameters, inputs, exponents, sample=sample, draw=draw)
    assert (BACKEND.download(whole.output) == got).all()
    assert whole.events == events
    assert spec.exact or whole.statistics == record


CONVOLUTION = Convolution((3, 2), (2, 1), (1, 0, 2, 1), (1, 2), groups=2)
MAP, RESULT = TensorSpec(4, 5, 5, 8), TensorSpec(6, 3, 4, 8)

GRADIENTS = [
    (ConvolutionDataGradient(CONVOLUTION), (RESULT,), MAP, (6, 2, 3, 2)),
    (ConvolutionWeightGradient(CONVOLUTION), (MAP, RESULT), TensorSpec(2, 3, 2, 16), None),
    (BiasGradient(), (RESULT,), TensorSpec(1, 1, 1, 16), None),
    (MaxPoolGradient(MaxPool((2, 2), (1, 2), (0, 1, 1, 0))), (MAP, TensorSpec(4, 5, 3, 8)), MAP, None),
    (AveragePoolGradient(AveragePool((2, 2), (1, 2), (0, 1, 1, 0))), (TensorSpec(4, 5, 3, 8),), MAP, None),
    (ResizeGradient(), (TensorSpec(4, 7, 3, 8),), MAP, None),
    (ReluGradient(), (MAP, MAP), MAP, None),
    (ClipGradient(FixedConstant(192, 5)), (MAP, MAP), MAP, None),
    (LeakyReluGradient(FixedConstant(205, 11)), (MAP, MAP), MAP, None),
    (SigmoidGradient(), (MAP, MAP), MAP, None),
    (ChannelSlice(1), (RESULT,), TensorSpec(4, 3, 4, 8), None),
    (ChannelAffine(16, 16), (MAP, MAP), MAP, (2, 4, 1, 1)),
]


@pytest.mark.parametrize("tile", [(1, 1), (2, 3), (7, 99)])
@pytest.mark.parametrize(("operation", "tensors", "output", "weight"), GRADIENTS)
@pytest.mark.parametrize("rounding", [Rounding.HALF_EVEN, Rounding.STOCHASTIC])
def test_tiles_make_up_the_gradient(operation, tensors, output, weight, tile, rounding):
    """The rows of a tile are images, or output channels of the layer where the operation sums over images."""
    rng = np.random.default_rng(3)
    spec = KernelSpec("gradient", operation, tensors, output, rounding=rounding)
    inputs = [rng.integers(-128, 128, (3, *tensor.shape)) for tensor in tensors]
    parameters = NO_PARAMETERS if weight is None else KernelParameters(rng.integers(-128, 128, weight))
    rows = 6 if isinstance(operation, ConvolutionWeightGradient | BiasGradient) else 3
    assert_tiles_make_up_the_layer(spec, parameters, inputs, rows, tile, KernelExponents((0, 1)[: len(tensors)], 6))


def test_batches_make_up_the_step(monkeypatch):
    """Neither the chunks inside a call nor the split of a step into calls shows in the results."""
    rng = np.random.default_rng(9)
    tensor, draw = TensorSpec(4, 3, 3, 8), Draw(1, 2, 3)
    operation = Convolution((3, 3), padding=(1, 1, 1, 1), bias_bits=16)
    spec = KernelSpec("conv", operation, (tensor,), tensor, rounding=Rounding.STOCHASTIC)
    x = rng.integers(-128, 128, (7, 4, 3, 3))
    parameters = KernelParameters(rng.integers(-128, 128, (4, 4, 3, 3)), rng.integers(-999, 999, 4))
    exponents, sample = KernelExponents((0,), 9), rng.random((7, 4)) < 0.5
    whole = run(spec, parameters, [x], exponents, sample=sample, draw=draw)
    monkeypatch.setattr("binpoint.backends.oracle.backend.CHUNK_ELEMENTS", 1000)
    chunked = run(spec, parameters, [x], exponents, sample=sample, draw=draw)
    first = run(spec, parameters, [x[:3]], exponents, sample=sample[:3], draw=draw)
    rest = run(spec, parameters, [x[3:]], exponents, sample=sample[3:], draw=draw, first_image=3)
    joined = np.concatenate([BACKEND.download(first.output), BACKEND.download(rest.output)])
    assert (BACKEND.download(whole.output) == BACKEND.download(chunked.output)).all()
    assert (BACKEND.download(whole.output) == joined).all()
    assert whole.statistics == chunked.statistics == first.statistics.merge(rest.statistics)
    assert whole.events == chunked.events == first.events.merge(rest.events)


def test_statistics_only_where_asked():
    tensor = TensorSpec(2, 1, 1, 8)
    spec = KernelSpec("alone", Widen(), (tensor,), tensor)
    x, exponents = np.ones((1, 2, 1, 1), int), KernelExponents((0,), 0)
    assert run(spec, NO_PARAMETERS, [x], exponents).statistics is None
    nothing = run(spec, NO_PARAMETERS, [x], exponents, sample=np.zeros((1, 2), bool))
    assert nothing.statistics == StatisticsRecord({}, {}, 0, 0)


@pytest.mark.parametrize(("bits", "dtype"), [(2, np.int8), (8, np.int8), (9, np.int16), (16, np.int16), (17, np.int32)])
def test_upload_and_download(bits, dtype):
    tensor, greatest = TensorSpec(2, 1, 3, bits), 2 ** (bits - 1) - 1
    x = np.full((4, 2, 1, 3), greatest)
    buffer = BACKEND.upload(x, tensor)
    assert buffer.batch == 4
    assert BACKEND.download(buffer).dtype == dtype
    assert (BACKEND.download(buffer) == x).all()
    with pytest.raises(ValueError, match="bits"):
        BACKEND.upload(x + 1, tensor)
    with pytest.raises(ValueError, match="shape"):
        BACKEND.upload(x[:, :1], tensor)

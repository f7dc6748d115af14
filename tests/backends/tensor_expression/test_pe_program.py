"""PE programs: any tile of any layer equals the oracle's, and tiles together equal the layer."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from binpoint.backends.kernel import EMPTY_RECORD, Draw, Events, KernelExponents, Tile
from binpoint.backends.oracle.backend import OracleBackend
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from tests.backends.layers import LAYERS, batches, mantissas, random_exponents, random_parameters

ORACLE = OracleBackend()


@pytest.mark.parametrize("name", LAYERS)
def test_tiles(generic: TensorExpressionBackend, name: str) -> None:
    spec = LAYERS[name]
    generator = np.random.default_rng(len(name))
    parameters = random_parameters(spec, generator)
    program = generic.prepare_pe_program(spec, parameters, 2, 3)
    reference = ORACLE.prepare_pe_program(spec, parameters, 2, 3)
    exponents = random_exponents(spec, generator)
    for inputs in batches(spec, generator):
        images, channels = len(inputs[0]), spec.output.channels
        for sampled in (False, True):
            image, channel = int(generator.integers(images)), int(generator.integers(channels))
            tile = Tile(image, min(2, images - image), channel, min(3, channels - channel))
            result = program(inputs, tile, exponents, sampled=sampled, draw=Draw(1, 2, 3))
            expected = reference(inputs, tile, exponents, sampled=sampled, draw=Draw(1, 2, 3))
            np.testing.assert_array_equal(result.output, expected.output)
            assert result.output.dtype == expected.output.dtype
            assert (result.events, result.statistics) == (expected.events, expected.statistics)


@pytest.mark.parametrize("name", ["conv-stochastic", "average-pool"])
def test_all_tiles_are_the_layer(generic: TensorExpressionBackend, name: str) -> None:
    spec = LAYERS[name]
    generator = np.random.default_rng(0)
    parameters = random_parameters(spec, generator)
    exponents, draw = random_exponents(spec, generator), Draw(4, 5, 6)
    buffers = [generic.upload(x, tensor) for x, tensor in zip(next(batches(spec, generator)), spec.inputs, strict=True)]
    images, channels = buffers[0].batch, spec.output.channels
    sample = np.zeros((images, channels), np.bool_)
    sample[::2, 1::4] = True
    program = generic.prepare_pe_program(spec, parameters, 1, 1)
    inputs = [generic.download(buffer) for buffer in buffers]
    output = np.zeros((images, *spec.output.shape), np.int64)
    events, record = Events(0), EMPTY_RECORD
    for n, c in product(range(images), range(channels)):
        result = program(inputs, Tile(n, 1, c, 1), exponents, sampled=bool(sample[n, c]), draw=draw)
        output[n, c], events = result.output[0, 0], events.merge(result.events)
        record = record if result.statistics is None else record.merge(result.statistics)
    whole = generic.prepare(spec, parameters)(buffers, exponents, sample=sample, draw=draw)
    np.testing.assert_array_equal(output, generic.download(whole.output))
    assert (events, record) == (whole.events, whole.statistics)


def test_results_are_the_callers(generic: TensorExpressionBackend) -> None:
    """A later call does not change what an earlier one gave."""
    spec = LAYERS["relu"]
    inputs = [np.full((2, *spec.inputs[0].shape), [[[[3]]], [[[5]]]])]
    program = generic.prepare_pe_program(spec, random_parameters(spec, np.random.default_rng(0)), 1, 1)
    first = program(inputs, Tile(0, 1, 0, 1), KernelExponents((0,), 0))
    second = program(inputs, Tile(1, 1, 0, 1), KernelExponents((0,), 0))
    assert np.unique(first.output) == 3
    assert np.unique(second.output) == 5


@pytest.mark.parametrize("kind", ["aligned", "strange"])
def test_inputs_may_change_between_calls(generic: TensorExpressionBackend, kind: str) -> None:
    """Arrays read in place and arrays that must be copied are both read at each call."""
    spec = LAYERS["relu"]
    uploaded = generic.upload(np.ones((1, *spec.inputs[0].shape), np.int64), spec.inputs[0])
    array = generic.download(uploaded) if kind == "aligned" else np.ones((1, *spec.inputs[0].shape), np.int32)
    program = generic.prepare_pe_program(spec, random_parameters(spec, np.random.default_rng(0)), 1, 1)
    for value in (3, 7):
        array[...] = value
        assert np.unique(program([array], Tile(0, 1, 0, 1), KernelExponents((0,), 0)).output) == value


def test_inputs_of_another_shape(generic: TensorExpressionBackend) -> None:
    spec = LAYERS["relu"]
    program = generic.prepare_pe_program(spec, random_parameters(spec, np.random.default_rng(0)), 1, 1)
    with pytest.raises(ValueError, match="shape"):
        program([mantissas((1, 2, 3, 4), 8, np.random.default_rng(0))], Tile(0, 1, 0, 1), KernelExponents((0,), 0))

"""The backend: buffers and threads."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tvm_ffi

from binpoint.backends.kernel import Draw, TensorSpec
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.threads import available_cores, reserve_threads, use_threads
from tests.backends.layers import LAYERS, mantissas, random_exponents, random_parameters


@pytest.mark.parametrize("spec", [TensorSpec(3, 4, 5, 8), TensorSpec(17, 1, 1, 16), TensorSpec(9, 2, 2, 5)], ids=str)
def test_a_feature_map_comes_back(generic: TensorExpressionBackend, spec: TensorSpec) -> None:
    sent = mantissas((3, *spec.shape), spec.bits, np.random.default_rng(0))
    buffer = generic.upload(sent, spec)
    assert buffer.batch == 3
    received = generic.download(buffer)
    np.testing.assert_array_equal(received, sent)
    assert received.dtype == (np.int8 if spec.bits <= 8 else np.int16)


def test_what_does_not_fit_a_feature_map(generic: TensorExpressionBackend) -> None:
    spec = TensorSpec(3, 4, 5, 5)
    with pytest.raises(ValueError, match="shape"):
        generic.upload(np.zeros((1, 3, 5, 4), np.int64), spec)
    with pytest.raises(ValueError, match="5 bits"):
        generic.upload(np.full((1, 3, 4, 5), 16), spec)


def test_results_do_not_depend_on_threads(generic: TensorExpressionBackend) -> None:
    spec = LAYERS["conv-stochastic"]
    generator = np.random.default_rng(0)
    kernel = generic.prepare(spec, random_parameters(spec, generator))
    buffer = generic.upload(mantissas((9, *spec.inputs[0].shape), 8, generator), spec.inputs[0])
    sample = generator.random((9, spec.output.channels)) < 0.5
    exponents = random_exponents(spec, generator)
    results = []
    for threads in (1, None):
        use_threads(threads)
        assert tvm_ffi.get_global_func("runtime.NumThreads")() == (threads or available_cores())
        results.append(kernel([buffer], exponents, sample=sample, draw=Draw(1, 2, 3)))
    np.testing.assert_array_equal(generic.download(results[0].output), generic.download(results[1].output))
    assert results[0].statistics == results[1].statistics
    assert results[0].events == results[1].events


def test_the_pool_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for inherited in ("1", "5000", "many"):
        monkeypatch.setenv("TVM_NUM_THREADS", inherited)
        reserve_threads(None)
        assert int(os.environ["TVM_NUM_THREADS"]) == available_cores()
    reserve_threads(50)
    assert os.environ["TVM_NUM_THREADS"] == "50"

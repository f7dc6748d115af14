"""The float network against loops, and its limits: memory, types, names."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

from binpoint.backends.float_reference import run_float
from binpoint.backends.kernel import (
    Add,
    AveragePool,
    Clip,
    Concat,
    Convolution,
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
from binpoint.backends.program import KernelCall, Program, ProgramInput
from binpoint.support.numeric import fixed_constant


def single(operation, inputs, output, activation=None, weight=None, bias=None):
    """A program of one kernel `y` over inputs x0, x1, ..."""
    names = tuple(f"x{index}" for index in range(len(inputs)))
    spec = KernelSpec("y", operation, tuple(inputs), output, activation)
    declared = tuple(ProgramInput(name, tensor) for name, tensor in zip(names, inputs, strict=True))
    return Program("single", declared, (KernelCall(spec, names, weight, bias),), ("y",))


def compute(operation, arrays, output_shape, activation=None, parameters=None, dtype=np.float64):
    parameters = parameters or {}
    program = single(
        operation,
        [TensorSpec(*array.shape[1:], 8) for array in arrays],
        TensorSpec(*output_shape, 8),
        activation,
        "w" if "w" in parameters else None,
        "b" if "b" in parameters else None,
    )
    inputs = {f"x{index}": array for index, array in enumerate(arrays)}
    return run_float(program, parameters, inputs, dtype)["y"]


def random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


@pytest.mark.parametrize(
    "operation",
    [
        Convolution((3, 3)),
        Convolution((3, 2), stride=(2, 1), padding=(0, 1, 2, 0)),
        Convolution((2, 3), dilation=(2, 2), padding=(1, 1, 1, 1)),
        Convolution((3, 3), padding=(1, 1, 1, 1), groups=2),
        Convolution((3, 3), padding=(1, 1, 1, 1), groups=4),
    ],
)
def test_convolution_equals_loops(operation):
    x, bias = random(2, 4, 6, 7), random(8)
    w = random(8, 4 // operation.groups, *operation.kernel)
    (stride_h, stride_w), (dilation_h, dilation_w) = operation.stride, operation.dilation
    top, left, bottom, right = operation.padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    height = (padded.shape[2] - dilation_h * (operation.kernel[0] - 1) - 1) // stride_h + 1
    width = (padded.shape[3] - dilation_w * (operation.kernel[1] - 1) - 1) // stride_w + 1
    expected = np.empty((2, 8, height, width))
    group = 4 // operation.groups
    for n, k, i, j in np.ndindex(expected.shape):
        first = k // (8 // operation.groups) * group
        expected[n, k, i, j] = bias[k]
        for c, r, s in np.ndindex(w.shape[1:]):
            pixel = padded[n, first + c, i * stride_h + r * dilation_h, j * stride_w + s * dilation_w]
            expected[n, k, i, j] += pixel * w[k, c, r, s]
    got = compute(operation, [x], expected.shape[1:], parameters={"w": w, "b": bias})
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_linear_weights_may_be_matrices():
    x, w = random(5, 12, 1, 1), random(3, 12)
    for shape in ((3, 12), (3, 12, 1, 1)):
        got = compute(Convolution((1, 1)), [x], (3, 1, 1), parameters={"w": w.reshape(shape)})
        np.testing.assert_allclose(got[:, :, 0, 0], x[:, :, 0, 0] @ w.T, rtol=1e-12)


def test_pools_leave_padding_out():
    x = -np.abs(random(1, 1, 4, 4)) - 1
    largest = compute(MaxPool((3, 3), (2, 2), (1, 1, 0, 0)), [x], (1, 2, 2))
    mean = compute(AveragePool((3, 3), (2, 2), (1, 1, 0, 0)), [x], (1, 2, 2))
    padded_mean = compute(AveragePool((3, 3), (2, 2), (1, 1, 0, 0), include_padding=True), [x], (1, 2, 2))
    assert largest[0, 0, 0, 0] == x[0, 0, :2, :2].max()
    assert largest[0, 0, 1, 1] == x[0, 0, 1:, 1:].max()
    np.testing.assert_allclose(
        mean[0, 0], [[x[..., :2, :2].mean(), x[..., :2, 1:].mean()], [x[..., 1:, :2].mean(), x[..., 1:, 1:].mean()]]
    )
    np.testing.assert_allclose(padded_mean[0, 0, 0, 0], x[..., :2, :2].sum() / 9)


def test_moves_and_joins():
    x, y = random(2, 3, 2, 2), random(2, 3, 2, 2) + 1
    assert (compute(Add(), [x, y, x], (3, 2, 2)) == x + y + x).all()
    assert (compute(Concat(), [x, y], (6, 2, 2)) == np.concatenate([x, y], axis=1)).all()
    assert (compute(Reshape(), [x], (12, 1, 1)).reshape(2, -1) == x.reshape(2, -1)).all()
    assert (compute(Resize(), [x], (3, 4, 2)) == x.repeat(2, axis=2)).all()


def test_activations():
    x = np.array([-1000.0, -8.0, -1.0, 0.0, 3.0, 6.0, 9.0]).reshape(1, 7, 1, 1)
    shape, flat = (7, 1, 1), x.ravel()
    assert compute(Widen(), [x], shape, Relu()).ravel().tolist() == [0, 0, 0, 0, 3, 6, 9]
    assert compute(Widen(), [x], shape, Clip(fixed_constant(Fraction(6), 8))).ravel().tolist() == [0, 0, 0, 0, 3, 6, 6]
    leaky = compute(Widen(), [x], shape, LeakyRelu(fixed_constant(Fraction(1, 10), 8))).ravel()
    assert leaky.tolist() == [value if value >= 0 else value * 205 / 2048 for value in flat]
    sigmoid = compute(Sigmoid(), [x], shape).ravel()
    np.testing.assert_allclose(sigmoid, [0.0, *(1 / (1 + math.exp(-value)) for value in flat[1:])], rtol=1e-14)
    softmax = compute(Softmax(), [x], shape).ravel()
    np.testing.assert_allclose(softmax, np.exp(flat - 9) / np.exp(flat - 9).sum(), rtol=1e-14)
    assert softmax.sum() == pytest.approx(1)


def small_network():
    """x -> conv -> pool -> flatten -> linear, with a branch: the linear reads what add joins."""
    x, c, p, v, f = (TensorSpec(*shape, 8) for shape in ((1, 6, 6), (2, 6, 6), (2, 3, 3), (18, 1, 1), (4, 1, 1)))
    calls = (
        KernelCall(
            KernelSpec("conv", Convolution((3, 3), padding=(1,) * 4), (x,), c, Relu()), ("x",), "conv.w", "conv.b"
        ),
        KernelCall(KernelSpec("pool", MaxPool((2, 2), (2, 2)), (c,), p), ("conv",)),
        KernelCall(KernelSpec("mean", AveragePool((2, 2), (2, 2)), (c,), p), ("conv",)),
        KernelCall(KernelSpec("sum", Add(), (p, p), p), ("pool", "mean")),
        KernelCall(KernelSpec("vector", Reshape(), (p,), v), ("sum",)),
        KernelCall(KernelSpec("linear", Convolution((1, 1)), (v,), f), ("vector",), "linear.w", "linear.b"),
    )
    parameters = {"conv.w": random(2, 1, 3, 3), "conv.b": random(2), "linear.w": random(4, 18), "linear.b": random(4)}
    return Program("small", (ProgramInput("x", x),), calls, ("linear",)), parameters


def test_network_names_every_tensor_and_chunks_agree(monkeypatch):
    program, parameters = small_network()
    x = random(9, 1, 6, 6)
    whole = run_float(program, parameters, {"x": x}, np.float64)
    assert set(whole) == {"x", "conv", "pool", "mean", "sum", "vector", "linear"}
    assert (whole["x"] == x).all()
    assert (whole["conv"] >= 0).all()
    expected = whole["vector"].reshape(9, 18) @ parameters["linear.w"].T + parameters["linear.b"]
    np.testing.assert_allclose(whole["linear"].reshape(9, 4), expected, rtol=1e-12)
    monkeypatch.setattr("binpoint.backends.float_reference.CHUNK_ELEMENTS", 700)
    chunked = run_float(program, parameters, {"x": x}, np.float64)
    for name, values in whole.items():
        np.testing.assert_allclose(chunked[name], values, rtol=1e-12, atol=1e-12)


def test_keep_returns_only_what_is_asked_for():
    program, parameters = small_network()
    x = random(3, 1, 6, 6)
    kept = run_float(program, parameters, {"x": x}, keep=program.outputs)
    assert set(kept) == {"linear"}
    np.testing.assert_array_equal(kept["linear"], run_float(program, parameters, {"x": x})["linear"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("images", [0, 1, 2])
def test_every_tensor_has_the_type_and_the_batch(dtype, images):
    program, parameters = small_network()
    for tensor in run_float(program, parameters, {"x": random(images, 1, 6, 6)}, dtype).values():
        assert tensor.dtype == dtype
        assert len(tensor) == images
    x = np.zeros((images, 3, 1, 1))
    for operation in (Sigmoid(), Softmax()):
        assert compute(operation, [x], (3, 1, 1), dtype=dtype).dtype == dtype
    for activation in (Clip(fixed_constant(Fraction(6), 8)), LeakyRelu(fixed_constant(Fraction(1, 3), 8))):
        assert compute(Widen(), [x], (3, 1, 1), activation, dtype=dtype).dtype == dtype


def test_unknown_names_are_refused():
    program, parameters = small_network()
    with pytest.raises(KeyError, match="pool2"):
        run_float(program, parameters, {"x": random(1, 1, 6, 6)}, keep=["pool2"])


def test_numbers_past_the_range_become_infinite_without_a_warning():
    x = np.full((1, 2, 1, 1), 3e38, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total = compute(Add(), [x, x], (2, 1, 1), dtype=np.float32)
        difference = compute(Convolution((1, 1)), [x], (1, 1, 1), None, {"w": np.array([[2, -2]])}, np.float32)
    assert np.isinf(total).all()
    assert not np.isfinite(difference).all()

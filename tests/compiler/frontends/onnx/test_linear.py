from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx.helper import make_node

from binpoint.compiler.frontends.onnx.importer import import_onnx
from binpoint.support.diagnostics import UserError


@pytest.mark.parametrize(("trans_b", "alpha", "beta"), list(itertools.product((0, 1), (1.0, 0.5), (1.0, 2.0, 0.0))))
def test_gemm(onnx_case, trans_b, alpha, beta):
    matrix = onnx_case.floats(4, 6) if trans_b else onnx_case.floats(6, 4)
    node = make_node("Gemm", ["x", "b", "c"], ["y"], transB=trans_b, alpha=alpha, beta=beta)
    imported = onnx_case.check([node], ("N", 6), {"b": matrix, "c": onnx_case.floats(4)})
    assert imported.kinds == ["linear"]
    assert imported.last["bias"] is (beta != 0)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 4), (1, 1)])
def test_gemm_bias_of_any_shape(onnx_case, shape):
    constants = {"b": onnx_case.floats(6, 4), "c": np.asarray(onnx_case.floats(*shape))}
    onnx_case.check([make_node("Gemm", ["x", "b", "c"], ["y"])], ("N", 6), constants)


def test_gemm_with_a_transposed_input(onnx_case):
    nodes = [
        make_node("Reshape", ["x", "s"], ["column"]),
        make_node("Gemm", ["column", "b"], ["y"], transA=1),
    ]
    onnx_case.check(nodes, (1, 6), {"s": [6, 1], "b": onnx_case.floats(6, 4)})


def test_matmul_and_bias(onnx_case):
    nodes = [make_node("MatMul", ["x", "w"], ["m"]), make_node("Add", ["b", "m"], ["y"])]
    imported = onnx_case.check(nodes, ("N", 6), {"w": onnx_case.floats(6, 4), "b": onnx_case.floats(4)})
    assert imported.kinds == ["linear"]
    assert imported.last["bias"] is True


def test_matmul_with_a_constant_on_the_left(onnx_case):
    nodes = [make_node("Transpose", ["x"], ["t"], perm=[1, 0]), make_node("MatMul", ["w", "t"], ["y"])]
    assert onnx_case.check(nodes, (1, 6), {"w": onnx_case.floats(4, 6)}).kinds == ["linear"]


def test_matmul_of_a_vector_without_batch(onnx_case):
    nodes = [make_node("Reshape", ["x", "s"], ["v"]), make_node("MatMul", ["w", "v"], ["y"])]
    assert onnx_case.check(nodes, (1, 6), {"s": [6], "w": onnx_case.floats(4, 6)}).kinds == ["linear"]


@pytest.mark.parametrize("permutation", [(0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3)])
def test_a_transpose_before_flatten_permutes_the_weights(onnx_case, permutation):
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("Transpose", ["r"], ["t"], perm=permutation),
        make_node("Flatten", ["t"], ["f"]),
        make_node("Relu", ["f"], ["g"]),
        make_node("Gemm", ["g", "b"], ["y"]),
    ]
    imported = onnx_case.check(nodes, ("N", 3, 4, 5), {"b": onnx_case.floats(60, 7)})
    assert imported.kinds == ["relu", "relu", "flatten", "linear"]


@pytest.mark.parametrize(
    ("nodes", "shape", "reason"),
    [
        ([make_node("MatMul", ["x", "w"], ["y"])], ("N", 3, 6), "along one axis of a 1x3x6 tensor"),
        ([make_node("MatMul", ["x", "x"], ["y"])], ("N", 6, 6), "product of two feature maps"),
        ([make_node("Gemm", ["x", "w", "x"], ["y"])], ("N", 6), "bias depends on"),
        ([make_node("MatMul", ["x", "w"], ["y"])], ("N", 5), "reads 6 values, its input has 5"),
        ([make_node("Gemm", ["x", "w", "c"], ["y"])], ("N", 6), "bias has shape"),
        ([make_node("MatMul", ["x", "stack"], ["y"])], ("N", 6), "rank 3"),
    ],
)
def test_refused_products(onnx_case, nodes, shape, reason):
    constants = {"w": onnx_case.floats(6, 4), "c": onnx_case.floats(5), "stack": onnx_case.floats(2, 6, 4)}
    with pytest.raises(UserError, match=reason):
        import_onnx(onnx_case.model(nodes, shape, constants))

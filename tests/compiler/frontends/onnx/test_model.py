from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.helper import make_node

from binpoint.compiler.frontends.onnx.importer import import_onnx
from binpoint.support.diagnostics import UserError


def code(path):
    with pytest.raises(UserError) as caught:
        import_onnx(path)
    assert all(str(path) in str(diagnostic) for diagnostic in caught.value.diagnostics)
    return caught.value.diagnostics[0].code


@pytest.mark.parametrize("data", [b"", b"\0" * 50, b'{"a": 1}', b"network x {}", b"\x08\x03"])
def test_files_that_are_no_models(tmp_path, data):
    path = tmp_path / "bad.onnx"
    path.write_bytes(data)
    assert code(path) == "not-onnx"


def test_truncated_models(onnx_case):
    path = onnx_case.model([make_node("Relu", ["x"], ["y"])])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert code(path) in ("not-onnx", "invalid-onnx", "unsupported-input")


def test_missing_files_and_directories(tmp_path):
    assert code(tmp_path / "none.onnx") == "unreadable-file"
    assert code(tmp_path) == "unreadable-file"


def test_models_that_break_the_rules(onnx_case):
    path = onnx_case.model([make_node("Relu", ["nowhere"], ["y"])])
    assert code(path) == "invalid-onnx"


def test_names_that_are_no_text(onnx_case):
    path = onnx_case.model([make_node("Relu", ["x"], ["yyyy"])], outputs=("yyyy",))
    path.write_bytes(path.read_bytes().replace(b"yyyy", b"y\xff\xfey"))
    assert code(path) == "not-onnx"


def test_old_operator_sets(onnx_case):
    path = onnx_case.model([make_node("Relu", ["x"], ["y"])], opset=6)
    assert code(path) == "old-opset"


def with_external_weights(onnx_case):
    path = onnx_case.model([make_node("Conv", ["x", "w"], ["y"])], constants={"w": onnx_case.floats(4, 3, 3, 3)})
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path, path.parent / "weights.bin"


def test_external_weights_are_read(onnx_case):
    path, _ = with_external_weights(onnx_case)
    assert onnx_case.compare(path).kinds == ["conv2d"]


def test_missing_external_weights(onnx_case):
    path, weights = with_external_weights(onnx_case)
    weights.unlink()
    assert code(path) == "external-data"


def test_truncated_external_weights(onnx_case):
    path, weights = with_external_weights(onnx_case)
    weights.write_bytes(weights.read_bytes()[:-4])
    assert code(path) in ("external-data", "corrupt-tensor")


def test_data_that_do_not_fit_their_shape(onnx_case):
    path = onnx_case.model([make_node("Conv", ["x", "w"], ["y"])], constants={"w": onnx_case.floats(4, 3, 3, 3)})
    model = onnx.load(path)
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    path.write_bytes(model.SerializeToString())
    assert code(path) in ("corrupt-tensor", "invalid-onnx")


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_other_floating_point_weights_become_float32(onnx_case, kind):
    weight = onnx_case.floats(4, 3, 3, 3).astype(kind)
    path = onnx_case.model([make_node("Conv", ["x", "w"], ["y"])], constants={"w": weight})
    _, parameters = import_onnx(path)
    np.testing.assert_array_equal(parameters["conv1.weight"], weight.astype(np.float32))


@pytest.mark.parametrize(("value", "reason"), [(np.nan, "NaN or infinity"), (1e300, "leave the range of float32")])
def test_weights_that_float32_cannot_hold(onnx_case, value, reason):
    path = onnx_case.model([make_node("Conv", ["x", "w"], ["y"])], constants={"w": np.full((4, 3, 1, 1), value)})
    with pytest.raises(UserError, match=reason):
        import_onnx(path)


def test_the_importer_says_what_it_needs(onnx_case, monkeypatch):
    path = onnx_case.model([make_node("Relu", ["x"], ["y"])])
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(UserError, match="missing-package"):
        import_onnx(path)

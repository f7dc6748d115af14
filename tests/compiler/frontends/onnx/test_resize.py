from __future__ import annotations

import numpy as np
import pytest
from onnx.helper import make_node

from binpoint.compiler.frontends.onnx.importer import import_onnx
from binpoint.support.diagnostics import UserError


def scales(*values):
    return np.float32(values)


@pytest.mark.parametrize(("opset", "as_attribute"), [(7, True), (9, False)])
def test_upsample(onnx_case, opset, as_attribute):
    factors = [1.0, 1.0, 2.0, 3.0]
    node = (
        make_node("Upsample", ["x"], ["y"], mode="nearest", scales=factors)
        if as_attribute
        else make_node("Upsample", ["x", "s"], ["y"], mode="nearest")
    )
    imported = onnx_case.check([node], constants={} if as_attribute else {"s": scales(*factors)}, opset=opset)
    assert imported.kinds == ["upsample"]
    assert imported.last["scale"] == (2, 3)


def test_resize_of_opset_10(onnx_case):
    imported = onnx_case.check([make_node("Resize", ["x", "s"], ["y"])], constants={"s": scales(1, 1, 2, 2)}, opset=10)
    assert imported.last["scale"] == (2, 2)


@pytest.mark.parametrize("mode", ["asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"])
@pytest.mark.parametrize("rounding", ["floor", "round_prefer_floor", "round_prefer_ceil", "ceil"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 27), (12, 18), (4, 3), (5, 7), (8, 18)])
def test_resize_is_imported_exactly_where_the_same_pixels_are_read(onnx_case, mode, rounding, rows, columns):
    """ONNX Runtime itself says which of the modes read pixel floor(i * size / output)."""
    import onnxruntime

    attributes = {"coordinate_transformation_mode": mode, "nearest_mode": rounding}
    node = make_node("Resize", ["x", "", "", "s"], ["y"], **attributes)
    path = onnx_case.model([node], (1, 1, 8, 9), {"s": [1, 1, rows, columns]})
    image = np.arange(72, dtype=np.float32).reshape(1, 1, 8, 9)
    (result,) = onnxruntime.InferenceSession(path).run(None, {"x": image})
    ours = image[:, :, np.arange(rows) * 8 // rows][:, :, :, np.arange(columns) * 9 // columns]
    if np.array_equal(result, ours):
        factors = rows % 8 == 0 and columns % 9 == 0
        assert onnx_case.compare(path).kinds == ["upsample" if factors else "resize"]
    else:
        with pytest.raises(UserError, match="pixels it reads others"):
            import_onnx(path)


def test_fractional_scales(onnx_case):
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    node = make_node("Resize", ["x", "", "s"], ["y"], **attributes)
    imported = onnx_case.check([node], ("N", 2, 4, 6), {"s": scales(1, 1, 1.5, 0.5)})
    assert imported.last["size"] == (6, 3)


def test_sizes_with_the_batch_of_the_export(onnx_case):
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    node = make_node("Resize", ["x", "", "", "s"], ["y"], **attributes)
    imported = onnx_case.check([node], (4, 2, 4, 6), {"s": [4, 2, 8, 12]})
    assert imported.last["scale"] == (2, 2)


def test_named_axes(onnx_case):
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "axes": [3]}
    node = make_node("Resize", ["x", "", "", "s"], ["y"], **attributes)
    assert onnx_case.check([node], ("N", 2, 4, 6), {"s": [12]}, opset=18).last["scale"] == (1, 2)


def test_a_resize_to_the_same_size_is_nothing(onnx_case):
    nodes = [make_node("Resize", ["x", "", "s"], ["r"], mode="linear"), make_node("Relu", ["r"], ["y"])]
    assert onnx_case.check(nodes, constants={"s": scales(1, 1, 1, 1)}).kinds == ["relu"]


@pytest.mark.parametrize(
    ("attributes", "values", "reason"),
    [
        ({"mode": "linear"}, (1, 1, 2, 2), "interpolates \\(linear\\)"),
        ({"mode": "cubic"}, (1, 1, 2, 2), "interpolates \\(cubic\\)"),
        ({}, (1, 2, 2, 2), "changes the batch or the channels"),
        ({}, (2, 2), "2 sizes or scales for 4 axes"),
        ({}, (1, 1, 0.1, 1), "resizes to 1x3x0x9"),
        ({"coordinate_transformation_mode": "tf_crop_and_resize"}, (1, 1, 2, 2), "tf_crop_and_resize"),
        ({"antialias": 1, "mode": "linear"}, (1, 1, 2, 2), "antialias"),
    ],
)
def test_refused_resizes(onnx_case, attributes, values, reason):
    node = make_node("Resize", ["x", "", "s"], ["y"], **attributes)
    with pytest.raises(UserError, match=reason):
        import_onnx(onnx_case.model([node], constants={"s": scales(*values)}, opset=18))

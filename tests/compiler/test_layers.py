"""The layer kinds: shapes against a count of windows, parameters, and what fits no shape."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.compiler.layers import LAYER_KINDS, AttributeType, ShapeError, format_shape
from binpoint.compiler.network import normalize_attributes

PAIR = st.tuples(st.integers(1, 4), st.integers(1, 4))
PADDING = st.tuples(*[st.integers(0, 3)] * 4)
SHAPE = st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))


def shape(kind, *inputs, **written):
    return LAYER_KINDS[kind].output_shape(inputs, normalize_attributes(kind, written))


def parameters(kind, *inputs, **written):
    return LAYER_KINDS[kind].parameters(inputs, normalize_attributes(kind, written))


def windows(size, kernel, stride, before, after, dilation=1):
    """How many windows fit, counted one by one."""
    return sum(
        start % stride == 0 and start + dilation * (kernel - 1) < before + size + after
        for start in range(before + size + after)
    )


@given(SHAPE, PAIR, PAIR, PADDING, PAIR)
def test_convolutions_have_as_many_results_as_windows_fit(size, kernel, stride, padding, dilation):
    window = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    expected = tuple(
        windows(size[1 + axis], kernel[axis], stride[axis], padding[axis], padding[axis + 2], dilation[axis])
        for axis in (0, 1)
    )
    if 0 in expected:
        for kind, more in (("conv2d", {"channels": 5}), ("depthwise", {})):
            with pytest.raises(ShapeError, match="does not fit"):
                shape(kind, size, **window, **more)
        return
    assert shape("conv2d", size, channels=5, **window) == (5, *expected)
    assert shape("depthwise", size, multiplier=2, **window) == (2 * size[0], *expected)


@given(SHAPE, PAIR, PAIR, PADDING)
def test_pools_have_as_many_results_as_windows_fit(size, kernel, stride, padding):
    expected = tuple(
        windows(size[1 + axis], kernel[axis], stride[axis], padding[axis], padding[axis + 2]) for axis in (0, 1)
    )
    too_wide = any(padding[side] >= kernel[side % 2] for side in range(4))
    for kind in ("max_pool", "avg_pool"):
        if too_wide or 0 in expected:
            with pytest.raises(ShapeError, match="smaller than its kernel" if too_wide else "does not fit"):
                shape(kind, size, kernel=kernel, stride=stride, padding=padding)
        else:
            result = shape(kind, size, kernel=kernel, stride=stride, padding=padding)
            assert result == (size[0], *expected)


def test_a_pools_stride_is_its_kernel():
    assert shape("max_pool", (3, 12, 12), kernel=(3, 4)) == (3, 4, 3)


@pytest.mark.parametrize("kind", ["relu", "relu6", "leaky_relu", "sigmoid", "batch_norm", "softmax", "cross_entropy"])
def test_kinds_that_keep_the_shape(kind):
    assert shape(kind, (3, 4, 5)) == (3, 4, 5)


@pytest.mark.parametrize(
    ("kind", "inputs", "written", "expected"),
    [
        ("linear", [(7, 1, 1)], {"features": 3}, (3, 1, 1)),
        ("global_max_pool", [(3, 4, 5)], {}, (3, 1, 1)),
        ("global_avg_pool", [(3, 4, 5)], {}, (3, 1, 1)),
        ("add", [(3, 4, 5)] * 3, {}, (3, 4, 5)),
        ("concat", [(3, 4, 5), (1, 4, 5), (2, 4, 5)], {}, (6, 4, 5)),
        ("upsample", [(3, 4, 5)], {"scale": (2, 3)}, (3, 8, 15)),
        ("resize", [(3, 4, 5)], {"size": (9, 2)}, (3, 9, 2)),
        ("flatten", [(3, 4, 5)], {}, (60, 1, 1)),
        ("reshape", [(3, 4, 5)], {"shape": (5, 12, 1)}, (5, 12, 1)),
    ],
)
def test_shapes(kind, inputs, written, expected):
    assert shape(kind, *inputs, **written) == expected


@pytest.mark.parametrize(
    ("kind", "inputs", "written", "message"),
    [
        ("conv2d", [(3, 8, 8)], {"channels": 4, "kernel": (1, 1), "groups": 2}, "2 groups do not divide 3 input"),
        ("conv2d", [(4, 8, 8)], {"channels": 3, "kernel": (1, 1), "groups": 2}, "2 groups do not divide 3 output"),
        ("linear", [(3, 1, 2)], {"features": 4}, "reads a vector"),
        ("add", [(3, 4, 5), (3, 4, 6)], {}, "one shape"),
        ("concat", [(3, 4, 5), (3, 5, 5)], {}, "one height and width"),
        ("reshape", [(3, 4, 5)], {"shape": (59, 1, 1)}, "number of elements"),
    ],
)
def test_shapes_that_do_not_fit(kind, inputs, written, message):
    with pytest.raises(ShapeError, match=message):
        shape(kind, *inputs, **written)


@pytest.mark.parametrize(
    ("kind", "written", "expected"),
    [
        ("conv2d", {"channels": 8, "kernel": (3, 5)}, {"weight": (8, 6, 3, 5), "bias": (8,)}),
        ("conv2d", {"channels": 8, "kernel": (3, 5), "groups": 2, "bias": False}, {"weight": (8, 3, 3, 5)}),
        ("depthwise", {"kernel": (3, 5), "multiplier": 2}, {"weight": (12, 1, 3, 5), "bias": (12,)}),
        ("depthwise", {"kernel": (1, 1), "bias": False}, {"weight": (6, 1, 1, 1)}),
        ("linear", {"features": 8}, {"weight": (8, 6), "bias": (8,)}),
        ("linear", {"features": 8, "bias": False}, {"weight": (8, 6)}),
        ("batch_norm", {}, {"gamma": (6,), "beta": (6,), "mean": (6,), "variance": (6,)}),
        ("relu", {}, {}),
    ],
)
def test_parameters(kind, written, expected):
    assert parameters(kind, (6, 9, 9), **written) == expected


@pytest.mark.parametrize("kind", LAYER_KINDS.values(), ids=lambda kind: kind.name)
def test_the_table_is_consistent(kind):
    assert LAYER_KINDS[kind.name] is kind
    names = [attribute.name for attribute in kind.attributes]
    assert len(set(names)) == len(names)
    for attribute in kind.attributes:
        assert kind.attribute(attribute.name) is attribute
        assert not (attribute.required and attribute.default is not None)
        assert attribute.required or attribute.default is not None or attribute.name == "stride"
        if attribute.bounds is not None:
            assert attribute.type is AttributeType.REAL
            assert attribute.bounds[0] <= attribute.default <= attribute.bounds[1]
    assert kind.attribute("no such attribute") is None


def test_reals_are_exact():
    assert LAYER_KINDS["batch_norm"].attribute("epsilon").default == Fraction(1, 100_000)


@pytest.mark.parametrize(
    ("sizes", "text"), [((10, 1, 1), "10"), ((1, 28, 28), "1x28x28"), ((3, 1, 2), "3x1x2"), ((4, 3, 3, 3), "4x3x3x3")]
)
def test_shapes_are_written_as_in_the_language(sizes, text):
    assert format_shape(sizes) == text


@given(SHAPE, PAIR)
def test_upsampling_is_what_numpy_repeats(size, scale):
    repeated = np.zeros(size).repeat(scale[0], axis=1).repeat(scale[1], axis=2)
    assert shape("upsample", size, scale=scale) == repeated.shape

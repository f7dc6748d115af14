"""Feature maps in channel blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.backends.kernel import TensorSpec
from binpoint.backends.memory import ALIGNMENT, aligned_copy, aligned_empty, aligned_zeros, is_aligned
from binpoint.backends.tensor_expression.layout import (
    PLAIN,
    Layout,
    channel_block,
    feature_map_layout,
    pack,
    storage_dtype,
    unpack,
)

specs = st.builds(TensorSpec, *[st.integers(1, 40), st.integers(1, 4), st.integers(1, 4), st.integers(2, 16)])


@pytest.mark.parametrize(
    ("channels", "block"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 8), (8, 8), (15, 8), (16, 16), (17, 16), (512, 16)]
)
def test_block_sizes(channels: int, block: int) -> None:
    assert channel_block(channels) == block


@pytest.mark.parametrize(("bits", "dtype"), [(2, "int8"), (8, "int8"), (9, "int16"), (16, "int16")])
def test_storage(bits: int, dtype: str) -> None:
    assert storage_dtype(bits) == dtype


@pytest.mark.parametrize("bits", [1, 17])
def test_widths_without_storage(bits: int) -> None:
    with pytest.raises(ValueError, match=str(bits)):
        storage_dtype(bits)


@given(specs, st.integers(1, 3))
def test_packing(spec: TensorSpec, batch: int) -> None:
    """Every element lies where `index` says, the rest is zero, and unpacking gives the map back."""
    layout = feature_map_layout(spec)
    mantissas = np.arange(1, 1 + batch * np.prod(spec.shape)).reshape(batch, *spec.shape).astype(np.int16)
    blocked = aligned_empty(layout.shape(spec, batch), "int16")
    blocked[...] = -1
    pack(mantissas, spec, blocked)
    for n, c, h, w in np.ndindex(*mantissas.shape):
        assert blocked[layout.index(n, c, h, w)] == mantissas[n, c, h, w]
    assert np.count_nonzero(blocked) == mantissas.size
    unpacked = unpack(blocked, spec)
    np.testing.assert_array_equal(unpacked, mantissas)
    assert is_aligned(unpacked)


@given(st.integers(1, 40), st.sampled_from([1, 3, 8, 16]))
def test_positions_and_coordinates_agree(channel: int, block: int) -> None:
    layout = Layout(block)
    n, b, h, w, lane = layout.index(2, channel, 3, 4)
    assert layout.coordinates(n, b, h, w, lane) == (2, channel, 3, 4)
    assert layout.filter_index(channel, 5, 6, 7)[0] == b


def test_plain_is_nchw() -> None:
    assert PLAIN.shape(TensorSpec(5, 2, 3, 8), 4) == (4, 5, 2, 3, 1)


@given(st.lists(st.integers(1, 9), max_size=4).map(tuple), st.sampled_from(["int8", "int16", "int64"]))
def test_memory_is_aligned(shape: tuple[int, ...], dtype: str) -> None:
    array = aligned_zeros(shape, dtype)
    assert array.shape == shape
    assert array.dtype == dtype
    assert not array.any()
    assert is_aligned(array)
    assert is_aligned(aligned_copy(array.T))


def test_what_is_not_aligned() -> None:
    array = aligned_zeros((4, ALIGNMENT), "int8")
    assert not is_aligned(array.reshape(-1)[1:])
    assert not is_aligned(array.T)
    array.setflags(write=False)
    assert not is_aligned(array)

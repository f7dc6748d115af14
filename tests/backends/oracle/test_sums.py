"""Channel-wise sums against loops."""

import numpy as np
import pytest

from binpoint.backends.gradients import SumsSpec
from binpoint.backends.kernel import TensorSpec
from tests.backends.oracle.reference import BACKEND, FILLS, mantissas


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("bits", [(8, 8), (16, 16), (8, 16)])
def test_sums_are_exact(bits, fill):
    rng = np.random.default_rng(2)
    tensors = tuple(TensorSpec(3, 4, 5, each) for each in bits)
    x, dy = (mantissas((6, *tensor.shape), tensor.bits, fill, rng) for tensor in tensors)
    spec = SumsSpec("moments", tensors, ((0,), (0, 0), (1,), (1, 0)))
    buffers = [BACKEND.upload(values, tensor) for values, tensor in zip((x, dy), tensors, strict=True)]
    got = BACKEND.prepare_sums(spec)(buffers)
    assert got.dtype == np.int64
    assert got.shape == (4, 3)
    for c in range(3):
        xs, gradients = ([int(m) for m in values[:, c].flat] for values in (x, dy))
        expected = [sum(xs), sum(m * m for m in xs), sum(gradients), sum(map(int.__mul__, gradients, xs))]
        assert got[:, c].tolist() == expected


@pytest.mark.parametrize("term", [(0, 0, 0), (0, 0)])
def test_a_sum_past_64_bits_is_refused(term):
    """One product of 2^93, and four of 2^62."""
    tensor = TensorSpec(1, 1, 4, 32)
    x = BACKEND.upload(np.full((1, 1, 1, 4), -(2**31)), tensor)
    with pytest.raises(OverflowError, match="moments"):
        BACKEND.prepare_sums(SumsSpec("moments", (tensor,), (term,)))([x])

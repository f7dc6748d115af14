import numpy as np

from binpoint.backends.workspace import Workspace


def test_memory_is_used_again():
    workspace = Workspace(np.float32)
    first = workspace.array("columns", (4, 6))
    assert first.dtype == np.float32
    assert first.flags.c_contiguous
    smaller = workspace.array("columns", (3, 2))
    assert smaller.shape == (3, 2)
    assert np.shares_memory(first, smaller)
    assert not np.shares_memory(first, workspace.array("padded", (4, 6)))


def test_memory_grows():
    workspace = Workspace(np.float64)
    workspace.array("columns", (2, 2))
    grown = workspace.array("columns", (50, 3))
    assert grown.shape == (50, 3)
    assert np.shares_memory(grown, workspace.array("columns", (1,)))

"""Backends that keep their compiled kernels for the session, away from the user's cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.capability import X86_64_V3, Capability, cpu_flags


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="session")
def generic(kernel_cache: Path) -> TensorExpressionBackend:
    return TensorExpressionBackend(capability=Capability.GENERIC, cache=kernel_cache)


@pytest.fixture(scope="session")
def native(kernel_cache: Path) -> TensorExpressionBackend:
    """For the best level that this machine has; skips where that is the generic one, which has tests of its own."""
    if not cpu_flags() >= X86_64_V3:
        pytest.skip("this CPU has no level above the generic one")
    return TensorExpressionBackend(capability=Capability.AVX2, cache=kernel_cache)

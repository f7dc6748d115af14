"""Feature maps in memory, and arrays as the arguments of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import tvm_ffi

from binpoint.backends.kernel import IntArray, TensorSpec
from binpoint.backends.memory import aligned_empty
from binpoint.backends.tensor_expression.library import load_runtime


@dataclass(frozen=True)
class FeatureMap:
    """A batch of one feature map in channel blocks: `blocked` is aligned, [N, C blocks, H, W, block]."""

    spec: TensorSpec
    blocked: IntArray

    @property
    def batch(self) -> int:
        """N, the number of images."""
        return len(self.blocked)


class Workspace:
    """Scratch memory that calls share, by name; an array is valid until its name is taken again."""

    def __init__(self) -> None:
        self._memory: dict[str, IntArray] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: str) -> IntArray:
        """An aligned, uninitialised array."""
        size = prod(shape) * np.dtype(dtype).itemsize
        memory = self._memory.get(name)
        if memory is None or memory.size < size:
            memory = self._memory[name] = aligned_empty((size,), "int8")
        return memory[:size].view(dtype).reshape(shape)


def argument(array: IntArray, lanes: int = 1) -> Any:
    """An aligned array as a kernel takes it, without a copy; with `lanes` elements of the last axis as one vector."""
    tensor = tvm_ffi.from_dlpack(array)
    if lanes == 1:
        return tensor
    *outer, last = array.shape
    return _create_view()(
        tensor, tvm_ffi.Shape([*outer, last // lanes]), tvm_ffi.dtype(f"{array.dtype.name}x{lanes}"), 0
    )


@lru_cache(maxsize=1)
def _create_view() -> Any:
    load_runtime()
    return tvm_ffi.get_global_func("runtime.TVMTensorCreateView")

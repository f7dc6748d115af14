"""Feature maps in memory, and arrays as the arguments of kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import tvm_ffi

from binpoint.backends.kernel import IntArray, TensorSpec
from binpoint.backends.memory import aligned_empty
from binpoint.backends.tensor_expression.layout import feature_map_layout, storage_dtype
from binpoint.backends.tensor_expression.library import load_runtime


@dataclass(frozen=True)
class FeatureMap:
    """A batch of one feature map in channel blocks: `blocked` is aligned, [N, C blocks, H, W, block]."""

    spec: TensorSpec
    blocked: IntArray
    _arguments: dict[int, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def batch(self) -> int:
        """N, the number of images."""
        return len(self.blocked)

    def argument(self, lanes: int = 1) -> Any:
        """The whole map as a kernel takes it; see `argument`."""
        found = self._arguments.get(lanes)
        if found is None:
            found = self._arguments[lanes] = argument(self.blocked, lanes)
        return found


def empty_feature_map(spec: TensorSpec, batch: int) -> FeatureMap:
    """Memory for a batch of a feature map."""
    shape = feature_map_layout(spec).shape(spec, batch)
    return FeatureMap(spec, aligned_empty(shape, storage_dtype(spec.bits)))


class Workspace:
    """Scratch memory that calls share, by name; an array is valid until its name is taken again."""

    def __init__(self) -> None:
        self._memory: dict[str, IntArray] = {}
        self._taken: dict[str, dict[tuple[Any, ...], tuple[IntArray, Any]]] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: str, lanes: int = 1) -> tuple[IntArray, Any]:
        """An aligned, uninitialised array, and the same as the argument of a kernel."""
        taken = self._taken.setdefault(name, {})
        key = shape, dtype, lanes
        found = taken.get(key)
        if found is None:
            array = self._array(name, shape, dtype)
            found = taken[key] = array, argument(array, lanes)
        return found

    def _array(self, name: str, shape: tuple[int, ...], dtype: str) -> IntArray:
        size = prod(shape) * np.dtype(dtype).itemsize
        memory = self._memory.get(name)
        if memory is None or memory.size < size:
            memory = self._memory[name] = aligned_empty((size,), "int8")
            self._taken[name].clear()
        return memory[:size].view(dtype).reshape(shape)


def argument(array: IntArray, lanes: int = 1) -> Any:
    """An aligned array as a kernel takes it, without a copy; with `lanes` elements of the last axis as one vector."""
    tensor = tvm_ffi.from_dlpack(array)
    if lanes == 1:
        return tensor
    *outer, last = array.shape
    return _create_view()(tensor, _shape((*outer, last // lanes)), _vector(array.dtype, lanes), 0)


@lru_cache(maxsize=1)
def _create_view() -> Any:
    load_runtime()
    return tvm_ffi.get_global_func("runtime.TVMTensorCreateView")


@lru_cache(maxsize=4096)
def _shape(shape: tuple[int, ...]) -> Any:
    return tvm_ffi.Shape(shape)


@lru_cache(maxsize=64)
def _vector(element: np.dtype[Any], lanes: int) -> Any:
    # Remembered by the dtype itself: its name takes longer to find than the view.
    return tvm_ffi.dtype(f"{element.name}x{lanes}")

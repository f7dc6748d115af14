"""Arrays that a computation uses again the next time, so that their memory is fetched once."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import DTypeLike

from binpoint.backends.float_reference import FloatArray


class Workspace:
    """Memory by key. An array keeps its values until the same key is asked for again."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._memory: dict[str, FloatArray] = {}

    def array(self, key: str, shape: tuple[int, ...]) -> FloatArray:
        """An uninitialised array, contiguous."""
        size = prod(shape)
        memory = self._memory.get(key)
        if memory is None or memory.size < size:
            memory = self._memory[key] = np.empty(size, self.dtype)
        return memory[:size].reshape(shape)

"""Exact sums over images and pixels of each channel, and of products of feature maps: moments of a batch norm."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from binpoint.backends.kernel import IntArray, TensorSpec
from binpoint.backends.tensor_expression.buffers import FeatureMap, Workspace
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.library import Function

Terms = tuple[tuple[int, ...], ...]
"""Products of inputs, each by index; see `binpoint.backends.gradients.SumsSpec`."""


class ChannelSums:
    """See `binpoint.backends.training_backend.Sums`.

    The code sums the pixels of each image; the host adds up the images.

    Raises:
        OverflowError: the sum of one image may leave 64 bits.
    """

    def __init__(self, inputs: tuple[TensorSpec, ...], terms: Terms, compiler: Compiler) -> None:
        self._inputs, self._terms = inputs, terms
        self._compiler = compiler
        self._workspace = Workspace()
        pixels = inputs[0].height * inputs[0].width
        self._bound = max(pixels << sum(inputs[index].bits - 1 for index in term) for term in terms)
        if self._bound >= 1 << 63:
            raise OverflowError(f"sums of products of {terms} may leave 64 bits")
        self._dtype = "int32" if self._bound < 1 << 31 else "int64"

    def __call__(self, inputs: Sequence[FeatureMap]) -> IntArray:
        """int64 (terms, C)."""
        shape = inputs[0].blocked.shape
        taken = [
            self._workspace.take(f"sums{index}", (*shape[:2], shape[-1]), self._dtype)
            for index in range(len(self._terms))
        ]
        self._function(*(each.argument() for each in inputs), *(each for _, each in taken))
        return np.stack([self._over_images(array) for array, _ in taken])

    @cached_property
    def _function(self) -> Function:
        def build() -> Any:
            from binpoint.backends.tensor_expression import channel_sums_kernel

            return channel_sums_kernel.build(self._inputs, self._terms, self._dtype)

        return self._compiler.function(f"sums {self._inputs!r} {self._terms!r}", build)

    def _over_images(self, sums: IntArray) -> IntArray:
        if self._bound * len(sums) < 1 << 63:
            total = sums.sum(axis=0, dtype=np.int64)
        else:
            exact = sums.sum(axis=0, dtype=object)
            total = exact.astype(np.int64)
            if (total != exact).any():
                raise OverflowError(f"a sum of products of {self._terms} leaves 64 bits")
        channels: IntArray = total.reshape(-1)[: self._inputs[0].channels]
        return channels

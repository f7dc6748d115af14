"""The sums of a parameter's gradient, before they meet the accumulator: how they are computed, and by which design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from binpoint.backends.gradients import ConvolutionWeightGradient
from binpoint.backends.kernel import Convolution, IntArray, KernelSpec, TensorSpec
from binpoint.backends.memory import aligned_copy
from binpoint.backends.tensor_expression.buffers import FeatureMap, argument
from binpoint.backends.tensor_expression.capability import Capability
from binpoint.backends.tensor_expression.channel_sums import ChannelSums
from binpoint.backends.tensor_expression.compiler import Compiler
from binpoint.backends.tensor_expression.convolution_tiling import LANES
from binpoint.backends.tensor_expression.layout import feature_map_layout
from binpoint.backends.tensor_expression.library import Function
from binpoint.backends.tensor_expression.parameter_layout import ParameterLayout
from binpoint.backends.tensor_expression.weight_gradient_tiling import WeightGradientTiling, choose_gradient_tiling

INT16_LEAST = -(1 << 15)


class ParameterSums(Protocol):
    """Computes the exact sums of one parameter's gradient."""

    name: str
    layout: ParameterLayout

    def __call__(self, inputs: Sequence[FeatureMap], sums: IntArray) -> None:
        """Fill `sums`, an aligned array of the layout's shape, int32 or int64."""


def parameter_sums(spec: KernelSpec, compiler: Compiler) -> ParameterSums:
    """The fastest way to the sums of a gradient of weights or biases."""
    if not isinstance(spec.operation, ConvolutionWeightGradient):
        return BiasSums(spec.inputs[0], compiler)
    # The widths of the forward layer's parameters do not change the code.
    convolution = replace(spec.operation.convolution, weight_bits=0, bias_bits=None)
    images, gradient = spec.inputs
    if compiler.capability is Capability.AVX2:
        tiling = choose_gradient_tiling(convolution, images, gradient)
        if tiling is not None:
            return Avx2WeightSums(tiling, compiler)
    return GenericWeightSums(convolution, images, gradient, compiler)


class Avx2WeightSums:
    """See `weight_gradient_avx2`."""

    name = "avx2"

    def __init__(self, tiling: WeightGradientTiling, compiler: Compiler) -> None:
        self.layout = tiling.layout
        self._tiling = tiling
        self._compiler = compiler
        self._functions: dict[str, Function] = {}

    def __call__(self, inputs: Sequence[FeatureMap], sums: IntArray) -> None:
        """Fill the sums."""
        images, gradient = inputs
        if self._tiling.split and _may_wrap(images.blocked, gradient.blocked):
            self._in_parts(images, gradient, sums)
        else:
            self._run(images, gradient, sums)

    def _run(self, images: FeatureMap, gradient: FeatureMap, sums: IntArray) -> None:
        chunk_pairs = self._tiling.chunk_pairs(images.batch)
        function = self._function(sums.dtype.name)
        function(images.argument(), gradient.argument(LANES), argument(sums, LANES), chunk_pairs)

    def _function(self, reduction: str) -> Function:
        def build() -> Any:
            from binpoint.backends.tensor_expression import weight_gradient_avx2

            return weight_gradient_avx2.build(self._tiling, reduction)

        if reduction not in self._functions:
            what = f"weight gradient {self._tiling!r} {reduction}"
            self._functions[reduction] = self._compiler.function(what, build)
        return self._functions[reduction]

    def _in_parts(self, images: FeatureMap, gradient: FeatureMap, sums: IntArray) -> None:
        """A pair of products of -2^15 each wraps: no dy of a pair is both, if what is taken away is added later."""
        lower, upper = _pairs(gradient.blocked)
        both = (lower == INT16_LEAST) & (upper == INT16_LEAST)
        reduced, rest = aligned_copy(gradient.blocked), aligned_copy(np.zeros_like(gradient.blocked))
        _pairs(reduced)[1][both] += 1
        _pairs(rest)[1][both] = -1
        self._run(images, FeatureMap(gradient.spec, reduced), sums)
        first = sums.copy()
        self._run(images, FeatureMap(gradient.spec, rest), sums)
        sums += first


def _may_wrap(images: IntArray, gradient: IntArray) -> bool:
    """Whether x and dy both have a pair of images with -2^15 twice at one place."""
    return all(_has_least_pair(each) for each in (images, gradient))


def _has_least_pair(array: IntArray) -> bool:
    if array.dtype != np.int16 or array.min(initial=0) > INT16_LEAST:
        return False
    lower, upper = _pairs(array)
    return bool(((lower == INT16_LEAST) & (upper == INT16_LEAST)).any())


def _pairs(array: IntArray) -> tuple[IntArray, IntArray]:
    """The first and the second images of the pairs that are whole."""
    whole = len(array) // 2 * 2
    return array[0:whole:2], array[1:whole:2]


class GenericWeightSums:
    """The portable definition: a task for each block of output channels and input channel, lanes along the block."""

    name = "generic"

    def __init__(self, convolution: Convolution, images: TensorSpec, gradient: TensorSpec, compiler: Compiler) -> None:
        channels = images.channels // convolution.groups
        block = feature_map_layout(gradient).block
        self.layout = ParameterLayout(
            (gradient.channels, channels, *convolution.kernel), -(-block // LANES) * LANES, channels
        )
        self._shapes = convolution, images, gradient
        self._compiler = compiler
        self._functions: dict[str, Function] = {}

    def __call__(self, inputs: Sequence[FeatureMap], sums: IntArray) -> None:
        """Fill the sums."""
        function = self._function(sums.dtype.name)
        function(*(each.argument() for each in inputs), argument(sums))

    def _function(self, reduction: str) -> Function:
        def build() -> Any:
            from binpoint.backends.tensor_expression import weight_gradient_generic

            return weight_gradient_generic.build(*self._shapes, self.layout, reduction)

        if reduction not in self._functions:
            what = f"generic weight gradient {self._shapes!r} {reduction}"
            self._functions[reduction] = self._compiler.function(what, build)
        return self._functions[reduction]


class BiasSums:
    """Sums over images and pixels of each channel."""

    name = "generic"

    def __init__(self, gradient: TensorSpec, compiler: Compiler) -> None:
        self.layout = ParameterLayout((gradient.channels, 1, 1, 1), LANES, 1)
        self._sums = ChannelSums((gradient,), ((0,),), compiler)

    def __call__(self, inputs: Sequence[FeatureMap], sums: IntArray) -> None:
        """Fill the sums."""
        sums[...] = 0
        sums.reshape(-1)[: self.layout.parameter[0]] = self._sums(inputs)[0]

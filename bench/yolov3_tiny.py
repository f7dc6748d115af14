"""The layers of YOLOv3-tiny as a chain of kernels, for measurements: the shapes of the network, random weights.

Weights have the spread of the trained network's, whose largest sum over a filter is about 2^14.7 at 8 bits. Exponents
are calibrated on the picture: the top position of each layer's values keeps its bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import numpy as np

from binpoint.backends.kernel import (
    Concat,
    Convolution,
    KernelExponents,
    KernelParameters,
    KernelSpec,
    LeakyRelu,
    MaxPool,
    Resize,
    TensorSpec,
)
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.support.numeric import BlockPolicy, Granularity, fixed_constant

BITS = 8
PICTURE = 416
LEAKY = LeakyRelu(fixed_constant(Fraction(1, 10), BITS))
WEIGHT_DEVIATION = 5


@dataclass(frozen=True)
class Layer:
    """A kernel of the chain, what it reads, and its parameters."""

    spec: KernelSpec
    inputs: tuple[str, ...]
    parameters: KernelParameters = KernelParameters()

    def macs(self) -> int:
        """Multiply-accumulates of an image."""
        weight = self.parameters.weight
        return 0 if weight is None else prod(self.spec.output.shape) * weight[0].size


def layers(granularity: Granularity | None = None) -> list[Layer]:
    """The network; with a granularity the feature maps behind convolutions and concat have it, pools derive theirs."""
    chain = _Chain(granularity)
    x = "picture"
    for index, channels in enumerate((16, 32, 64, 128, 256, 512), start=1):
        x = chain.convolution(f"conv{index}", x, channels)
        x = chain.pool(f"pool{index}", x, stride=2 if index < 6 else 1)
    x = chain.convolution("conv7", x, 1024)
    neck = chain.convolution("conv8", x, 256, kernel=1)
    x = chain.convolution("conv9", neck, 512)
    chain.convolution("large", x, 255, kernel=1, head=True)
    x = chain.convolution("conv10", neck, 128, kernel=1)
    x = chain.upsample("upsample", x)
    x = chain.concat("joined", (x, "conv5"))
    x = chain.convolution("conv11", x, 256)
    chain.convolution("small", x, 255, kernel=1, head=True)
    return chain.layers


class _Chain:
    def __init__(self, granularity: Granularity | None) -> None:
        self.layers: list[Layer] = []
        self._granularity = granularity
        self._tensors = {"picture": TensorSpec(3, PICTURE, PICTURE, BITS)}
        self._generator = np.random.default_rng(0)

    def convolution(self, name: str, source: str, channels: int, kernel: int = 3, *, head: bool = False) -> str:
        tensor = self._tensors[source]
        operation = Convolution((kernel, kernel), padding=(kernel // 2,) * 4, weight_bits=BITS, bias_bits=16)
        weight = self._generator.normal(0, WEIGHT_DEVIATION, (channels, tensor.channels, kernel, kernel))
        parameters = KernelParameters(
            np.clip(np.rint(weight), -127, 127).astype(np.int64), self._generator.integers(-1000, 1000, channels)
        )
        output = replace(tensor, channels=channels)
        return self._add(name, operation, (source,), output, parameters, None if head else LEAKY)

    def pool(self, name: str, source: str, stride: int) -> str:
        tensor = self._tensors[source]
        padding = (0, 0, 2 - stride, 2 - stride)
        output = replace(tensor, height=tensor.height // stride, width=tensor.width // stride)
        return self._add(name, MaxPool((2, 2), (stride, stride), padding), (source,), output, moves=stride == 2)

    def upsample(self, name: str, source: str) -> str:
        tensor = self._tensors[source]
        output = replace(tensor, height=2 * tensor.height, width=2 * tensor.width)
        return self._add(name, Resize(), (source,), output, moves=True)

    def concat(self, name: str, sources: tuple[str, ...]) -> str:
        tensors = [self._tensors[source] for source in sources]
        return self._add(name, Concat(), sources, replace(tensors[0], channels=sum(each.channels for each in tensors)))

    def _add(
        self,
        name: str,
        operation: Convolution | MaxPool | Resize | Concat,
        inputs: tuple[str, ...],
        output: TensorSpec,
        parameters: KernelParameters = KernelParameters(),  # noqa: B008
        activation: LeakyRelu | None = None,
        *,
        moves: bool = False,
    ) -> str:
        tensors = tuple(self._tensors[each] for each in inputs)
        if self._granularity is not None:
            output = replace(output, granularity=self._moved(tensors[0], output) if moves else self._granularity)
        policy = None if moves or self._granularity is None else BlockPolicy()
        spec = KernelSpec(name, operation, tensors, output, activation, statistics=not operation.exact, blocks=policy)
        self.layers.append(Layer(spec, inputs, parameters))
        self._tensors[name] = output
        return name

    @staticmethod
    def _moved(source: TensorSpec, output: TensorSpec) -> Granularity:
        block = source.granularity.block
        assert block is not None
        size = tuple(each * output.height // source.height for each in block)
        return Granularity((size[0], size[1]), source.granularity.per_channel)


def picture() -> np.ndarray:
    """Random patches of all sizes: quiet and lively regions side by side."""
    generator = np.random.default_rng(1)
    total = np.zeros((1, 3, PICTURE, PICTURE))
    for size in (8, 16, 32, 104, 416):
        patches = generator.normal(0, 1, (1, 3, size, size)) * generator.random((1, 1, size, size)) ** 2
        total += np.repeat(np.repeat(patches, PICTURE // size, 2), PICTURE // size, 3)
    return np.clip(np.rint(total * 20 + 40), 0, 127).astype(np.int64)


def calibrate(backend: TensorExpressionBackend) -> dict[str, int]:
    """The exponent of each tensor of the chain, with inputs and parameters at 2^0."""
    exponents, maps = {"picture": 0}, {"picture": backend.upload(picture(), TensorSpec(3, PICTURE, PICTURE, BITS))}
    for layer in layers():
        spec, name = layer.spec, layer.spec.name
        kernel = backend.prepare(spec, layer.parameters)
        inputs = [maps[each] for each in layer.inputs]
        settings = KernelExponents(tuple(exponents[each] for each in layer.inputs), 0, 0, exponents[layer.inputs[0]])
        if spec.exact:
            exponents[name] = exponents[layer.inputs[0]]
        else:
            sample = np.ones((1, spec.output.channels), np.bool_)
            top = kernel(inputs, settings, sample=sample).statistics.msb_max
            exponents[name] = top - (BITS - 2)
            settings = replace(settings, output=exponents[name])
        maps[name] = kernel(inputs, settings).output
    return exponents

"""What a network is made of: shapes, parameters and multiply-accumulates, layer by layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import networkx as nx

from binpoint.compiler.layers import Shape
from binpoint.compiler.network import NetworkGraph


@dataclass(frozen=True)
class LayerSummary:
    """One layer. `macs` counts multiply-accumulates with weights for one image; other layers have none."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    shape: Shape
    parameters: int
    macs: int


@dataclass(frozen=True)
class NetworkSummary:
    """All layers in data-flow order, and the inputs and layers that reach no output."""

    layers: tuple[LayerSummary, ...]
    unused: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """Float parameters of the network, running statistics of batch norm included."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def macs(self) -> int:
        """Multiply-accumulates with weights for one image."""
        return sum(layer.macs for layer in self.layers)


def summarize(network: NetworkGraph) -> NetworkSummary:
    """The summary of a network.

    A weight is used once for every pixel of the output, so a layer has weights x H_out x W_out
    multiply-accumulates; zeros of the padding count, as the array multiplies them too.
    """
    sizes: dict[str, dict[str, int]] = {name: {} for name in network.layers}
    for parameter, shape in network.parameter_shapes().items():
        owner, _, short = parameter.rpartition(".")
        sizes[owner][short] = math.prod(shape)
    layers = []
    for name in network.order:
        _, height, width = network.shapes[name]
        macs = sizes[name].get("weight", 0) * height * width
        layer = network.layers[name]
        layers.append(
            LayerSummary(name, layer.kind, layer.inputs, network.shapes[name], sum(sizes[name].values()), macs)
        )
    used = set(network.outputs).union(*(nx.ancestors(network.graph, output) for output in network.outputs))
    unused = tuple(name for name in (*network.inputs, *network.order) if name not in used)
    return NetworkSummary(tuple(layers), unused)

"""The network graph: layers with checked names, attributes and shapes, as a networkx DAG."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import networkx as nx

from binpoint.compiler.layers import LAYER_KINDS, Shape, ShapeError, format_shape
from binpoint.support.detector import Detector, check_detector
from binpoint.support.diagnostics import Collector, Diagnostic, Location, did_you_mean
from binpoint.support.numeric import NumericPolicy
from binpoint.support.shapes import MAXIMUM_ELEMENTS


@dataclass(frozen=True)
class Input:
    """A declared input of the network: (C, H, W) and how pixels become numbers.

    A pixel p of channel c enters as (p * scale - mean[c]) / deviation[c]; mean and deviation have one entry,
    or one a channel. Arrays given as floating point (.npy) enter as they are.
    """

    name: str
    shape: Shape
    scale: Fraction = Fraction(1)
    mean: tuple[Fraction, ...] = (Fraction(0),)
    deviation: tuple[Fraction, ...] = (Fraction(1),)
    location: Location | None = None


@dataclass(frozen=True)
class Layer:
    """One layer: its kind, the names of the layers or inputs it reads, its attributes in normal form.

    `attributes` holds every attribute of the kind, defaults filled in (see `normalize_attributes`).
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    location: Location | None = None


def normalize_attributes(kind: str, written: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the defaults of a layer kind: a pool's stride is its kernel where it is not written."""
    attributes = {attribute.name: attribute.default for attribute in LAYER_KINDS[kind].attributes}
    attributes.update(written)
    if "stride" in attributes and attributes["stride"] is None:
        attributes["stride"] = attributes["kernel"]
    return MappingProxyType(attributes)


class NetworkGraph:
    """A checked network: every name is known, there is no cycle, every shape fits.

    Args:
        name: the network's name.
        inputs: declared inputs, in order.
        layers: layers in the order of the file; the order need not be topological.
        outputs: names of the layers whose results leave the network; none means the layers nobody reads.
        numeric: the numeric policy.
        weights: the safetensors file that the network names, if any.
        detector: how to read detections out of its outputs, None where it detects nothing.

    Raises:
        UserError: with every fault found (unknown and duplicate names, arity, cycles, shapes, heads).
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Input],
        layers: Sequence[Layer],
        outputs: Sequence[str] = (),
        numeric: NumericPolicy | None = None,
        weights: Path | None = None,
        location: Location | None = None,
        detector: Detector | None = None,
    ) -> None:
        self.name = name
        self.inputs = {declared.name: declared for declared in inputs}
        self.layers = {layer.name: layer for layer in layers}
        self.numeric = numeric or NumericPolicy()
        self.weights = weights
        self.location = location
        self.detector = detector
        collector = Collector()
        _check_names(inputs, layers, outputs, location, collector)
        collector.raise_any()
        self.shapes: Mapping[str, Shape] = MappingProxyType(self._infer_shapes(collector))
        collector.raise_any()
        read = {source for layer in layers for source in layer.inputs}
        self.outputs = tuple(outputs) or tuple(layer for layer in self.layers if layer not in read)
        if detector is not None:
            found = {output: self.shapes[output] for output in self.outputs}
            check_detector(detector, found, {declared.name: declared.shape for declared in inputs})

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """Inputs and layers as nodes, data flow as edges."""
        return _data_flow(self.inputs, self.layers.values())

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Layer names so that each comes after what it reads; otherwise in the order of the file."""
        rank = {name: index for index, name in enumerate((*self.inputs, *self.layers))}
        ordered = nx.lexicographical_topological_sort(self.graph, key=rank.__getitem__)
        return tuple(name for name in ordered if name in self.layers)

    def with_numeric(self, numeric: NumericPolicy) -> NetworkGraph:
        """The same network under another numeric policy."""
        network = copy.copy(self)
        network.numeric = numeric
        return network

    def input_shapes(self, layer: str) -> tuple[Shape, ...]:
        """The shapes that a layer reads, in operand order."""
        return tuple(self.shapes[source] for source in self.layers[layer].inputs)

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all float parameters by full name (`conv1.weight`), in layer order."""
        shapes = {}
        for name in self.order:
            layer = self.layers[name]
            for short, shape in LAYER_KINDS[layer.kind].parameters(self.input_shapes(name), layer.attributes).items():
                shapes[f"{name}.{short}"] = shape
        return shapes

    def _infer_shapes(self, collector: Collector) -> dict[str, Shape]:
        """Shapes in data-flow order. A layer after a faulty one is skipped: one fault, one message."""
        shapes: dict[str, Shape] = {name: declared.shape for name, declared in self.inputs.items()}
        for name in self.order:
            layer = self.layers[name]
            if not all(source in shapes for source in layer.inputs):
                continue
            inputs = tuple(shapes[source] for source in layer.inputs)
            try:
                shape = LAYER_KINDS[layer.kind].output_shape(inputs, layer.attributes)
                parameters = LAYER_KINDS[layer.kind].parameters(inputs, layer.attributes)
                _check_elements(input=max(inputs, key=prod), output=shape, **parameters)
                shapes[name] = shape
            except ShapeError as error:
                collector.add(
                    Diagnostic(
                        "shape-mismatch",
                        f'{layer.kind} "{name}": {error}',
                        layer.location,
                        error.found,
                        error.expected,
                        error.hint,
                    )
                )
        return shapes


def _check_elements(**shapes: tuple[int, ...]) -> None:
    """Raise ShapeError for the first feature map or parameter, by its name, that is too large."""
    for name, shape in shapes.items():
        if prod(shape) > MAXIMUM_ELEMENTS:
            raise ShapeError(
                f"its {name} is too large", found=format_shape(shape), expected=f"at most {MAXIMUM_ELEMENTS} elements"
            )


def _check_names(
    inputs: Sequence[Input],
    layers: Sequence[Layer],
    outputs: Sequence[str],
    location: Location | None,
    collector: Collector,
) -> None:
    """Report duplicate and unknown names, wrong arity and cycles."""
    known: set[str] = set()
    nodes: list[Input | Layer] = [*inputs, *layers]
    for node in nodes:
        if node.name in known:
            collector.add(Diagnostic("duplicate-name", f'the name "{node.name}" is taken', node.location, node.name))
        known.add(node.name)
    for layer in layers:
        for source in layer.inputs:
            if source not in known:
                collector.add(
                    Diagnostic(
                        "unknown-name",
                        f'{layer.kind} "{layer.name}" reads "{source}", which is neither an input nor a layer',
                        layer.location,
                        source,
                        "an input or a layer of the network",
                        did_you_mean(source, known - {layer.name}),
                    )
                )
        _check_arity(layer, collector)
    names = {layer.name for layer in layers}
    for output in outputs:
        if output not in names:
            message = f'the output "{output}" is not a layer'
            collector.add(Diagnostic("unknown-name", message, location, output, "a layer", did_you_mean(output, names)))
    if not inputs:
        collector.add(Diagnostic("no-input", "the network declares no input", location))
    if not layers:
        collector.add(Diagnostic("no-layer", "the network has no layer", location))
    if not collector.diagnostics:
        _check_cycles({declared.name: declared for declared in inputs}, layers, collector)


def _check_arity(layer: Layer, collector: Collector) -> None:
    least, most = LAYER_KINDS[layer.kind].arity
    count = len(layer.inputs)
    if count < least or (most is not None and count > most):
        wanted = f"{least}" if most == least else f"{least} or more"
        collector.add(
            Diagnostic(
                "wrong-arity",
                f'{layer.kind} "{layer.name}" reads {count} feature maps',
                layer.location,
                str(count),
                f"{wanted} input(s)",
            )
        )


def _check_cycles(inputs: Mapping[str, Input], layers: Sequence[Layer], collector: Collector) -> None:
    graph = _data_flow(inputs, layers)
    if nx.is_directed_acyclic_graph(graph):
        return
    cycle = [edge[0] for edge in nx.find_cycle(graph)]
    locations = {layer.name: layer.location for layer in layers}
    collector.add(
        Diagnostic(
            "cycle",
            "the layers form a cycle",
            locations[cycle[0]],
            " -> ".join([*cycle, cycle[0]]),
            "a graph without cycles",
        )
    )


def _data_flow(inputs: Mapping[str, Input], layers: Iterable[Layer]) -> nx.DiGraph[str]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(inputs)
    for layer in layers:
        graph.add_node(layer.name)
        graph.add_edges_from((source, layer.name) for source in layer.inputs)
    return graph

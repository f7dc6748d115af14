"""Import of ONNX models: the graph is followed for one image, node by node, and becomes layers of the language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.compiler.frontends.onnx import elementwise, layout, linear, resize, windows
from binpoint.compiler.frontends.onnx.builder import NetworkBuilder, identifier
from binpoint.compiler.frontends.onnx.constants import can_fold, fold
from binpoint.compiler.frontends.onnx.inputs import CHANNELS_FIRST, declare_inputs
from binpoint.compiler.frontends.onnx.model import OnnxModel, inferred_shapes, read_model
from binpoint.compiler.frontends.onnx.node import Handler, Node
from binpoint.compiler.frontends.onnx.refusals import RefusalTable, why_not
from binpoint.compiler.frontends.onnx.values import Constant, FeatureMap, PaddedMap, Unknown, UnsupportedError, Value
from binpoint.compiler.network import NetworkGraph
from binpoint.support.diagnostics import Location

HANDLERS: Mapping[str, Handler] = {
    **windows.HANDLERS,
    **linear.HANDLERS,
    **elementwise.HANDLERS,
    **layout.HANDLERS,
    **resize.HANDLERS,
}
"""Every ONNX operator that the language can express in at least some form."""


def import_onnx(path: Path, *, fold_batch_norm: bool = False) -> tuple[NetworkGraph, dict[str, NDArray[np.float32]]]:
    """The network of an .onnx file and its float parameters by full name (`conv1.weight`).

    The batch is dropped; layers get short names by kind, in the model's order. `fold_batch_norm` puts batch
    norms into the convolutions and linear layers before them where nothing else reads those.

    Raises:
        UserError: for unreadable or invalid files, and, in one table, for all nodes that cannot be expressed.
    """
    model = read_model(path)
    return _Importer(model, fold_batch_norm=fold_batch_norm).run()


class _Importer:
    """Walks the nodes of one model."""

    def __init__(self, model: OnnxModel, *, fold_batch_norm: bool) -> None:
        self.model = model
        self.builder = NetworkBuilder(model.location, fold_batch_norm=fold_batch_norm)
        self.refusals = RefusalTable(model)
        self.batch, declared = declare_inputs(model, self.builder)
        self.values: dict[str, Value] = dict(declared)

    def run(self) -> tuple[NetworkGraph, dict[str, NDArray[np.float32]]]:
        """The network and its parameters."""
        for proto in self.model.nodes:
            name = proto.name or proto.output[0]
            self.builder.location = Location(f"{self.model.path}: {proto.op_type} {name}")
            try:
                results = self._import(proto)
            except UnsupportedError as refusal:
                self.refusals.add(name, proto.op_type, str(refusal))
                results = [self._stand_in(output) for output in proto.output]
            self.values.update(zip(proto.output, results, strict=True))
        outputs = [self._output(name) for name in self.model.outputs]
        self.refusals.raise_any()
        return self.builder.network(identifier(self.model.path.stem, "network"), outputs)

    def _import(self, proto: Any) -> list[Value]:
        """The values of a node's outputs."""
        inputs = tuple(self._read(name) for name in proto.input)
        reason = why_not(proto, HANDLERS)
        constants = [value.array if isinstance(value, Constant) else None for value in inputs]
        if all(value is None or isinstance(value, Constant) for value in inputs) and can_fold(proto):
            folded = iter(fold(proto, constants, self.model.opset))
            return [Constant(next(folded)) if name else Unknown() for name in proto.output]
        if reason is not None:
            raise UnsupportedError(reason)
        if any(isinstance(value, Unknown) for value in inputs):
            return [Unknown() for _ in proto.output]
        for name in proto.output[1:]:
            if self.model.uses[name]:
                raise UnsupportedError(f'its second result "{name}" is read; only the first can be computed')
        node = Node(proto, self.model.opset, self.batch, inputs, self.builder)
        return [HANDLERS[proto.op_type](node), *(Unknown() for _ in proto.output[1:])]

    def _read(self, name: str) -> Value | None:
        """The value of a name, None for an input left out. A map that others read too is not exclusive."""
        if not name:
            return None
        if name not in self.values and name in self.model.initializers:
            self.values[name] = Constant(self.model.initializer(name))
        value = self.values.get(name)
        if value is None:
            raise UnsupportedError(f'it reads "{name}", which is stored in a form that cannot be imported')
        if self.model.uses[name] > 1:
            if isinstance(value, FeatureMap):
                return replace(value, exclusive=False)
            if isinstance(value, PaddedMap):
                return replace(value, map=replace(value.map, exclusive=False))
        return value

    def _stand_in(self, name: str) -> Value:
        """A value of the right shape for a refused node's output, so that the nodes after it are checked too."""
        shape = self._shapes.get(name)
        return Unknown() if shape is None else self.builder.add_stand_in(shape)

    @cached_property
    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        return inferred_shapes(self.model)

    def _output(self, name: str) -> str:
        """The layer whose result is this output; channels come first, whatever the model's order."""
        self.builder.location = self.model.location
        try:
            value = self._read(name)
            if isinstance(value, FeatureMap) and value.index is not None and len(value.shape) == 4:
                channels_first = value.transpose(CHANNELS_FIRST)
                value = channels_first if channels_first.index is None else value
            if isinstance(value, FeatureMap | PaddedMap):
                layer = self.builder.materialize(value)
                if layer in self.builder.inputs:
                    raise UnsupportedError("it is an input of the network, unchanged")
                return layer
            if isinstance(value, Constant):
                raise UnsupportedError("it does not depend on the network's inputs")
        except UnsupportedError as refusal:
            self.refusals.add(name, "(output)", str(refusal))
        return name

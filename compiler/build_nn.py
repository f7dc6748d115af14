"""Network graph -> nn dialect: one operation a layer, in data-flow order, each with its place in the network file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation

from binpoint.compiler.layers import LAYER_KINDS, AttributeType
from binpoint.compiler.network import Input, Layer, NetworkGraph
from binpoint.dialect.assembly import to_attribute, value_name
from binpoint.dialect.attributes import (
    CountAttr,
    FractionAttr,
    FractionsAttr,
    NameAttr,
    PaddingAttr,
    PairAttr,
    ShapeAttr,
)
from binpoint.dialect.nn_layers import LAYER_OPS, InputOp
from binpoint.dialect.nn_network import NetworkOp, OutputOp
from binpoint.dialect.nn_parameters import NamedParameterOp
from binpoint.dialect.nn_types import feature_map_type, parameter_type
from binpoint.dialect.policies import NumericAttr
from binpoint.support.numeric import Granularity, NumericPolicy

LAYER_CLASSES: Mapping[str, type[IRDLOperation]] = {op.name.removeprefix("nn."): op for op in LAYER_OPS}
"""The operation of each layer kind."""

_TO_ATTRIBUTE: Mapping[AttributeType, Callable[[Any], Attribute | None]] = {
    AttributeType.INTEGER: CountAttr,
    AttributeType.REAL: lambda value: FractionAttr(Fraction(value)),
    AttributeType.FLAG: lambda value: UnitAttr() if value else None,
    AttributeType.PAIR: PairAttr,
    AttributeType.PADDING: PaddingAttr,
    AttributeType.SHAPE: ShapeAttr,
}


def build_nn(graph: NetworkGraph) -> ModuleOp:
    """A module with one `nn.network` that says what the graph says."""
    values: dict[str, SSAValue] = {}
    operations: list[Operation] = []

    def add(op: Operation, name: str) -> SSAValue:
        operations.append(op)
        op.results[0].name_hint = value_name(name)
        return op.results[0]

    for declared in graph.inputs.values():
        values[declared.name] = add(_input(declared), declared.name)
    for name in graph.order:
        layer = graph.layers[name]
        shapes = LAYER_KINDS[layer.kind].parameters(graph.input_shapes(name), layer.attributes)
        parameters = [add(_parameter(layer, short, shape), f"{name}.{short}") for short, shape in shapes.items()]
        operands = [*(values[source] for source in layer.inputs), *parameters]
        values[name] = add(_layer(layer, operands, graph), name)
    operations.append(OutputOp.create(operands=[values[name] for name in graph.outputs]))
    network = NetworkOp.create(
        properties={"symbol": NameAttr(graph.name), "numeric": NumericAttr(_whole(graph.numeric))},
        regions=[Region(Block(operations))],
        location=to_attribute(graph.location),
    )
    return ModuleOp([network])


def _whole(numeric: NumericPolicy) -> NumericPolicy:
    """The policy where nobody has said what shares an exponent: the elements of a tensor."""
    return numeric if numeric.granularity is not None else replace(numeric, granularity=Granularity())


def _input(declared: Input) -> InputOp:
    return InputOp.create(
        result_types=[feature_map_type(declared.shape)],
        properties={
            "label": NameAttr(declared.name),
            "scale": FractionAttr(declared.scale),
            "mean": FractionsAttr(declared.mean),
            "deviation": FractionsAttr(declared.deviation),
        },
        location=to_attribute(declared.location),
    )


def _parameter(layer: Layer, short: str, shape: tuple[int, ...]) -> NamedParameterOp:
    return NamedParameterOp.create(
        result_types=[parameter_type(shape)],
        properties={"label": NameAttr(f"{layer.name}.{short}")},
        location=to_attribute(layer.location),
    )


def _layer(layer: Layer, operands: list[SSAValue], graph: NetworkGraph) -> Operation:
    operation = LAYER_CLASSES[layer.kind]
    properties: dict[str, Attribute] = {"label": NameAttr(layer.name)}
    for attribute in LAYER_KINDS[layer.kind].attributes:
        # Attributes without a property show in the shapes of parameters: channels, features, bias, multiplier.
        if attribute.name in operation.get_irdl_definition().properties:
            value = _TO_ATTRIBUTE[attribute.type](layer.attributes[attribute.name])
            if value is not None:
                properties[attribute.name] = value
    return cast(
        Operation,
        operation.create(
            operands=operands,
            result_types=[feature_map_type(graph.shapes[layer.name])],
            properties=properties,
            location=to_attribute(layer.location),
        ),
    )

"""Graphs become nn modules that say the same, with places and readable value names."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from binpoint.compiler.build_nn import build_nn
from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.dialect.assembly import location_of, value_name
from binpoint.dialect.nn_layers import InputOp, LayerOp
from binpoint.dialect.nn_parameters import NamedParameterOp
from binpoint.dialect.nn_types import feature_map_shape, parameter_shape
from binpoint.dialect.text import print_module, verify_module
from binpoint.support.numeric import Granularity
from tests.compiler.frontends.dsl.test_printer import networks

TEXT = """network small {
  input image: 3x8x8 { scale = 1/255 }
  conv_1 = conv2d(image, channels=4, kernel=3, padding=[1, 0, 1, 0], groups=1, bias=false)
  body.2 = leaky_relu(conv_1, slope=0.1)
  output body.2
}
"""


def network_op(module):
    return next(iter(module.ops))


def test_text():
    assert print_module(build_nn(parse_network_text(TEXT, "small.bp", None))).splitlines()[2:-2] == [
        '    %image = nn.input "image" scale = 1/255 : tensor<?x3x8x8xf32>',
        '    %conv.1.weight = nn.parameter "conv_1.weight" : tensor<4x3x3x3xf32>',
        '    %conv.1 = nn.conv2d "conv_1" (%image, %conv.1.weight) kernel = 3x3, padding = [1, 0, 1, 0]'
        " : tensor<?x4x8x6xf32>",
        '    %body.2 = nn.leaky_relu "body.2" (%conv.1) slope = 1/10 : tensor<?x4x8x6xf32>',
        "    nn.output (%body.2)",
    ]


def test_operations_know_where_they_were_written():
    module = build_nn(parse_network_text(TEXT, "small.bp", None))
    places = {op.label.data: location_of(op) for op in network_op(module).body.block.ops if isinstance(op, LayerOp)}
    assert (places["conv_1"].file, places["conv_1"].line) == ("small.bp", 3)
    assert places["body.2"].line == 4


@pytest.mark.parametrize(
    ("name", "value"), [("conv1", "conv1"), ("conv_1", "conv.1"), ("a.b_12", "a.b.12"), ("1", "_1"), ("é/x", "__x")]
)
def test_value_names(name, value):
    assert value_name(name) == value


@given(networks())
@settings(max_examples=30, deadline=None)
def test_modules_say_what_the_graph_says(network):
    module = build_nn(network)
    verify_module(module)
    operation = network_op(module)
    assert operation.symbol.data == network.name
    granularity = network.numeric.granularity or Granularity()
    assert operation.numeric.data == replace(network.numeric, granularity=granularity)
    shapes, parameters = {}, {}
    for op in operation.body.block.ops:
        if isinstance(op, InputOp | LayerOp):
            shapes[op.label.data] = feature_map_shape(op.result)
        elif isinstance(op, NamedParameterOp):
            parameters[op.label.data] = parameter_shape(op.result)
    assert shapes == network.shapes
    assert parameters == network.parameter_shapes()
    outputs = [value.owner.label.data for value in operation.body.block.last_op.operands]
    assert tuple(outputs) == network.outputs

"""Verifiers of the nn dialect: each rule, by one change to a network that verifies."""

import pytest

from binpoint.compiler.build_nn import LAYER_CLASSES
from binpoint.compiler.layers import LAYER_KINDS
from binpoint.dialect.nn_layers import LayerOp
from binpoint.dialect.text import parse_module
from binpoint.support.diagnostics import UserError
from tests.dialect.texts import NN

FAULTS = {
    "padding as large as a window": (
        "padding = [1, 1, 1, 1] : tensor<?x6x4x4",
        "padding = [3, 1, 1, 1] : tensor<?x6x5x4",
        "is not smaller than the 3x3 window",
    ),
    "a window that fits nowhere": ("2x2, dilation = 1x1", "2x2, dilation = 9x9", "no 3x3 window fits into 6x8x8"),
    "another shape than follows": (
        "scale = 2x2 : tensor<?x6x8x8",
        "scale = 2x2 : tensor<?x6x8x9",
        "the result is 6x8x9, expected 6x8x8",
    ),
    "groups that do not divide": ("groups = 2", "groups = 3", "3 groups do not divide 4 input and 6 output channels"),
    "filters over other channels": (
        '"conv.weight" : tensor<6x2x3x3',
        '"conv.weight" : tensor<6x4x3x3',
        "filters over 4 channels read a feature map of 4 channels in 2 group(s)",
    ),
    "filters of another window": (
        "groups = 2, kernel = 3x3",
        "groups = 2, kernel = 1x1",
        "the filters' window is 3x3, expected 1x1",
    ),
    "filters without a window": (
        '"conv.weight" : tensor<6x2x3x3',
        '"conv.weight" : tensor<6x18',
        "filters have 4 dimensions, not 2",
    ),
    "a bias of another length": ('"conv.bias" : tensor<6xf', '"conv.bias" : tensor<5xf', "the bias is 5, expected 6"),
    "linear over a feature map": (
        "(%norm, %fw)",
        "(%square, %fw)",
        "the height and width of the input is 2x2, expected 1x1",
    ),
    "linear filters of another length": ("10x6xf32", "10x5xf32", "the filters is 10x5, expected 10x6"),
    "an add of unlike shapes": ("(%relu, %conv)", "(%relu, %deep)", "feature maps of unlike shapes: 6x8x8, 6x3x3"),
    "an add of one": ('"sum" (%relu, %conv)', '"sum" (%relu)', "expected two or more feature maps"),
    "a concat of unlike heights": ("(%up, %conv)", "(%pool, %conv)", "concat of unlike heights or widths"),
    "a reshape to another size": ("shape = 6x2x2", "shape = 5x2x2", "24x1x1 has not as many elements as 5x2x2"),
    "a normalisation of another length": (
        '"norm.mean" : tensor<6xf',
        '"norm.mean" : tensor<7xf',
        "mean is 7, expected 6",
    ),
    "a mean of another length": ("scale = 1/255", "mean = [0, 1, 2]", "mean has 3 entries, expected 1 or 4"),
    "a deviation of 0": ("scale = 1/255", "deviation = [0]", "a deviation of 0"),
    "a name that is taken": ('nn.relu "relu"', 'nn.relu "conv"', 'the name "conv" is taken'),
    "a parameter with a batch": ('"conv.bias" : tensor<6x', '"conv.bias" : tensor<?x', "is no parameter"),
    "a feature map without a batch": ("1/255 : tensor<?x4x8x8", "1/255 : tensor<4x8x8", "is no feature map"),
    "a feature map of nothing": ("1/255 : tensor<?x4x8x8", "1/255 : tensor<?x4x0x8", "is no feature map"),
    "a feature map of billions": (
        "1/255 : tensor<?x4x8x8",
        "1/255 : tensor<?x65536x65536x8",
        "is more than 2147483648 elements",
    ),
    "integers": ("1/255 : tensor<?x4x8x8xf32>", "1/255 : tensor<?x4x8x8xi32>", "i32 should be of base attribute f32"),
    "no output": ("(%leaky, %deep)", "()", "a network has at least one output"),
    "an output that is a parameter": ("(%leaky, %deep)", "(%fw)", "is no feature map"),
}


def test_the_network_verifies():
    parse_module(NN, "small.mlir")


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_refused(name):
    before, after, message = FAULTS[name]
    assert NN.count(before) == 1, "the change must hit one place"
    with pytest.raises(UserError) as caught:
        parse_module(NN.replace(before, after), "small.mlir")
    messages = [each.message for each in caught.value.diagnostics]
    assert any(message in found for found in messages), messages
    assert all(each.location.line is not None for each in caught.value.diagnostics)


def test_every_layer_kind_has_an_operation():
    layers = {name for name, op in LAYER_CLASSES.items() if issubclass(op, LayerOp)}
    assert layers == set(LAYER_KINDS)


@pytest.mark.parametrize("kind", LAYER_KINDS)
def test_operations_have_the_attributes_of_their_kind(kind):
    shown_in_parameters = {"channels", "features", "multiplier", "bias"}
    wanted = {attribute.name for attribute in LAYER_KINDS[kind].attributes} - shown_in_parameters
    assert wanted == set(LAYER_CLASSES[kind].get_irdl_definition().properties) - {"label", "folds"}

"""What is printed reads back as the same network."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpoint.compiler.frontends.dsl.formatting import format_value
from binpoint.compiler.frontends.dsl.numeric_section import CLASS_UPDATES
from binpoint.compiler.frontends.dsl.parser import parse_network, parse_network_text
from binpoint.compiler.frontends.dsl.printer import NAME, network_settings, print_network
from binpoint.compiler.frontends.dsl.reader import KEYWORDS, grammar
from binpoint.compiler.layers import LAYER_KINDS, AttributeType, ShapeError
from binpoint.compiler.network import Input, Layer, NetworkGraph, normalize_attributes
from binpoint.support.numeric import (
    BITS_RANGE,
    OPTIONS_OF_RULE,
    BlockMethod,
    BlockWords,
    ExponentRule,
    Granularity,
    Measure,
    Neighbour,
    NumericPolicy,
    Rounding,
    Selection,
    TensorClass,
    UpdatePolicy,
)

EXAMPLES = sorted((Path(__file__).parents[4] / "examples" / "networks").glob("*.bp"))

FRACTIONS = st.fractions() | st.floats(allow_nan=False, allow_infinity=False).map(Fraction)
SHARES = st.fractions(0, 1).filter(lambda share: share < 1)
PART = st.sampled_from([*(word.lower() for word in KEYWORDS), "relu", "true", "x", "e5", "_"])
NAMES = st.builds(
    lambda first, rest: ".".join([first, *rest]), PART, st.lists(PART | st.sampled_from(["0", "1x2"]), max_size=2)
)

VALUES = {
    AttributeType.INTEGER: st.integers(1, 4),
    AttributeType.REAL: st.floats(0, 1).map(Fraction) | st.fractions(0, 1),
    AttributeType.FLAG: st.booleans(),
    AttributeType.PAIR: st.tuples(st.integers(1, 3), st.integers(1, 3)),
    AttributeType.PADDING: st.tuples(*[st.integers(0, 2)] * 4) | st.integers(0, 2).map(lambda side: (side,) * 4),
    AttributeType.SHAPE: st.tuples(*[st.integers(1, 6)] * 3),
}


def facts(network: NetworkGraph):
    """All of a network but locations."""
    return (
        network.name,
        [(i.name, i.shape, i.scale, i.mean, i.deviation) for i in network.inputs.values()],
        [(x.name, x.kind, x.inputs, dict(x.attributes)) for x in network.layers.values()],
        network.outputs,
        network.weights,
        network.numeric,
    )


def read_back(network: NetworkGraph) -> NetworkGraph:
    return parse_network_text(print_network(network), "printed.bp", None)


@st.composite
def inputs(draw, name):
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 6)))
    count = draw(st.sampled_from([1, shape[0]]))
    mean = draw(st.lists(FRACTIONS, min_size=count, max_size=count))
    deviation = draw(st.lists(FRACTIONS.filter(lambda value: value > 0), min_size=count, max_size=count))
    return Input(name, shape, draw(FRACTIONS.filter(lambda value: value > 0)), tuple(mean), tuple(deviation))


@st.composite
def update_policies(draw):
    """A policy with values for the options that its rule has."""
    rule = draw(st.sampled_from(ExponentRule))
    options = {name: draw(OPTIONS[name]) for name in OPTIONS_OF_RULE[rule] if draw(st.booleans())}
    return UpdatePolicy(rule, period=draw(st.integers(1, 9)), **options)


OPTIONS = {
    "r_max": SHARES,
    "r_min": SHARES,
    "confidence": SHARES.filter(lambda share: share >= Fraction(1, 2)),
    "window": st.integers(1, 99),
    "patience": st.integers(1, 9),
    "headroom": st.integers(0, 3),
}
UPDATES = update_policies()


NEIGHBOURS = st.sets(st.sampled_from(Neighbour), min_size=1).map(
    lambda some: tuple(each for each in Neighbour if each in some)
)
POSITIONS = st.sets(st.integers(-1023, 1024), min_size=1, max_size=8).map(
    lambda some: tuple(sorted(some, reverse=True))
)
BLOCKS = st.builds(
    BlockWords,
    st.just(BlockMethod.PREDICT),
    st.none() | st.sampled_from(Measure),
    neighbours=st.none() | NEIGHBOURS,
    threshold=st.none() | st.fractions(0, 100, max_denominator=99),
    selection=st.none() | st.sampled_from(Selection),
) | st.one_of(
    st.builds(BlockWords, st.just(BlockMethod.ANALYSE), candidates=st.integers(1, 64)),
    st.builds(BlockWords, st.just(BlockMethod.ANALYSE), positions=POSITIONS),
)


@st.composite
def policies(draw, base: NumericPolicy, exponents):
    """A policy whose settings differ from the base's; an override keeps all that it does not set."""
    classes = draw(st.lists(st.sampled_from(TensorClass), unique=True))
    update = draw(UPDATES)
    updates = draw(st.dictionaries(st.sampled_from(list(CLASS_UPDATES.values())), UPDATES, max_size=3))
    least = draw(st.integers(-1024, 1023))
    block = draw(st.none() | st.tuples(st.integers(1, 9), st.integers(1, 9)))
    return NumericPolicy(
        {**base.bits, **{name: draw(st.integers(*BITS_RANGE[name])) for name in classes}},
        Granularity(block, draw(st.booleans())),
        draw(st.sampled_from(Rounding)),
        draw(st.sampled_from([update, base.update])),
        draw(st.sampled_from([updates, base.updates, {**base.updates, **updates}])),
        draw(st.integers(2, 16)),
        (least, draw(st.integers(least, 1023))),
        exponents,
        blocks=draw(st.sampled_from([base.blocks]) | BLOCKS.map(lambda words: words.over(base.blocks or BlockWords()))),
        weights_per_channel=draw(st.booleans()) if TensorClass.WEIGHTS in classes else base.weights_per_channel,
    )


@st.composite
def networks(draw):
    names = draw(st.lists(NAMES, min_size=3, max_size=9, unique=True))
    declared = [draw(inputs(name)) for name in names[: draw(st.integers(1, 2))]]
    shapes = {item.name: item.shape for item in declared}
    layers = []
    for name in names[len(declared) :]:
        kind = LAYER_KINDS[draw(st.sampled_from(sorted(LAYER_KINDS)))]
        least, most = kind.arity
        sources = draw(st.lists(st.sampled_from(sorted(shapes)), min_size=least, max_size=most or least + 2))
        written = {
            attribute.name: draw(VALUES[attribute.type])
            for attribute in kind.attributes
            if attribute.required or draw(st.booleans())
        }
        layer = Layer(name, kind.name, tuple(sources), normalize_attributes(kind.name, written))
        try:
            shapes[name] = kind.output_shape(tuple(shapes[source] for source in sources), layer.attributes)
        except ShapeError:
            layer = Layer(name, "relu", layer.inputs[:1])
            shapes[name] = shapes[layer.inputs[0]]
        layers.append(layer)
    numeric = NumericPolicy()
    if draw(st.booleans()):
        known = NetworkGraph("known", declared, layers)
        tensors = [*known.shapes, *known.parameter_shapes()]
        common = draw(policies(numeric, {}))
        exponents = draw(st.dictionaries(st.sampled_from(tensors), st.integers(*common.exponent_range), max_size=3))
        common = replace(common, exponents=exponents)
        chosen = draw(st.lists(st.sampled_from([layer.name for layer in layers]), unique=True, max_size=2))
        overrides = {name: draw(policies(common, exponents)) for name in chosen}
        numeric = replace(common, overrides=overrides)
    outputs = draw(st.lists(st.sampled_from([layer.name for layer in layers]), unique=True))
    weights = draw(st.none() | st.text(min_size=1).filter(lambda text: "\0" not in text).map(Path))
    name = draw(NAMES | st.text())
    return NetworkGraph(name, declared, draw(st.permutations(layers)), outputs, numeric, weights)


@given(networks())
@settings(max_examples=50, deadline=None)
def test_a_printed_network_reads_back(network):
    assert facts(read_back(network)) == facts(network)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_printed_examples_read_back(path):
    network = parse_network(path)
    assert facts(read_back(network)) == facts(network)
    assert print_network(read_back(network)) == print_network(network)


def test_a_printed_network_is_readable():
    network = parse_network_text(
        """
        network small {
          input image: 3x8x8 { scale = 1/255 mean = [0.5, 0.5, 1/3] }
          weights "small.safetensors"
          y = pooled(image, channels=4)
          z = conv2d(y, channels=2, kernel=1x3, padding=[0, 1, 1, 2], bias=false)
          output z
        }
        block pooled(x, channels) { return max_pool(conv2d(x, channels=channels, kernel=3, padding=1), kernel=2) }
        numeric { update = msb-max every 2  exponents { z = -3 }  layer z { weights = 4 bits  rounding = floor } }
        """,
        "small.bp",
        None,
    )
    assert print_network(network) == (
        "network small {\n"
        "  input image: 3x8x8 { scale = 1/255  mean = [0.5, 0.5, 1/3] }\n"
        '  weights "small.safetensors"\n'
        "\n"
        "  y.conv2d = conv2d(image, channels=4, kernel=3, padding=1)\n"
        "  y = max_pool(y.conv2d, kernel=2)\n"
        "  z = conv2d(y, channels=2, kernel=1x3, padding=[0, 1, 1, 2], bias=false)\n"
        "\n"
        "  output z\n"
        "}\n"
        "\n"
        "numeric {\n"
        "  update = msb-max every 2\n"
        "  exponents {\n"
        "    z = -3\n"
        "  }\n"
        "  layer z { weights = 4 bits  rounding = floor }\n"
        "}\n"
    )


@pytest.mark.parametrize("name", ["", "a b", "1a", "a.", "a-b", "caf\u00e9", "a\n", "3x5"])
def test_names_that_the_language_cannot_write(name):
    network = NetworkGraph("n", [Input("x", (1, 1, 1))], [Layer(name, "relu", ("x",))])
    with pytest.raises(ValueError, match="is no name"):
        print_network(network)


def test_the_printer_and_the_grammar_agree_on_names():
    (terminal,) = (terminal for terminal in grammar().terminals if terminal.name == "NAME")
    assert terminal.pattern.value == NAME.pattern


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        ((Fraction(1), Fraction(2)), "1x2"),
        ((Fraction(1), Fraction(-2)), "[1, -2]"),
        ((Fraction(1),), "[1]"),
        ((Fraction(1, 2), Fraction(3)), "[0.5, 3]"),
    ],
)
def test_values(value, text):
    assert format_value(value) == text


def test_what_a_network_says_by_name():
    text = """
    network "a net" {
      input image: 1x8x8 { scale = 1/255 }
      conv = conv2d(image, channels=6, kernel=3)
      act = relu(conv)
      output act, conv
    }
    numeric {
      rounding = floor
      update.gradients = msb-max(window = 2)
      exponents { conv = -4 }
      layer conv { weights = 4 bits  rounding = half-up }
    }
    """
    assert network_settings(parse_network_text(text, "n.bp", None)) == {
        "network": "a net",
        "input image": "1x8x8 { scale = 1/255 }",
        "layer conv": "conv2d(image, channels=6, kernel=3)",
        "layer act": "relu(conv)",
        "output": "act, conv",
        "numeric.rounding": "floor",
        "numeric.update.gradients": "msb-max(window = 2)",
        "numeric.exponents.conv": "-4",
        "layer.conv.weights": "4 bits",
        "layer.conv.rounding": "half-up",
    }


@given(networks())
@settings(max_examples=20, deadline=None)
def test_networks_that_differ_say_something_else(network):
    other = parse_network_text(print_network(network), "n.bp", None)
    assert network_settings(other) == network_settings(network)
    numeric = replace(network.numeric, constant_bits=5 if network.numeric.constant_bits != 5 else 6)
    assert network_settings(network.with_numeric(numeric)) != network_settings(network)

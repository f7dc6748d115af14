"""Network files: what they mean, and what the user reads where they are wrong."""

import math
import re
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.compiler.frontends.dsl.expansion import MAXIMUM_LAYERS
from binpoint.compiler.frontends.dsl.faults import MAXIMUM_FAULTS
from binpoint.compiler.frontends.dsl.formatting import signature
from binpoint.compiler.frontends.dsl.parser import LONGEST_FILE, parse_network, parse_network_text
from binpoint.compiler.frontends.dsl.reader import KEYWORDS, MAXIMUM_SYNTAX_ERRORS, grammar
from binpoint.compiler.frontends.dsl.syntax_errors import WORDS
from binpoint.compiler.layers import LAYER_KINDS
from binpoint.support.diagnostics import Diagnostic, UserError
from binpoint.support.numeric import (
    BITS_RANGE,
    CONSTANT_BITS_RANGE,
    DEFAULT_BITS,
    OPTIONS_OF_RULE,
    ExponentRule,
    Granularity,
    NumericPolicy,
    Rounding,
    TensorClass,
    UpdatePolicy,
)

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted((ROOT / "examples" / "networks").glob("*.bp"))
MANUAL = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")


def parse(text, directory=None):
    return parse_network_text(text, "net.bp", directory)


def network(*statements, rest=""):
    """A network with an input `x` of 4x8x8 and the statements, one a line from line 3 on."""
    return "network net {\n  input x: 4x8x8\n" + "".join(f"  {line}\n" for line in statements) + "}\n" + rest


def faults(text) -> tuple[Diagnostic, ...]:
    with pytest.raises(UserError) as caught:
        parse(text)
    return caught.value.diagnostics


def places(text):
    """(code, line, column) of every fault."""
    return [(fault.code, fault.location.line, fault.location.column) for fault in faults(text)]


def layers(parsed):
    return [(layer.name, layer.kind, layer.inputs) for layer in parsed.layers.values()]


class TestNetwork:
    def test_everything_in_its_place(self):
        parsed = parse(
            """
            network "a net" {
              input image: 3x8x6 { scale = 1/255  mean = [0.5, 0.25, 1e-2]  deviation = 2 }
              input extra: 10
              weights "w.safetensors"
              conv = conv2d(image, channels=4, kernel=3x1, padding=[1, 0, 1, 0], bias=false)
              pool = max_pool(conv, kernel=2)
              leaky = leaky_relu(pool, slope=0.1)
              fc = linear(extra, features=5)
              output fc, leaky
            }
            """,
            Path("some/where"),
        )
        image = parsed.inputs["image"]
        assert (parsed.name, image.shape, parsed.inputs["extra"].shape) == ("a net", (3, 8, 6), (10, 1, 1))
        assert image.scale == Fraction(1, 255)
        assert image.mean == (Fraction(1, 2), Fraction(1, 4), Fraction(1, 100))
        assert image.deviation == (Fraction(2),)
        assert parsed.weights == Path("some/where/w.safetensors")
        assert parsed.outputs == ("fc", "leaky")
        assert dict(parsed.layers["conv"].attributes) == {
            "channels": 4,
            "kernel": (3, 1),
            "stride": (1, 1),
            "padding": (1, 0, 1, 0),
            "groups": 1,
            "dilation": (1, 1),
            "bias": False,
        }
        assert parsed.layers["pool"].attributes["stride"] == (2, 2)
        assert parsed.layers["leaky"].attributes["slope"] == Fraction(1, 10)
        assert parsed.shapes["pool"] == (4, 4, 3)

    def test_line_ends_mean_nothing(self):
        one_line = "network n { input x: 4 a = relu(x) b = add(a, x) output a output b } numeric { weights = 4 bits }"
        assert layers(parse(one_line)) == [("a", "relu", ("x",)), ("b", "add", ("a", "x"))]
        assert layers(parse(one_line.replace(" ", "\n"))) == layers(parse(one_line))
        assert parse(one_line).outputs == ("a", "b")

    def test_without_output_the_layers_nobody_reads(self):
        assert parse(network("a = relu(x)", "b = relu(a)", "c = relu(a)")).outputs == ("b", "c")

    def test_layers_may_be_used_before_they_are_made(self):
        parsed = parse(network("b = relu(a)", "a = relu(x)"))
        assert parsed.order == ("a", "b")
        assert list(parsed.layers) == ["b", "a"]

    def test_nested_calls_are_named_after_the_statement(self):
        parsed = parse(network("y = relu(add(relu(x), x, relu(x)))"))
        assert layers(parsed) == [
            ("y.add.relu", "relu", ("x",)),
            ("y.add.relu2", "relu", ("x",)),
            ("y.add", "add", ("y.add.relu", "x", "y.add.relu2")),
            ("y", "relu", ("y.add",)),
        ]

    def test_a_nested_name_makes_room_for_a_written_one(self):
        parsed = parse(network("y = relu(add(x, x))", "y.add = relu(x)", "output y, y.add"))
        assert parsed.layers["y"].inputs == ("y.add2",)
        assert parsed.layers["y.add"].kind == "relu"

    @pytest.mark.parametrize("keyword", sorted(keyword.lower() for keyword in KEYWORDS))
    def test_keywords_are_names_where_only_a_name_fits(self, keyword):
        parsed = parse(f"""
            network {keyword} {{
              input x: 4
              {keyword} = relu(x)
              y = add({keyword}, x,
                {keyword})
              output {keyword}
              output y, z
              z = relu({keyword})
            }}
            numeric {{
              exponents {{ {keyword} = 1 }}
              layer {keyword} {{ rounding = floor }}
            }}
            """)
        assert (parsed.name, parsed.outputs) == (keyword, (keyword, "y", "z"))
        assert parsed.layers["y"].inputs == (keyword, "x", keyword)
        assert parsed.numeric.exponents == {keyword: 1}
        assert list(parsed.numeric.overrides) == [keyword]

    def test_a_keyword_is_a_layer_and_an_attribute_of_a_block(self):
        text = network(
            "output = every(x, bits=2)",
            "output output",
            rest="""
            block every(input, bits) { return conv2d(input, channels=bits, kernel=1) }""",
        )
        assert parse(text).shapes["output"] == (2, 8, 8)

    @pytest.mark.parametrize("text", ["\ufeff{}", "{}\r\n", "\t{}\t", "{} # \u00e9 \u2603 comment", "{}\n#"])
    def test_marks_tabs_and_line_ends(self, text):
        plain = network("a = relu(x)", "output a")
        written = text.replace("{}", plain.replace("\n", "\r\n") if "\r" in text else plain)
        assert layers(parse(written)) == layers(parse(plain))

    def test_values_are_exact(self):
        parsed = parse(network("a = leaky_relu(x, slope=(1/3 + 2 * 0.1 - 1e-1) / 2)"))
        assert parsed.layers["a"].attributes["slope"] == (Fraction(1, 3) + Fraction(1, 10)) / 2

    def test_every_layer_knows_its_place(self):
        text = network("y = relu(add(x, x))", "z = twice(y)", rest="block twice(a) {\n  return relu(relu(a))\n}\n")
        place = {name: layer.location for name, layer in parse(text).layers.items()}
        assert (str(place["y.add"]), place["y.add"].length) == ("net.bp:3:12", 3)
        assert str(place["y"]) == "net.bp:3:7"
        assert (str(place["z"]), str(place["z"].used_at)) == ("net.bp:7:10", "net.bp:4:7")
        assert place["z"].text == "  return relu(relu(a))"


class TestBlocks:
    RESIDUAL = """
        block residual(x, channels, stride = 1, middle = channels / 4) {
          a = normalized(x, channels=middle, kernel=1)
          b = normalized(relu(a), channels=middle, kernel=3, stride=stride)
          c = normalized(relu(b), channels=channels, kernel=1)
          return relu(c)
        }
        block normalized(x, channels, kernel, stride = 1) {
          conv = conv2d(x, channels=channels, kernel=kernel, stride=stride, padding=(kernel - 1) / 2, bias=false)
          norm = batch_norm(conv)
          return norm
        }
    """

    def test_instances_are_named_after_the_statement(self):
        parsed = parse(network("body = residual(x, channels=8, stride=2)", "y = relu(body)", rest=self.RESIDUAL))
        assert layers(parsed) == [
            ("body.a.conv", "conv2d", ("x",)),
            ("body.a.norm", "batch_norm", ("body.a.conv",)),
            ("body.b.relu", "relu", ("body.a.norm",)),
            ("body.b.conv", "conv2d", ("body.b.relu",)),
            ("body.b.norm", "batch_norm", ("body.b.conv",)),
            ("body.c.relu", "relu", ("body.b.norm",)),
            ("body.c.conv", "conv2d", ("body.c.relu",)),
            ("body.c.norm", "batch_norm", ("body.c.conv",)),
            ("body", "relu", ("body.c.norm",)),
            ("y", "relu", ("body",)),
        ]
        assert parsed.layers["body.a.conv"].attributes["channels"] == 2
        assert parsed.shapes["y"] == (8, 4, 4)

    def test_an_instance_stands_for_what_it_returns(self):
        parsed = parse(
            network("n = normalized(x, channels=2, kernel=1)", "y = relu(n)", "output n", rest=self.RESIDUAL)
        )
        assert parsed.layers["y"].inputs == ("n.norm",)
        assert parsed.outputs == ("n.norm",)

    def test_a_block_can_return_another_block(self):
        text = network(
            "y = outer(x)", rest="block outer(x) { return inner(x) } block inner(x) { r = relu(x) return r }"
        )
        assert layers(parse(text)) == [("y.inner.r", "relu", ("x",))]

    def test_a_block_can_be_nested_in_a_call(self):
        text = network("y = relu(twice(x))", rest="block twice(x) { return relu(relu(x)) }")
        assert [name for name, _, _ in layers(parse(text))] == ["y.twice.relu", "y.twice", "y"]

    def test_layers_inside_an_instance_can_be_read(self):
        parsed = parse(network("b = residual(x, channels=4)", "y = relu(b.a.conv)", "output y", rest=self.RESIDUAL))
        assert parsed.layers["y"].inputs == ("b.a.conv",)

    def test_a_block_can_take_several_feature_maps_sizes_and_flags(self):
        block = "block mix(a, b, kernel, bias) { return conv2d(add(a, b), channels=2, kernel=kernel, bias=bias) }"
        parsed = parse(network("y = mix(x, relu(x), kernel=3x1, bias=false)", rest=block))
        assert parsed.layers["y"].attributes["kernel"] == (3, 1)
        assert parsed.layers["y"].attributes["bias"] is False

    def test_a_fault_inside_says_where_the_block_is_used(self):
        block = "block b(a, n) {\n  return conv2d(a, channels=n / 3, kernel=1)\n}\n"
        (fault,) = faults(network("y = b(x, n=6)", "z = b(y, n=4)", rest=block))
        assert str(fault) == (
            'error[wrong-type]: wrong value of "channels"\n'
            "  --> net.bp:7:29\n"
            "   |\n"
            " 7 |   return conv2d(a, channels=n / 3, kernel=1)\n"
            "   |                             ^^^^^\n"
            "  used at:  net.bp:4:7\n"
            "  found:    n / 3 = 4/3\n"
            "  expected: a whole number from 1 to 16777216"
        )

    def test_a_shape_that_does_not_fit_inside_says_where_the_block_is_used(self):
        block = "block b(a) {\n  return conv2d(a, channels=1, kernel=9)\n}\n"
        (fault,) = faults(network("y = b(x)", rest=block))
        assert (fault.code, str(fault.location), str(fault.location.used_at)) == (
            "shape-mismatch",
            "net.bp:6:10",
            "net.bp:3:7",
        )

    def test_the_same_fault_of_many_instances_is_one_fault(self):
        block = "block b(a, n = 1/2) { return conv2d(a, channels=n, kernel=1) }"
        assert len(faults(network("y = b(x)", "z = b(x)", "w = b(x)", rest=block))) == 1


class TestNumeric:
    def test_all_settings(self):
        policy = parse(
            network(
                "conv = conv2d(x, channels=1, kernel=1)",
                "body = twice(conv)",
                rest="""
                block twice(a) { first = relu(a) return relu(first) }
                numeric {
                  layer conv { activations = 16 bits  rounding = floor }
                  layer body.* { weights = 4 bits }
                  layer body.first { weights = 5 bits  update = fixed }
                  activations = 7 bits
                  accumulators = 48 bits
                  exponent = channel-block<4x2>
                  rounding = half-away
                  update = msb+lsb(r_max = 2e-5, r_min = 1/1000) every 3
                  constants = 6 bits
                  exponent_range = [-32, 31]
                  exponents { x = -7  conv.weight = 31 }
                  exponents { body = 2 }
                }
                """,
            )
        ).numeric
        bits = {TensorClass.ACTIVATIONS: 7, TensorClass.ACCUMULATORS: 48}
        common = NumericPolicy(
            bits=bits,
            granularity=Granularity((4, 2), per_channel=True),
            rounding=Rounding.HALF_AWAY,
            update=UpdatePolicy(ExponentRule.MSB_LSB, Fraction(2, 100_000), Fraction(1, 1000), 3),
            constant_bits=6,
            exponent_range=(-32, 31),
            exponents={"x": -7, "conv.weight": 31, "body": 2},
        )
        assert policy.bits == bits
        assert policy.for_layer("somewhere") == policy
        conv, first, last = (policy.for_layer(name) for name in ("conv", "body.first", "body"))
        assert conv.bits == {**bits, TensorClass.ACTIVATIONS: 16}
        assert conv.rounding is Rounding.FLOOR
        assert first.bits == {**bits, TensorClass.WEIGHTS: 5}
        assert first.update == UpdatePolicy(ExponentRule.FIXED)
        # What shares an exponent is not copied: a layer that says it says more than one that says nothing.
        assert last == replace(common.with_bits(TensorClass.WEIGHTS, 4), granularity=None)
        assert set(policy.overrides) == {"conv", "body.first", "body"}

    def test_update_policies(self):
        policy = parse(
            network(
                "a = relu(x) b = relu(a) c = relu(b)",
                rest="""
                numeric {
                  update.gradients = msb-max(window = 16, patience = 3, headroom = 1) every 2
                  update = msb-histogram(r_max = 1e-3, confidence = 0.95)
                  update.weights = lsb-min(window = 4)
                  layer a { update.weights = fixed }
                  layer b { update.activations = msb-max  update = fixed }
                }
                """,
            )
        ).numeric
        all_classes = UpdatePolicy(r_max=Fraction(1, 1000), confidence=Fraction(19, 20))
        gradients = UpdatePolicy(ExponentRule.MSB_MAX, period=2, window=16, patience=3, headroom=1)
        weights = UpdatePolicy(ExponentRule.LSB_MIN, window=4)
        assert policy.update == all_classes
        assert policy.updates == {TensorClass.GRADIENTS: gradients, TensorClass.WEIGHTS: weights}
        fixed = UpdatePolicy(ExponentRule.FIXED)
        assert policy.for_layer("a").updates == {TensorClass.GRADIENTS: gradients, TensorClass.WEIGHTS: fixed}
        assert policy.for_layer("a").update == all_classes
        assert policy.for_layer("b").update == fixed
        assert policy.for_layer("b").updates == {TensorClass.ACTIVATIONS: UpdatePolicy(ExponentRule.MSB_MAX)}

    def test_silence_is_the_default(self):
        assert parse(network("a = relu(x)")).numeric == NumericPolicy()
        assert parse(network("a = relu(x)", rest="numeric { }")).numeric == NumericPolicy()

    @pytest.mark.parametrize(
        ("written", "granularity"),
        [
            ("tensor", Granularity()),
            ("channel", Granularity(per_channel=True)),
            ("block<4x8>", Granularity((4, 8))),
            ("channel-block<1x1>", Granularity((1, 1), per_channel=True)),
        ],
    )
    def test_granularity(self, written, granularity):
        assert (
            parse(network("a = relu(x)", rest=f"numeric {{ exponent = {written} }}")).numeric.granularity == granularity
        )

    @pytest.mark.parametrize("tensor_class", TensorClass)
    def test_widths_have_limits(self, tensor_class):
        least, most = BITS_RANGE[tensor_class]
        for bits in (least, most):
            parsed = parse(network("a = relu(x)", rest=f"numeric {{ {tensor_class} = {bits} bits }}"))
            assert parsed.numeric.width(tensor_class) == bits
        for bits in (least - 1, most + 1, -8, 10**30):
            (fault,) = faults(network("a = relu(x)", rest=f"numeric {{ {tensor_class} = {bits} bits }}"))
            assert (fault.code, fault.expected) == ("out-of-range", f"a whole number from {least} to {most} bits")

    @pytest.mark.parametrize(
        ("setting", "code", "column"),
        [
            ("activations = 8", "missing-unit", 25),
            ("activations = 8 bits bits", "wrong-type", 32),
            ("activations = 8 every 2", "wrong-type", 27),
            ("activations = 7.5 bits", "wrong-type", 25),
            ("activations = true bits", "wrong-type", 25),
            ("activation = 8 bits", "unknown-setting", 11),
            ("rounding = 8 bits", "wrong-type", 24),
            ("rounding = half", "wrong-value", 22),
            ("rounding = floor  rounding = floor", "duplicate-setting", 29),
            ("constants = 17 bits", "out-of-range", 23),
            ("exponent = block", "wrong-type", 22),
            ("exponent = block<4>", "syntax-error", 28),
            ("exponent = block<4x4x4>", "wrong-type", 22),
            ("exponent = block<0x4>", "out-of-range", 28),
            ("exponent = tensor<4x4>", "wrong-type", 28),
            ("exponent_range = [3, 2]", "wrong-type", 28),
            ("exponent_range = [-2000, 2]", "out-of-range", 29),
            ("exponent_range = 5", "wrong-type", 28),
            ("update = msb", "wrong-value", 20),
            ("update = msb-max(r_max = 0)", "unknown-attribute", 28),
            ("update = msb-histogram(r_mx = 0)", "unknown-attribute", 34),
            ("update = msb-histogram(r_max = 1)", "out-of-range", 42),
            ("update = msb-histogram(r_max = -1/2)", "out-of-range", 42),
            ("update = msb-histogram(r_max = 0, r_max = 0)", "duplicate-setting", 45),
            ("update = msb-max(confidence = 0.95)", "unknown-attribute", 28),
            ("update = lsb-min(headroom = 1)", "unknown-attribute", 28),
            ("update = fixed(window = 2)", "unknown-attribute", 26),
            ("update = msb-max(window = 0)", "out-of-range", 37),
            ("update = msb-max(window = 1.5)", "wrong-type", 37),
            ("update = msb-max(patience = 0)", "out-of-range", 39),
            ("update = msb-max(headroom = 9)", "out-of-range", 39),
            ("update = msb-histogram(confidence = 0.4)", "out-of-range", 47),
            ("update = msb-histogram(confidence = 1)", "out-of-range", 47),
            ("update.gradients = msb-mx", "wrong-value", 30),
            ("update.gradient = msb-max", "unknown-setting", 11),
            ("update.accumulators = msb-max", "unknown-setting", 11),
            ("update.weights = fixed  update.weights = fixed", "duplicate-setting", 35),
            ("update = msb-max every 0", "out-of-range", 34),
            ("update = msb-max every 1.5", "wrong-type", 34),
            ("exponents { a = 128 }", "out-of-range", 27),
            ("exponents { a = 1  a = 1 }", "duplicate-setting", 30),
            ("exponents { a = 1 bits }", "wrong-type", 29),
            ("exponents { b = 1 }", "unknown-tensor", 23),
            ("exponents { a.weight = 1 }", "unknown-tensor", 23),
            ("layer b { rounding = floor }", "unknown-layer", 17),
            ("layer x { rounding = floor }", "unknown-layer", 17),
            ("layer b.* { rounding = floor }", "unknown-layer", 17),
            ("layer a { rounding = floo }", "wrong-value", 32),
            ("weights = 1e99999999999 bits", "out-of-range", 21),
            ("weights = zero bits", "unknown-parameter", 21),
        ],
    )
    def test_faults(self, setting, code, column):
        assert places(network("a = relu(x)", rest=f"numeric {{ {setting} }}")) == [(code, 5, column)]

    def test_a_layer_section_of_an_instance_has_a_hint(self):
        block = "block b(a) { r = relu(a) return r }"
        (fault,) = faults(network("y = b(x)", rest=f"{block} numeric {{ layer y {{ rounding = floor }} }}"))
        assert fault.hint == "layer y.* is about all layers of the instance"


class TestFaults:
    def test_the_text_of_a_semantic_fault(self):
        (fault,) = faults(network("conv1 = conv2d(x, channels=8, kernl=3, kernel=3)"))
        assert str(fault) == (
            'error[unknown-attribute]: conv2d has no attribute "kernl"\n'
            "  --> net.bp:3:33\n"
            "   |\n"
            " 3 |   conv1 = conv2d(x, channels=8, kernl=3, kernel=3)\n"
            "   |                                 ^^^^^\n"
            "  found:    kernl\n"
            "  expected: one of channels, kernel, stride, padding, groups, dilation, bias\n"
            '  hint:     did you mean "kernel"?'
        )

    def test_the_text_of_a_syntax_fault(self):
        (fault,) = faults(network("conv1 = conv2d(x, channels=8, kernel==3)"))
        assert str(fault) == (
            'error[syntax-error]: unexpected "="\n'
            "  --> net.bp:3:40\n"
            "   |\n"
            " 3 |   conv1 = conv2d(x, channels=8, kernel==3)\n"
            "   |                                        ^\n"
            "  expected: a value"
        )

    @pytest.mark.parametrize(
        ("call", "hint"),
        [
            ("linear(x, 10)", "features=10"),
            ("conv2d(x, 16, 3)", "channels=16"),
            ("conv2d(linear(x, features=2), channels=8, 3)", "kernel=3"),
            ("reshape(x, 3x5x7)", "shape=3x5x7"),
            ("max_pool(x, [2, 2])", "kernel=[...]"),
            ("body(x, 16)", "name=16"),
            ("relu(x, 16)", None),
            ("relu(x y)", None),
        ],
    )
    def test_bare_values_among_arguments(self, call, hint):
        (fault,) = faults(network(f"a = {call}"))
        assert fault.code == "syntax-error"
        assert fault.hint == (hint and f"attributes are written by name: {hint}")

    def test_the_text_of_something_missing_at_the_end_of_a_line(self):
        (fault,) = faults(network("a = relu(x", "b = relu(a)"))
        assert str(fault) == (
            'error[syntax-error]: unexpected end of the line after "x"\n'
            "  --> net.bp:3:13\n"
            "   |\n"
            " 3 |   a = relu(x\n"
            "   |             ^\n"
            '  expected: ")", ",", "(" or "="'
        )

    @pytest.mark.parametrize(
        ("statement", "code", "column"),
        [
            ("a = rleu(x)", "unknown-layer-kind", 7),
            ("a = relu(y)", "unknown-name", 12),
            ("a = relu(a.b)", "unknown-name", 12),
            ("a = relu()", "wrong-arity", 7),
            ("a = relu(x, x)", "wrong-arity", 7),
            ("a = add(x)", "wrong-arity", 7),
            ("x = relu(x)", "duplicate-name", 3),
            ("a = conv2d(x, kernel=1)", "missing-attribute", 7),
            ("a = relu(x, slope=1)", "unknown-attribute", 15),
            ("a = max_pool(x, kernel=2, kernel=2)", "duplicate-attribute", 29),
            ("a = max_pool(x, kernel=0)", "wrong-type", 26),
            ("a = max_pool(x, kernel=-2)", "wrong-type", 26),
            ("a = max_pool(x, kernel=1.5)", "wrong-type", 26),
            ("a = max_pool(x, kernel=2x2x2)", "wrong-type", 26),
            ("a = max_pool(x, kernel=true)", "wrong-type", 26),
            ("a = max_pool(x, kernel=99999999999)", "wrong-type", 26),
            ("a = max_pool(x, kernel=2, padding=-1)", "wrong-type", 37),
            ("a = max_pool(x, kernel=2, padding=[1, 1, 1])", "wrong-type", 37),
            ("a = max_pool(x, kernel=2, padding=[1x1, 1])", "wrong-type", 38),
            ("a = conv2d(x, channels=1x1, kernel=1)", "wrong-type", 26),
            ("a = conv2d(x, channels=1, kernel=1, bias=1)", "wrong-type", 44),
            ("a = reshape(x, shape=16x16)", "wrong-type", 24),
            ("a = leaky_relu(x, slope=3x3)", "wrong-type", 27),
            ("a = leaky_relu(x, slope=2)", "out-of-range", 27),
            ("a = leaky_relu(x, slope=-0.1)", "out-of-range", 27),
            ("a = leaky_relu(x, slope=1/0)", "wrong-type", 29),
            ("a = leaky_relu(x, slope=n)", "unknown-parameter", 27),
            ("a = leaky_relu(x, slope=1e500)", "out-of-range", 27),
            (f"a = leaky_relu(x, slope={'9' * 2000})", "out-of-range", 27),
            (f"a = leaky_relu(x, slope={'*'.join(['1e-300'] * 20)})", "out-of-range", 27),
            ("a = leaky_relu(x, slope=1 - true)", "wrong-type", 31),
            ("a = max_pool(x, kernel=9)", "shape-mismatch", 7),
            ("input x: 4", "duplicate-name", 9),
            ("input y: 0", "wrong-type", 12),
            ("input y: 4x4", "wrong-type", 12),
            ("input y: 4 { scle = 1 }", "unknown-setting", 16),
            ("input y: 4 { scale = 0 }", "out-of-range", 24),
            ("input y: 4 { scale = 1 bits }", "wrong-type", 26),
            ("input y: 4 { scale = true }", "wrong-type", 24),
            ("input y: 4 { scale = [1, 1] }", "wrong-type", 24),
            ("input y: 4 { mean = [1, 1] }", "wrong-type", 23),
            ("input y: 4 { deviation = -1 }", "out-of-range", 28),
            ("input y: 4 { mean = 1  mean = 1 }", "duplicate-setting", 26),
            ("output y", "unknown-name", 10),
            ("output x", "wrong-output", 10),
            ("output z, z", "wrong-output", 13),
            (r'weights "\q"', "wrong-escape", 11),
            (r'weights "\ud83d"', "wrong-escape", 11),
            ('weights ""', "wrong-value", 11),
            ('weights "\\u0000"', "wrong-value", 11),
            ('weights "a" weights "b"', "duplicate-setting", 15),
            ("weights 'a'", "unknown-character", 11),
            ('weights "a', "unclosed-text", 11),
            ("a = relu(x);", "unknown-character", 14),
            ("a = relu(x),", "syntax-error", 14),
            ("a = x", "syntax-error", 8),
            ("a = relu(3)", "syntax-error", 12),
            ("outptu z", "syntax-error", 10),
            ("a = relu(x \0)", "unknown-character", 14),
        ],
    )
    def test_faults_have_a_place(self, statement, code, column):
        assert places(network(statement, "z = relu(x)"))[:1] == [(code, 3, column)]

    @pytest.mark.parametrize(
        ("text", "code", "column"),
        [
            ("block b(a) { c = relu(a) }", "wrong-return", 7),
            ("block b(a) { return relu(a) return a }", "wrong-return", 29),
            ("block b(a, c) { return relu(a) }", "unused-parameter", 12),
            ("block b(a, a) { return relu(a) }", "duplicate-name", 12),
            ("block b(a) { a = relu(a) return a }", "duplicate-name", 14),
            ("block b(a) { return relu(q) }", "unknown-name", 26),
            ("block b(a) { return max_pool(a, kernel=q) }", "unknown-parameter", 40),
            ("block b(a) { return max_pool(a, kernel=a) }", "wrong-parameter", 9),
            ("block b(a = 1) { return relu(a) }", "wrong-parameter", 9),
            ("block b(true) { return relu(true) }", "wrong-name", 9),
            ("block relu(a) { return sigmoid(a) }", "duplicate-name", 7),
            ("block b(a) { return relu(a) } block b(a) { return relu(a) }", "duplicate-name", 37),
            ("block b(a) { return b(a) }", "recursive-block", 7),
            ("block b(a) { return c(a) } block c(a) { return relu(b(a)) }", "recursive-block", 7),
            ("block b(a) { return rleu(a) }", "unknown-layer-kind", 21),
            ("network other { input i: 3 }", "repeated-section", 1),
            ("numeric { } numeric { }", "repeated-section", 13),
        ],
    )
    def test_faults_of_unused_blocks_and_sections(self, text, code, column):
        assert places(network("z = relu(x)", rest=text)) == [(code, 5, column)]

    @pytest.mark.parametrize(
        ("call", "code", "column"),
        [
            ("b(x)", "missing-attribute", 7),
            ("b(x, x, n=1)", "wrong-arity", 7),
            ("b(x, n=1, m=1)", "unknown-attribute", 17),
            ("b(x, n=1, n=1)", "duplicate-attribute", 17),
            ("b(x, n=q)", "unknown-parameter", 14),
        ],
    )
    def test_faults_of_block_calls(self, call, code, column):
        block = "block b(a, n) { return max_pool(a, kernel=n) }"
        assert places(network(f"y = {call}", "z = relu(y.anything)", rest=block)) == [(code, 3, column)]

    def test_block_faults_show_how_to_call_it(self):
        block = "block b(a, n, m = 2 * n) { return max_pool(a, kernel=n, stride=m) }"
        (fault,) = faults(network("y = b(x)", rest=block))
        assert fault.expected == "b(a, n, m=2 * n)"

    def test_semantic_faults_come_together_and_in_order(self):
        text = network("a = relu(y)", "b = conv2d(x, channels=0, kernel=3)", rest="numeric { weights = 99 bits }")
        assert places(text) == [("unknown-name", 3, 12), ("wrong-type", 4, 26), ("out-of-range", 6, 21)]

    def test_shape_faults_come_together_with_numeric_ones(self):
        text = network("a = max_pool(x, kernel=9)", "b = linear(x, features=1)", rest="numeric { weights = 1 bits }")
        assert [code for code, _, _ in places(text)] == ["shape-mismatch", "shape-mismatch", "out-of-range"]

    def test_syntax_faults_come_together(self):
        text = network(
            "a = = relu(x)",
            "b = relu(x",
            "c = max_pool(x,",
            "    kernel==2,",
            "    stride=2)",
            "d = relu(x) }",
            rest="block b(x) {\n  y = 3\n  return y\n}\n"
            "numeric {\n  weights 8\n  layer a { 5 }\n  biases = 8 bitz\n}\n",
        ).replace("}\n}\nblock", "}\nblock")
        assert places(text) == [
            ("syntax-error", 3, 7),
            ("syntax-error", 4, 13),
            ("syntax-error", 6, 14),
            ("syntax-error", 10, 7),
            ("syntax-error", 14, 11),
            ("syntax-error", 15, 13),
            ("syntax-error", 16, 18),
        ]

    def test_a_missing_brace_is_found_where_the_next_section_begins(self):
        (fault,) = faults("network n {\n  input x: 3\n  a = relu(x)\n\nblock b(x) { return x }\n")
        assert (str(fault.location), fault.hint) == ("net.bp:5:1", 'the "{" of line 1 is not closed')

    def test_a_missing_brace_at_the_end(self):
        (fault,) = faults("network n {\n  input x: 3\n  a = relu(x)\n")
        assert (str(fault.location), fault.hint) == ("net.bp:3:14", 'the "{" of line 1 is not closed')

    def test_a_misspelt_keyword_has_a_hint(self):
        assert faults(network("otput z"))[0].hint == 'did you mean "output"?'
        assert faults("netwrk n { }")[0].hint == 'did you mean "network"?'

    @pytest.mark.parametrize("text", ["", "# nothing", "numeric { }", "block b(x) { return relu(x) }"])
    def test_a_file_without_a_network(self, text):
        assert [fault.code for fault in faults(text)] == ["no-network"]

    def test_a_network_without_input_or_layer(self):
        assert [fault.code for fault in faults("network n { }")] == ["no-input", "no-layer"]
        assert [fault.code for fault in faults("network n { input x: 3 }")] == ["no-layer"]

    def test_cycles(self):
        (fault,) = faults(network("a = relu(b)", "b = relu(a)"))
        assert (fault.code, fault.found) == ("cycle", "a -> b -> a")
        text = network("a = same(b)", "b = same(a)", "c = relu(a)", rest="block same(x) { return x }")
        assert {fault.code for fault in faults(text)} == {"cycle"}


SOUP = [
    *(f"{keyword.lower()} " for keyword in KEYWORDS),
    *"{}()[]<>=,:+-*/.#\n\"'",
    "relu",
    "conv2d",
    "x",
    " y ",
    "b",
    "3",
    "3x5",
    "1e5",
    "0.5",
    '"w"',
    ".*",
    "kernel",
    "channels",
    "floor",
    "true",
    "update",
    "msb",
    "lsb",
    "\0",
]
"""Words and fragments for random files."""


class TestExtremes:
    """Nothing a user can write leads to anything but a network or a UserError, and neither takes long."""

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ("\0" * 100_000, "unknown-character"),
            ("(" * 100_000, "syntax-error"),
            ("{" * 100_000, "syntax-error"),
            ("network n { x = " + "relu(" * 100_000, "nested-too-deep"),
            ("network n { x = relu(y, k=" + "(" * 100_000, "nested-too-deep"),
            ("network n { x = relu(y, k=" + "[" * 40 + "]" * 40 + ") }", "nested-too-deep"),
            (network("a = leaky_relu(x, slope=" + "+".join(["1"] * 5_000) + ")"), "out-of-range"),
            (network("a = leaky_relu(x, slope=" + "*".join(["999"] * 5_000) + ")"), "out-of-range"),
            (network("a = conv2d(x, kernel=" + "x".join(["3"] * 20_000) + ", channels=1)"), "wrong-type"),
            (" " * (LONGEST_FILE + 1), "too-large"),
            ("network n { " + "x" * 1_000_000 + " = " + "}", "syntax-error"),
        ],
    )
    def test_large_and_deep_files(self, text, code):
        start = time.process_time()
        first = faults(text)[0]
        assert first.code == code
        assert max(map(len, str(first).splitlines())) < 2_000
        assert time.process_time() - start < 5

    def test_syntax_faults_do_not_go_on_without_end(self):
        assert len(faults("network n {\n" + "x = = y\n" * 10_000)) == MAXIMUM_SYNTAX_ERRORS

    @pytest.mark.parametrize(
        "statement",
        [
            "l{} = rleu(x)",
            "l{} = relu(unknown{})",
            "l{} = relu(x, slope{}=1)",
            "l{} = conv2d(x, channels=0, kernel=1)",
            "output unknown{}",
            "input l{}: 4x4",
        ],
    )
    def test_semantic_faults_do_not_go_on_without_end(self, statement):
        count = 1_000
        start = time.process_time()
        shown = faults(network("z = relu(x)", *(statement.replace("{}", str(number)) for number in range(count))))
        assert len(shown) == MAXIMUM_FAULTS + 1
        assert [fault.location.line for fault in shown[:-1]] == list(range(4, 4 + MAXIMUM_FAULTS))
        assert shown[-1].message == f"{count - MAXIMUM_FAULTS} more faults are not shown"
        assert time.process_time() - start < 10

    def test_blocks_that_grow_exponentially(self):
        steps = "".join(f"block b{n}(x) {{ y = b{n + 1}(x) z = b{n + 1}(y) return z }}\n" for n in range(40))
        start = time.process_time()
        (fault,) = faults(network("y = b0(x)", rest=steps + "block b40(x) { return x }"))
        assert (fault.code, fault.expected) == ("too-many-layers", f"at most {MAXIMUM_LAYERS} layers")
        assert time.process_time() - start < 10

    def test_a_long_chain_of_blocks(self):
        chain = "".join(f"block b{n}(x) {{ return relu(b{n + 1}(x)) }}\n" for n in range(500))
        (fault,) = faults(network("y = b0(x)", rest=chain + "block b500(x) { return x }"))
        assert fault.code == "nested-too-deep"

    def test_control_characters_do_not_reach_the_terminal(self):
        for fault in faults(network("a = relu(\x1b[31m)", 'weights "\x1b[31m" z')):
            assert "\x1b" not in str(fault)

    def test_a_network_of_many_layers(self):
        chain = [f"l{number} = relu({f'l{number - 1}' if number else 'x'})" for number in range(2000)]
        assert len(parse(network(*chain)).layers) == 2000

    @given(st.text(max_size=200))
    def test_any_text(self, text):
        with pytest.raises(UserError):
            parse(text)

    @given(st.lists(st.sampled_from(SOUP), max_size=60), st.booleans())
    def test_any_words(self, words, inside):
        text = "".join(words)
        try:
            parse(network(text, "z = relu(x)") if inside else text)
        except UserError as error:
            print(error)  # every fault can be shown

    @given(st.data())
    def test_any_edit_of_an_example(self, data):
        text = data.draw(st.sampled_from(EXAMPLES)).read_text(encoding="utf-8")
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 20)))
        edited = text[:start] + data.draw(st.sampled_from(["", *SOUP])) + text[end:]
        try:
            parse(edited)
        except UserError as error:
            print(error)  # every fault can be shown


class TestFiles:
    def test_unreadable_files(self, tmp_path):
        binary = tmp_path / "binary.bp"
        binary.write_bytes(b"network n {\n\xff\xfe")
        for path, code in (
            (tmp_path / "none.bp", "unreadable-file"),
            (tmp_path, "unreadable-file"),
            (binary, "not-text"),
        ):
            with pytest.raises(UserError) as caught:
                parse_network(path)
            assert [fault.code for fault in caught.value.diagnostics] == [code]

    def test_a_model_of_another_format(self, tmp_path):
        with pytest.raises(UserError) as caught:
            parse_network(tmp_path / "model.onnx")
        assert "binpoint import" in caught.value.diagnostics[0].hint

    def test_weights_lie_beside_the_file(self, tmp_path):
        file = tmp_path / "net.bp"
        file.write_text('network n { input x: 3 weights "w.safetensors" y = relu(x) }', encoding="utf-8")
        assert parse_network(file).weights == tmp_path / "w.safetensors"

    @pytest.mark.parametrize(
        ("name", "inputs", "outputs", "parameters"),
        [
            ("lenet", {"image": (1, 28, 28)}, {"fc2": (10, 1, 1)}, 51_902),
            ("mlp", {"image": (1, 28, 28)}, {"fc3": (10, 1, 1)}, 235_146),
            ("vgg-small", {"image": (1, 28, 28)}, {"fc": (10, 1, 1)}, 299_306),
            # The counts of torchvision's models; batch norm has 9,600 running statistics beside its parameters.
            ("vgg11", {"image": (3, 224, 224)}, {"fc3": (1000, 1, 1)}, 132_863_336),
            ("resnet18", {"image": (3, 224, 224)}, {"fc": (1000, 1, 1)}, 11_689_512 + 9_600),
            # The floats of the published yolov3-tiny.weights.
            ("yolov3-tiny", {"image": (3, 416, 416)}, {"large": (255, 13, 13), "small": (255, 26, 26)}, 8_858_734),
        ],
    )
    def test_examples(self, name, inputs, outputs, parameters):
        parsed = parse_network(ROOT / "examples" / "networks" / f"{name}.bp")
        assert parsed.name == name
        assert {name: declared.shape for name, declared in parsed.inputs.items()} == inputs
        assert {name: parsed.shapes[name] for name in parsed.outputs} == outputs
        assert sum(math.prod(shape) for shape in parsed.parameter_shapes().values()) == parameters

    def test_every_example_is_tested(self):
        assert {path.stem for path in EXAMPLES} == {"lenet", "mlp", "vgg11", "resnet18", "vgg-small", "yolov3-tiny"}


class TestManual:
    """docs/language.md says what the tables and the grammar say."""

    def test_it_lists_every_layer_kind(self):
        rows = re.findall(r"^\| `(\w+\((?:x|a, b).*)` \| (.*) \|$", MANUAL, re.MULTILINE)
        assert rows == [(signature(kind), kind.summary) for kind in LAYER_KINDS.values()]

    def test_it_lists_every_width(self):
        rows = re.findall(r"^\| `(\w+) = (\d+) bits` \| (\d+) to (\d+) \|", MANUAL, re.MULTILINE)
        widths = {
            str(tensor_class): (DEFAULT_BITS.get(tensor_class, 40), *BITS_RANGE[tensor_class])
            for tensor_class in TensorClass
        }
        assert {name: tuple(map(int, numbers)) for name, *numbers in rows} == {
            **widths,
            "constants": (NumericPolicy().constant_bits, *CONSTANT_BITS_RANGE),
        }

    def test_it_names_every_word(self):
        for word in (*Rounding, *ExponentRule):
            assert f"`{word}" in MANUAL

    def test_it_lists_the_options_of_every_rule(self):
        rows = re.findall(r"^\| `([a-z+-]+)` \| (none|`r_max`.*|`window`.*) \|$", MANUAL, re.MULTILINE)
        listed = {rule: tuple(re.findall(r"`(\w+)`", options)) for rule, options in rows}
        assert listed == {str(rule): options for rule, options in OPTIONS_OF_RULE.items()}

    @pytest.mark.parametrize(
        ("option", "least", "most", "beyond"),
        [
            ("r_max", "0", "1, not 1", "1"),
            ("r_min", "0", "1, not 1", "1"),
            ("confidence", "1/2", "1, not 1", "1"),
            ("window", "1", "4096", "4097"),
            ("patience", "1", "1000000", "1000001"),
            ("headroom", "0", "8", "9"),
        ],
    )
    def test_it_says_the_ranges_of_options(self, option, least, most, beyond):
        assert re.search(rf"^\| `{option}` \| .* \| {least} to {most} \|", MANUAL, re.MULTILINE)
        text = "numeric {{ update = msb+lsb({} = {}) }}"
        assert parse(network("a = relu(x)", rest=text.format(option, least)))
        (fault,) = faults(network("a = relu(x)", rest=text.format(option, beyond)))
        assert fault.code == "out-of-range"

    def test_its_grammar_is_the_grammar(self):
        source = (ROOT / "compiler" / "frontends" / "dsl" / "grammar.lark").read_text(encoding="utf-8")
        assert f"```lark\n{source}```\n" in MANUAL

    def test_its_examples_parse(self):
        examples = re.findall(r"```bp\n(.*?)```", MANUAL, re.DOTALL)
        assert len(examples) >= 4
        for example in examples:
            parse(example)

    def test_its_error_is_the_error(self):
        (wrong,) = re.findall(r"```bp-error\n(.*?)```", MANUAL, re.DOTALL)
        with pytest.raises(UserError) as caught:
            parse_network_text(wrong, "wrong.bp", None)
        printed = "\n\n".join(map(str, caught.value.diagnostics))
        assert f"```text\n{printed}\n```" in MANUAL


def test_every_terminal_has_words():
    names = {terminal.name for terminal in grammar().terminals} - set(grammar().ignore_tokens) - {"UNKNOWN"}
    assert names <= set(WORDS)


def test_the_grammar_fits_on_a_screen():
    lines = (ROOT / "compiler" / "frontends" / "dsl" / "grammar.lark").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 65

"""Network files: what they mean, and finding them."""

import math
from fractions import Fraction
from pathlib import Path

import pytest

from binpoint.compiler.frontends.dsl.parser import parse_network
from binpoint.compiler.frontends.dsl.reader import KEYWORDS
from binpoint.support.diagnostics import UserError
from tests.compiler.frontends.dsl.network_texts import EXAMPLES, ROOT, layers, network, parse


def test_everything_in_its_place():
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


def test_line_ends_mean_nothing():
    one_line = "network n { input x: 4 a = relu(x) b = add(a, x) output a output b } numeric { weights = 4 bits }"
    assert layers(parse(one_line)) == [("a", "relu", ("x",)), ("b", "add", ("a", "x"))]
    assert layers(parse(one_line.replace(" ", "\n"))) == layers(parse(one_line))
    assert parse(one_line).outputs == ("a", "b")


def test_without_output_the_layers_nobody_reads():
    assert parse(network("a = relu(x)", "b = relu(a)", "c = relu(a)")).outputs == ("b", "c")


def test_layers_may_be_used_before_they_are_made():
    parsed = parse(network("b = relu(a)", "a = relu(x)"))
    assert parsed.order == ("a", "b")
    assert list(parsed.layers) == ["b", "a"]


def test_nested_calls_are_named_after_the_statement():
    parsed = parse(network("y = relu(add(relu(x), x, relu(x)))"))
    assert layers(parsed) == [
        ("y.add.relu", "relu", ("x",)),
        ("y.add.relu2", "relu", ("x",)),
        ("y.add", "add", ("y.add.relu", "x", "y.add.relu2")),
        ("y", "relu", ("y.add",)),
    ]


def test_a_nested_name_makes_room_for_a_written_one():
    parsed = parse(network("y = relu(add(x, x))", "y.add = relu(x)", "output y, y.add"))
    assert parsed.layers["y"].inputs == ("y.add2",)
    assert parsed.layers["y.add"].kind == "relu"


@pytest.mark.parametrize("keyword", sorted(keyword.lower() for keyword in KEYWORDS))
def test_keywords_are_names_where_only_a_name_fits(keyword):
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


def test_a_keyword_is_a_layer_and_an_attribute_of_a_block():
    text = network(
        "output = every(x, bits=2)",
        "output output",
        rest="""
        block every(input, bits) { return conv2d(input, channels=bits, kernel=1) }""",
    )
    assert parse(text).shapes["output"] == (2, 8, 8)


@pytest.mark.parametrize("text", ["\ufeff{}", "{}\r\n", "\t{}\t", "{} # \u00e9 \u2603 comment", "{}\n#"])
def test_marks_tabs_and_line_ends(text):
    plain = network("a = relu(x)", "output a")
    written = text.replace("{}", plain.replace("\n", "\r\n") if "\r" in text else plain)
    assert layers(parse(written)) == layers(parse(plain))


def test_values_are_exact():
    parsed = parse(network("a = leaky_relu(x, slope=(1/3 + 2 * 0.1 - 1e-1) / 2)"))
    assert parsed.layers["a"].attributes["slope"] == (Fraction(1, 3) + Fraction(1, 10)) / 2


def test_every_layer_knows_its_place():
    text = network("y = relu(add(x, x))", "z = twice(y)", rest="block twice(a) {\n  return relu(relu(a))\n}\n")
    place = {name: layer.location for name, layer in parse(text).layers.items()}
    assert (str(place["y.add"]), place["y.add"].length) == ("net.bp:3:12", 3)
    assert str(place["y"]) == "net.bp:3:7"
    assert (str(place["z"]), str(place["z"].used_at)) == ("net.bp:7:10", "net.bp:4:7")
    assert place["z"].text == "  return relu(relu(a))"


def test_unreadable_files(tmp_path):
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


def test_a_model_of_another_format(tmp_path):
    with pytest.raises(UserError) as caught:
        parse_network(tmp_path / "model.onnx")
    assert "binpoint import" in caught.value.diagnostics[0].hint


def test_weights_lie_beside_the_file(tmp_path):
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
def test_examples(name, inputs, outputs, parameters):
    parsed = parse_network(ROOT / "examples" / "networks" / f"{name}.bp")
    assert parsed.name == name
    assert {name: declared.shape for name, declared in parsed.inputs.items()} == inputs
    assert {name: parsed.shapes[name] for name in parsed.outputs} == outputs
    assert sum(math.prod(shape) for shape in parsed.parameter_shapes().values()) == parameters


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES} == {"lenet", "mlp", "vgg11", "resnet18", "vgg-small", "yolov3-tiny"}

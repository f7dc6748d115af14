"""Who says how blocks get their exponents: the network, then the target, then the defaults."""

from fractions import Fraction

import pytest

from binpoint.compiler.block_defaults import with_target_blocks
from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.frontends.dsl.printer import print_network
from binpoint.compiler.parameters import draw_parameters
from binpoint.compiler.pipeline import CompileOptions, compile_network, lower_network
from binpoint.compiler.settings import apply_to_network, parse_settings
from binpoint.compiler.training_pipeline import compile_training
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import BlockMethod, BlockPolicy, Granularity, Measure, Neighbour, Selection
from binpoint.support.target_file import load_target

LAYERS = """
network n {
  input image: 3x32x32
  a = relu(conv2d(image, channels=4, kernel=3, padding=1, stride=2))
  b = conv2d(a, channels=4, kernel=3, padding=1)
  p = max_pool(b, kernel=2)
  q = max_pool(b, kernel=3, stride=2)
  u = upsample(p, scale=2)
  f = flatten(u)
  output f, q
}
"""


def network(numeric=""):
    return parse_network_text(f"{LAYERS}\nnumeric {{ {numeric} }}", "n.bp", None)


def program(numeric="", target="block16"):
    return lower_network(network(numeric), load_target(target))


def specs(numeric="", target="block16"):
    return {call.spec.name: call.spec for call in program(numeric, target).calls}


def granularities(numeric="", target="block16"):
    return {name: str(spec.output.granularity) for name, spec in specs(numeric, target).items()}


def test_a_network_without_words_follows_the_target():
    predicted = program(target="block16-neighbour")
    assert predicted.has_blocks
    assert predicted.calls[0].spec.blocks == BlockPolicy(BlockMethod.PREDICT)
    assert predicted.inputs[0].tensor.granularity == Granularity((4, 4))
    assert predicted.inputs[0].blocks == BlockPolicy(BlockMethod.PREDICT)
    assert not program(target="dlu2048").has_blocks
    assert not program("exponent = tensor").has_blocks


def test_strides_halve_blocks_and_exact_operations_move_them():
    found = granularities()
    assert found == {
        "a.conv2d": "block<2x2>",
        "b": "block<4x4>",
        "p": "block<2x2>",
        "q": "block<2x2>",
        "u": "block<4x4>",
        "f": "channel-block<1x1>",
    }
    exact = {name: spec.exact for name, spec in specs().items()}
    assert exact == {"a.conv2d": False, "b": False, "p": True, "q": False, "u": True, "f": True}


def test_a_layers_own_words_are_not_halved():
    found = granularities("layer a.conv2d { exponent = block<4x4> }  layer p { exponent = block<3x3> }")
    assert (found["a.conv2d"], found["p"], found["u"]) == ("block<4x4>", "block<3x3>", "block<6x6>")
    # Another setting of the layer leaves its granularity to the network.
    assert granularities("layer a.conv2d { rounding = floor }")["a.conv2d"] == "block<2x2>"


def test_words_refine_those_of_the_target():
    numeric = "exponent = channel-block<8x8>  blocks = predict(threshold = 5/2, measure = mse)"
    numeric += "  layer b { blocks = predict(positions = [3, 5]) }"
    found = specs(numeric, "block16-neighbour")
    policy = found["a.conv2d"].blocks
    assert (policy.threshold, policy.measure, policy.candidates) == (Fraction(5, 2), Measure.MSE, 8)
    assert found["b"].blocks.positions == (5, 3)
    assert found["b"].blocks.threshold == Fraction(5, 2)
    analysed = specs("blocks = analyse(candidates = 2, alignment = integer)", "block16-neighbour")["b"].blocks
    assert analysed == BlockPolicy(candidates=2, selection=Selection.INTEGER)


def test_weights_alone_leave_maps_where_they_are_calibrated():
    compiled = program("weights = 6 bits per channel", "dlu2048")
    assert [call.weight_per_channel for call in compiled.calls] == [True, True, False, False, False, False]
    assert compiled.calls[0].spec.blocks == BlockPolicy(candidates=1)
    assert compiled.calls[0].spec.output.granularity == Granularity()


def test_artifacts_and_network_texts_keep_the_words(tmp_path):
    from binpoint.runtime.artifact import read_artifact, write_artifact

    graph = network("weights = 6 bits per channel  blocks = predict(neighbours = [upper, left])  exponent = block<4x2>")
    again = parse_network_text(print_network(graph), "n.bp", None)
    assert again.numeric == graph.numeric
    assert again.numeric.blocks.neighbours == (Neighbour.UPPER, Neighbour.LEFT)
    compilation = compile_network(graph, draw_parameters(graph, 3), load_target("block16"), CompileOptions(2))
    artifact = compilation.artifact()
    write_artifact(tmp_path / "n.bpz", artifact)
    read = read_artifact(tmp_path / "n.bpz")
    assert read.program == artifact.program
    assert read.channel_exponents == artifact.channel_exponents
    assert len(read.channel_exponents["b.weight"]) == 4
    assert "b.weight" not in read.exponents
    assert read.target == artifact.target


def test_settings_change_words():
    graph = network("exponent = block<4x4>  blocks = analyse(candidates = 4)  layer b { exponent = block<2x2> }")
    texts = ["numeric.exponent=tensor", "numeric.blocks=predict(threshold=1)", "numeric.weights=5 bits per channel"]
    changed = apply_to_network(graph, parse_settings([*texts, "layer.b.blocks=analyse(measure=snr)"])).numeric
    assert changed.granularity == Granularity()
    assert changed.for_layer("b").granularity == Granularity((2, 2))
    assert (changed.blocks.method, changed.blocks.candidates, changed.blocks.threshold) == (BlockMethod.PREDICT, 4, 1)
    assert changed.weights_per_channel
    assert changed.for_layer("b").weights_per_channel
    words = changed.for_layer("b").blocks
    assert (words.method, words.measure, words.candidates) == (BlockMethod.ANALYSE, Measure.SNR, 4)


@pytest.mark.parametrize(
    ("numeric", "code"),
    [
        ("blocks = analyse(threshold = 3)", "unknown-attribute"),
        ("blocks = guess", "wrong-value"),
        ("blocks = analyse(candidates = 0)", "out-of-range"),
        ("blocks = analyse(candidates = 4, positions = [1])", "contradiction"),
        ("blocks = analyse(positions = [1, 1])", "wrong-value"),
        ("blocks = analyse(positions = 3)", "wrong-value"),
        ("blocks = predict(neighbours = left)", "wrong-type"),
        ("blocks = predict(neighbours = [left, left])", "wrong-value"),
        ("blocks = predict(neighbours = [right])", "wrong-value"),
        ("blocks = predict(threshold = 0 - 1)", "out-of-range"),
        ("blocks = analyse(measure = overflow)", "wrong-value"),
        ("blocks = analyse(measure = mse, measure = mse)", "duplicate-setting"),
        ("weights = 8 bits per row", "wrong-value"),
        ("biases = 8 bits per channel", "wrong-type"),
        ("weights = 8 per channel", "missing-unit"),
    ],
)
def test_faults(numeric, code):
    with pytest.raises(UserError) as caught:
        network(numeric)
    assert [each.code for each in caught.value.diagnostics] == [code]
    assert caught.value.diagnostics[0].location.line is not None


def test_positions_outside_of_the_declared_range_are_refused():
    with pytest.raises(UserError) as caught:
        program("exponent_range = [-4, 4]  blocks = analyse(positions = [5])")
    assert {each.code for each in caught.value.diagnostics} == {"exponent-out-of-range"}


def test_training_knows_one_exponent_a_tensor():
    text = "network n { input x: 3\n y = linear(x, features=2) }"
    for numeric in ("exponent = block<4x4>", "weights = 8 bits per channel", "blocks = analyse"):
        graph = parse_network_text(f"{text}\nnumeric {{ {numeric}  update = fixed }}", "n.bp", None)
        with pytest.raises(UserError) as caught:
            compile_training(graph, load_target("block16"))
        assert {each.code for each in caught.value.diagnostics} == {"unsupported-granularity"}
    graph = parse_network_text(f"{text}\nnumeric {{ update = fixed }}", "n.bp", None)
    assert "block<" not in compile_training(graph, load_target("block16")).ir


def test_accumulators_are_proved_with_the_shifts_of_alignment():
    def proofs(numeric):
        graph = network(numeric)
        compilation = compile_network(graph, draw_parameters(graph, 0), load_target("block16"))
        return {proof.kernel: proof.needed_bits for proof in compilation.proofs}

    plain, blocks = proofs("exponent = tensor"), proofs("blocks = analyse(candidates = 5)")
    assert blocks["b"] == plain["b"] + 4
    assert proofs("blocks = analyse(candidates = 5, alignment = integer)")["b"] == plain["b"]
    assert proofs("blocks = analyse(positions = [9, 3])")["b"] == plain["b"] + 6


def test_resolving_twice_changes_nothing():
    target = load_target("block16-neighbour")
    once = with_target_blocks(network("layer b { blocks = analyse }"), target)
    assert with_target_blocks(once, target).numeric == once.numeric

"""What does not fit a target."""

import pytest

from binpoint.compiler.fit import target_misfits
from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.support.numeric import STATISTICS_OF_RULE, ExponentRule
from binpoint.support.target import Target

LAYERS = "conv = conv2d(x, channels=2, kernel=1) a = relu(conv) b = relu(a) c = relu(b) d = relu(c)"


def misfits(numeric="", layers=LAYERS, **target):
    facts = {"pes": 4, "grid": (2, 2), "statistics_pes": (0,), **target}
    text = f"network n {{ input x: 4 {layers} }} numeric {{ {numeric} }}"
    return target_misfits(parse_network_text(text, "n.bp", None), Target("small", **facts))


def test_a_network_that_fits():
    assert misfits() == []
    assert misfits("activations = 16 bits weights = 16 bits accumulators = 40 bits") == []


def test_operands_wider_than_the_registers():
    (weights, activations) = misfits("activations = 9 bits layer conv { weights = 16 bits }", register_bits=8)
    assert (weights.code, activations.code) == ("wide-operand", "wide-operand")
    assert {weights.message, activations.message} == {
        "9-bit activations do not fit the 8-bit registers of small",
        "16-bit weights do not fit the 8-bit registers of small",
    }
    by_message = {fault.message.split("-bit ")[1].split()[0]: fault for fault in (weights, activations)}
    assert by_message["activations"].found == "layers conv, a, b and 2 more"
    assert by_message["weights"].found == "layer conv"
    assert by_message["weights"].location.column == LAYERS.index("conv2d") + len("network n { input x: 4 ") + 1
    assert by_message["weights"].hint == "weights = 8 bits"


def test_biases_and_master_weights_are_no_operands():
    assert misfits("biases = 32 bits master_weights = 32 bits", register_bits=8) == []


def test_gradients_count_where_the_network_is_trained():
    assert misfits("gradients = 16 bits", register_bits=8) == []
    (fault,) = misfits("gradients = 16 bits", layers="loss = cross_entropy(x)", register_bits=8)
    assert fault.message.startswith("16-bit gradients")
    network = parse_network_text(f"network n {{ input x: 4 {LAYERS} }} numeric {{ gradients = 16 bits }}", "n.bp", None)
    (fault,) = target_misfits(network, Target("small", 4, (2, 2), (0,), register_bits=8), trained=True)
    assert fault.message.startswith("16-bit gradients")


def test_accumulators_wider_than_the_targets():
    (fault,) = misfits("layer conv { accumulators = 48 bits }")
    assert (fault.code, fault.found, fault.expected) == ("wide-accumulator", "layer conv", "at most 40 bits")
    assert misfits("accumulators = 32 bits", accumulator_bits=64) == []


def test_statistics_that_nobody_acquires():
    (fault,) = misfits("update = lsb-min", acquires=("msb",))
    assert (fault.code, fault.hint) == ("missing-statistics", "update = fixed or msb-histogram or msb-max")
    assert misfits("update = fixed", statistics_pes=(), acquires=()) == []


def test_policies_of_single_classes_need_statistics_too():
    (fault,) = misfits("update.weights = lsb-min", acquires=("msb",))
    assert (fault.code, fault.message[:7]) == ("missing-statistics", "lsb-min")
    assert misfits("update = lsb-min update.activations = fixed", statistics_pes=(), acquires=()) == []
    trained = LAYERS + " loss = cross_entropy(d)"
    (fault,) = misfits("update = lsb-min update.activations = fixed", trained, statistics_pes=(), acquires=())
    assert fault.code == "missing-statistics"


@pytest.mark.parametrize("rule", ExponentRule)
def test_every_rule_needs_what_it_reads(rule):
    assert len(misfits(f"update = {rule}", statistics_pes=(), acquires=())) == len(STATISTICS_OF_RULE[rule])
    assert misfits(f"update = {rule}") == []

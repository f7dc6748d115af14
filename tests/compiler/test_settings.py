"""--set: each kind of key, and errors as good as those of the files."""

from fractions import Fraction

import pytest

from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.compiler.settings import apply_settings, parse_settings
from binpoint.support.diagnostics import UserError
from binpoint.support.numeric import ExponentRule, Granularity, Rounding, TensorClass, UpdatePolicy
from binpoint.support.target import Strategy
from binpoint.support.target_file import load_target

TEXT = """network n {
  input image: 1x4x4
  conv1 = conv2d(image, channels=2, kernel=3)
  body.fc = linear(flatten(conv1), features=2)
}
numeric { activations = 12 bits  layer conv1 { rounding = half-up  weights = 4 bits } }
"""


def changed(*texts, target="tiny16"):
    network = parse_network_text(TEXT, "n.bp", None)
    network, result = apply_settings(network, load_target(target), parse_settings(texts))
    return network.numeric, result


def test_the_network_s_policy():
    policy, _ = changed(
        "numeric.activations=16",
        "numeric.rounding = floor",
        "numeric.update=msb+lsb(r_max=1e-3, r_min=0.5) every 4",
        "numeric.exponent=block<4x4>",
        "numeric.exponent_range=[-8, 7]",
        "numeric.constants=6",
    )
    assert policy.width(TensorClass.ACTIVATIONS) == 16
    assert policy.rounding is Rounding.FLOOR
    assert policy.update == UpdatePolicy(ExponentRule.MSB_LSB, Fraction(1, 1000), Fraction(1, 2), 4)
    assert policy.granularity == Granularity((4, 4))
    assert (policy.exponent_range, policy.constant_bits) == ((-8, 7), 6)


def test_layers_keep_what_they_set_themselves():
    policy, _ = changed("numeric.rounding=floor", "numeric.weights=2", "numeric.activations=16")
    conv1 = policy.for_layer("conv1")
    assert conv1.rounding is Rounding.HALF_UP
    assert conv1.width(TensorClass.WEIGHTS) == 4
    assert conv1.width(TensorClass.ACTIVATIONS) == 16


def test_one_layer():
    policy, _ = changed("layer.body.fc.activations=16", "layer.conv1.rounding=stochastic")
    assert policy.for_layer("body.fc").width(TensorClass.ACTIVATIONS) == 16
    assert policy.for_layer("body.fc").rounding is Rounding.HALF_EVEN
    assert policy.for_layer("conv1").rounding is Rounding.STOCHASTIC
    assert policy.for_layer("conv1").width(TensorClass.WEIGHTS) == 4
    assert policy.width(TensorClass.ACTIVATIONS) == 12


def test_all_layers_inside():
    policy, _ = changed("layer.body.*.weights=3", "layer.conv1.*.update=fixed")
    assert policy.for_layer("body.fc").width(TensorClass.WEIGHTS) == 3
    assert policy.for_layer("conv1").update.rule is ExponentRule.FIXED
    assert policy.for_layer("conv1").rounding is Rounding.HALF_UP
    assert set(policy.overrides) == {"conv1", "body.fc", "body.fc.flatten"}


def test_what_one_layer_sets_is_no_more_than_that():
    """It has no exponent of its own, which a stride would not divide, and knows nothing of other layers' sections."""
    texts = [f"layer.{name}.rounding=floor" for name in ("conv1", "body.fc", "body.fc.flatten")]
    policy, _ = changed("numeric.exponent=block<4x4>", *texts)
    assert all(own.granularity is None and not own.overrides for own in policy.overrides.values())
    policy, _ = changed(*texts, "layer.conv1.exponent=block<2x2>", "layer.conv1.weights=5")
    assert policy.for_layer("conv1").granularity == Granularity((2, 2))


def test_update_policies_of_single_classes():
    most, fixed = UpdatePolicy(ExponentRule.MSB_MAX), UpdatePolicy(ExponentRule.FIXED)
    policy, _ = changed("numeric.update.gradients=msb-max", "layer.body.fc.update.weights=fixed")
    assert policy.updates == policy.for_layer("conv1").updates == {TensorClass.GRADIENTS: most}
    assert policy.for_layer("body.fc").updates == {TensorClass.GRADIENTS: most, TensorClass.WEIGHTS: fixed}
    policy, _ = changed(
        "numeric.update.gradients=msb-max", "layer.conv1.update=fixed", "numeric.update.gradients=lsb-min"
    )
    assert policy.updates == {TensorClass.GRADIENTS: UpdatePolicy(ExponentRule.LSB_MIN)}
    assert policy.for_layer("conv1").update_for(TensorClass.GRADIENTS) == fixed


def test_first_exponents():
    policy, _ = changed("numeric.exponents.conv1=-4", "numeric.exponents.body.fc.weight=-7")
    assert policy.exponents == {"conv1": -4, "body.fc.weight": -7}
    assert policy.for_layer("conv1").exponents == policy.exponents


def test_the_target():
    _, target = changed("target.allocation.strategy=mechanical", "target.array.pes=32", "target.name=mine")
    assert (target.allocation.strategy, target.pes, target.name) == (Strategy.MECHANICAL, 32, "mine")
    assert target.grid[0] * target.grid[1] == 32
    assert target.statistics_pes == tuple(range(0, 32, 4))
    _, target = changed("target.statistics.pes=[0, 5]", 'target.statistics.acquires=["msb"]')
    assert (target.statistics_pes, target.acquires) == ((0, 5), ("msb",))
    _, target = changed("target.allocation.strategy=rotated", target="mechanical2048")
    assert target.allocation.strategy is Strategy.ROTATED


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("numric.activations=16", "unknown-setting", 'did you mean "numeric"?'),
        ("activations=16", "unknown-setting", None),
        ("numeric.activations", "bad-setting", None),
        ("numeric.=16", "bad-setting", None),
        ("numeric.rounding=", "bad-setting", None),
        ("numeric.rounding=floor }", "bad-setting", None),
        ("numeric.activations=8 bits weights=4 bits", "bad-setting", "--set may be repeated"),
        ("layer.conv1.activations=8 bits rounding=floor", "bad-setting", "--set may be repeated"),
        ("numeric.exponents.conv1=-4 body.fc=-3", "bad-setting", "--set may be repeated"),
        ("layer.body.weights=4", "unknown-layer", None),
        ("numeric.activatons=16", "unknown-setting", 'did you mean "activations"?'),
        ("numeric.rounding=flor", "wrong-value", 'did you mean "floor"?'),
        ("numeric.activations=99", "out-of-range", None),
        ("layer.conv2.activations=16", "unknown-layer", 'did you mean "conv1"?'),
        ("layer.conv1.activatons=16", "unknown-setting", 'did you mean "activations"?'),
        ("layer.activations=16", None, None),
        ("numeric.exponents.conv2=-4", "unknown-tensor", 'did you mean "conv1"?'),
        ("numeric.exponents.conv1=-4000", "out-of-range", None),
        ("target.allocation.stratgy=mechanical", "unknown-key", 'did you mean "allocation.strategy"?'),
        ("target.allocation.strategy=mecanical", "unknown-choice", 'did you mean "mechanical"?'),
        ("target.array.pes=many", "wrong-type", None),
        ("target.array.pes=0", "out-of-range", None),
        ("target.array.pes=2020-01-01", "wrong-type", None),
        ("target.array.grid=[2020-01-01, 4]", "wrong-type", None),
        ("target.array.pes=0x" + "f" * 5000, "wrong-type", None),
        ("target.array.pes=" + "9" * 5000, "wrong-type", None),
        ("target.array.pes=" + "[" * 5000 + "]" * 5000, "wrong-type", None),
        ("target.physical.clock_hz=nan", "out-of-range", None),
        ("target.physical.clock_hz=1e400", "out-of-range", None),
        ("target.array.grid=[inf, 4]", "wrong-type", None),
    ],
)
def test_faults(text, code, hint):
    with pytest.raises(UserError) as caught:
        changed(text)
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.location.file.startswith("--set ")
    assert code is None or diagnostic.code == code
    assert hint is None or diagnostic.hint == hint


def test_several_faults_in_one_go():
    with pytest.raises(UserError) as caught:
        changed("numeric.rounding=flor", "target.array.pess=3", "layer.conv2.weights=4")
    assert {each.code for each in caught.value.diagnostics} == {"wrong-value", "unknown-key", "unknown-layer"}

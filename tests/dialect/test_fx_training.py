"""Verifiers of training: each rule, by one change to a program that verifies."""

import pytest

from binpoint.dialect.text import parse_module
from binpoint.support.diagnostics import UserError
from tests.dialect.texts import TRAINING

ACC = "!fx.acc<6x2x3x3, 63b>"

FAULTS = {
    # gradients of data
    "dy of another size": ("(%dconv, %w)", "(%dpool, %w)", "the gradient is 4x4x4, expected 6x4x4"),
    "x that no stride makes": (
        "padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x4x8x8, 40b>\n      %27",
        "padding = [1, 1, 1, 1], on_overflow = saturate : !fx.acc<?x4x9x8, 40b>\n      %27",
        "the gradient is 6x4x4, expected 6x5x4",
    ),
    "dy of a linear layer of another size": ("(%fc.grad, %f)", "(%vector, %f)", "the gradient is 5x1x1"),
    "a pool's dy of another size": ("(%image, %dpool)", "(%image, %wide)", "the gradient is 4x16x16, expected 4x4x4"),
    "a mean's dy of another size": ("fx.avg_pool_gradient (%dpool)", "fx.avg_pool_gradient (%wide)", "expected 4x4x4"),
    "reciprocals of other divisors": ("[1/4 = 128]", "[1/5 = 128]", "the windows divide by [4]"),
    "a resize that changes channels": (
        "fx.resize_gradient (%wide)",
        "fx.resize_gradient (%both)",
        "is 6x8x8, expected 4x8x8",
    ),
    # gradients of parameters
    "a host step that hides that it is float": ("(%fc) float64, ", "(%fc) ", "float64"),
    "filters of another size": (
        "needed = 22b : !fx.acc<6x2x3x3, 40b>",
        "needed = 22b : !fx.acc<6x2x3x5, 40b>",
        "the filters' window is 3x5, expected 3x3",
    ),
    "filters of other groups": ("needed = 22b : !fx.acc<6x2x3x3", "needed = 22b : !fx.acc<6x4x3x3", "filters over 4"),
    "a weight gradient of a feature map": ("(%vector, %fc.grad) on", "(%image, %fc.grad) on", "height and width"),
    "a bias gradient of another length": ("needed = 10b : !fx.acc<3,", "needed = 10b : !fx.acc<4,", "the result is 4"),
    "a result of another kind": (
        "needed = 10b : !fx.acc<3, 40b>",
        "needed = 10b : !fx.acc<?x3x1x1, 40b>",
        "is ?x3x1x1",
    ),
    # activations, parts, sums
    "an activation's y of another shape": ("(%vector, %vector.grad) on", "(%fc, %vector.grad) on", "unlike shapes"),
    "a mask's y of another shape": ("fx.relu_gradient (%norm,", "fx.relu_gradient (%dpool,", "unlike shapes"),
    "a slice beyond the end": ("first = 2", "first = 3", "channels 3 to 6 of 6"),
    "coefficients of other inputs": ("(%resize.grad, %image, %a)", "(%resize.grad, %a)", "the coefficients is 2x4x1x1"),
    "sums of what is not there": ("[1, 1 * 0]", "[1, 1 * 2]", "operands that there are not"),
    "sums of another size": ("[1, 1 * 0] : !fx.acc<2x4,", "[1] : !fx.acc<2x4,", "the result is 2x4, expected 1x4"),
    "narrow sums": (
        "needed = 23b : !fx.acc<2x4, 64b>",
        "needed = 23b : !fx.acc<2x4, 48b>",
        "sums that need 23 bits in 48",
    ),
    "sums that do not fit": ("needed = 23b", "needed = 65b", "sums that need 65 bits in 64"),
    # host
    "logits that are a map": ('"fc.grad" (%fc)', '"fc.grad" (%image)', "height and width of the logits"),
    "sums of one moment": (
        "terms = [0, 0 * 0], needed = 23b : !fx.acc<2x4",
        "terms = [0], needed = 23b : !fx.acc<1x4",
        "expected 2xC",
    ),
    "gamma of another length": (
        '"norm.gamma" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<4,',
        '"norm.gamma" exponent = <msb-max, range = [-128, 127]> : !fx.tensor<5,',
        "gamma is 5, expected 4",
    ),
    "gradients of two types": (
        "12b, exp = tensor>, !fx.tensor<4, 12b",
        "12b, exp = tensor>, !fx.tensor<4, 16b",
        "gamma and beta differ",
    ),
    # update
    "a momentum without its velocity": (
        "(%v, %conv.weight.grad, %m) momentum",
        "(%v, %conv.weight.grad) momentum",
        "2 operands, expected 3",
    ),
    "a step over other sizes": ("fx.descend (%m, %32)", "fx.descend (%m, %fc.weight.grad)", "an operand is 3x5x1x1"),
    "accumulators of another width": (f"2^-26 : {ACC}", "2^-26 : !fx.acc<6x2x3x3, 40b>", "an update has 63"),
    "a store in another order": (
        "fx.store (%36, %34, %32)",
        "fx.store (%36, %32, %34)",
        "the next working copy, master",
    ),
    "a store of what is no place": ("fx.store (%40, %38)", "fx.store (%fm, %38)", "the next working copy, master"),
    "a copy of something else": ("fx.widen (%34)", "fx.widen (%32)", "fx.widen does not read"),
    "a velocity that is not used": (
        "fx.descend (%m, %32)",
        "fx.descend (%m, %conv.weight.grad)",
        "fx.descend does not read",
    ),
    "a place of another type": ("(%f, %fm) {", "(%fm, %fm) {", "where !fx.tensor<3x5x1x1, 16b"),
    "an update without a master": ("(%f, %fm) {", "(%f) {", "expected a working copy, a master"),
    "an update that does not step": (
        "      %39 = fx.widen (%38) on_overflow = saturate : !fx.acc<3x5x1x1, 63b>\n",
        "",
        "is not defined",
    ),
    "an update that rounds in two ways": (
        "%34 = fx.quantize (%33) rounding = stochastic",
        "%34 = fx.quantize (%33) rounding = floor",
        "rounds everything alike",
    ),
    # phases
    "phases out of order": ("fx.phase loss", "fx.phase backward", "the phases are forward, backward, backward"),
    "a loss in the backward phase": ("fx.phase loss\n", "", "the phases are forward, backward"),
    "an update in the backward phase": ("    fx.phase update\n", "", "the phase of the update holds"),
    "a kernel before the phases": ("    fx.phase forward\n", "", "the phases are loss"),
    "a name that is taken": ('fx.kernel "conv.grad"', 'fx.kernel "max.grad"', 'the name "max.grad" is taken'),
}


def test_the_program_verifies():
    parse_module(TRAINING, "training.mlir")


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_refused(name):
    before, after, message = FAULTS[name]
    assert TRAINING.count(before) == 1, "the change must hit one place"
    with pytest.raises(UserError) as caught:
        parse_module(TRAINING.replace(before, after), "training.mlir")
    messages = [each.message for each in caught.value.diagnostics]
    assert any(message in found for found in messages), messages


def test_a_declaration_in_a_phase():
    line = next(line for line in TRAINING.splitlines(keepends=True) if 'fx.input "wide"' in line)
    moved = TRAINING.replace(line, "").replace("    fx.phase loss\n", line + "    fx.phase loss\n")
    with pytest.raises(UserError, match="declared before the phases"):
        parse_module(moved, "training.mlir")


def test_the_batch_is_positive():
    with pytest.raises(UserError, match="expected an integer of at least 1"):
        parse_module(TRAINING.replace("batch = 4", "batch = 0"), "training.mlir")


def test_a_training_needs_no_target_and_may_end_with_its_forward_phase():
    head, rest = TRAINING.split("    fx.phase forward\n")
    kernel = rest[: rest.index("    fx.phase loss\n")]
    text = f"{head}    fx.phase forward\n{kernel}  }}\n}}\n".replace(', target = "tests"', "")
    parse_module(text, "training.mlir")

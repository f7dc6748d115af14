"""docs/ir.md shows what the compiler prints."""

import re
from fractions import Fraction
from pathlib import Path

import pytest

from binpoint.compiler.build_nn import build_nn
from binpoint.compiler.frontends.dsl.parser import parse_network, parse_network_text
from binpoint.compiler.pass_registry import PASSES, TRAINING_PASSES
from binpoint.compiler.pass_runner import run_passes
from binpoint.compiler.pipeline import NN_PASSES, fx_passes
from binpoint.compiler.training_pipeline import TrainingOptions, compile_training
from binpoint.dialect.fx import FX
from binpoint.dialect.nn import NN
from binpoint.dialect.text import print_module
from binpoint.support.target_file import load_target

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "ir.md").read_text()
SNIPPETS = re.findall(r"```mlir lenet\n(.*?)```", TEXT, re.DOTALL)
TRAINING_SNIPPETS = re.findall(r"```mlir tiny\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def lenet():
    """The IR of LeNet at the beginning and at the end."""
    module = build_nn(parse_network(ROOT / "examples" / "networks" / "lenet.bp"))
    first = print_module(module)
    run_passes(module, [*NN_PASSES, *fx_passes(load_target("dlu2048"))])
    return first + print_module(module)


@pytest.fixture(scope="module")
def training():
    """The IR of the manual's network for training."""
    (network,) = re.findall(r"```bp tiny\n(.*?)```", TEXT, re.DOTALL)
    options = TrainingOptions(momentum=Fraction(9, 10), decay=Fraction(5, 10_000))
    return compile_training(parse_network_text(network, "tiny.bp", None), load_target("dlu2048"), options).ir


def uncommented(snippet):
    return "".join(line for line in snippet.splitlines(keepends=True) if not line.lstrip().startswith("//"))


def test_there_are_snippets():
    assert (len(SNIPPETS), len(TRAINING_SNIPPETS)) == (2, 7)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=["nn", "fx"])
def test_snippets_are_real(lenet, snippet):
    assert uncommented(snippet) in lenet


@pytest.mark.parametrize("number", range(len(TRAINING_SNIPPETS)))
def test_snippets_of_training_are_real(training, number):
    assert uncommented(TRAINING_SNIPPETS[number]) in training


def test_every_pass_is_described_in_order():
    inference, training = (
        re.findall(r"^\| `([a-z-]+)` \|", part, re.MULTILINE) for part in TEXT.split("## Passes")[1:]
    )
    assert inference == list(PASSES)
    assert training == list(TRAINING_PASSES)


@pytest.mark.parametrize("operation", [op.name for dialect in (NN, FX) for op in dialect.operations])
def test_every_operation_is_named(operation):
    assert re.search(rf"\b{re.escape(operation.split('.', 1)[1])}\b", TEXT)

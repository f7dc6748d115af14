"""docs/ir.md shows what the compiler prints."""

import re
from pathlib import Path

import pytest

from binpoint.compiler.build_nn import build_nn
from binpoint.compiler.frontends.dsl.parser import parse_network
from binpoint.compiler.pass_registry import PASSES
from binpoint.compiler.pass_runner import run_passes
from binpoint.compiler.pipeline import NN_PASSES, fx_passes
from binpoint.dialect.fx import FX
from binpoint.dialect.nn import NN
from binpoint.dialect.text import print_module
from binpoint.support.target_file import load_target

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "ir.md").read_text()
SNIPPETS = re.findall(r"```mlir lenet\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def lenet():
    """The IR of LeNet at the beginning and at the end."""
    module = build_nn(parse_network(ROOT / "examples" / "networks" / "lenet.bp"))
    first = print_module(module)
    run_passes(module, [*NN_PASSES, *fx_passes(load_target("dlu2048"))])
    return first + print_module(module)


def test_there_are_snippets():
    assert len(SNIPPETS) == 2


@pytest.mark.parametrize("snippet", SNIPPETS, ids=["nn", "fx"])
def test_snippets_are_real(lenet, snippet):
    lines = [line for line in snippet.splitlines(keepends=True) if not line.lstrip().startswith("//")]
    assert "".join(lines) in lenet


def test_every_pass_is_described_in_order():
    described = re.findall(r"^\| `([a-z-]+)` \|", TEXT.split("## Passes")[1], re.MULTILINE)
    assert described == list(PASSES)


@pytest.mark.parametrize("operation", [op.name for dialect in (NN, FX) for op in dialect.operations])
def test_every_operation_is_named(operation):
    assert re.search(rf"\b{operation.split('.')[1]}\b", TEXT)

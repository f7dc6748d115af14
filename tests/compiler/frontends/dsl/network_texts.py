"""Small network files, and what reading them gives."""

from pathlib import Path

import pytest

from binpoint.compiler.frontends.dsl.parser import parse_network_text
from binpoint.support.diagnostics import Diagnostic, UserError

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted((ROOT / "examples" / "networks").glob("*.bp"))


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

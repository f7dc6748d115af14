"""binpoint opt: passes by name over a file of IR or standard input."""

import io
import sys

import pytest

from binpoint.cli.main import main
from binpoint.compiler.pass_registry import ALL_PASSES
from tests.dialect.texts import FX, NN


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "small.mlir"
    path.write_text(NN)
    return path


def opt(capsys, *words):
    status = main(["opt", *map(str, words)])
    return status, capsys.readouterr()


def test_without_passes_it_checks_and_prints(capsys, tmp_path):
    path = tmp_path / "fx.mlir"
    path.write_text(FX)
    assert opt(capsys, path) == (0, (FX, ""))


def test_passes_in_order_into_a_file(capsys, source, tmp_path):
    output = tmp_path / "out.mlir"
    passes = "fold-batch-norm,lower-nn-to-fx{accumulator-bits=48 target=mine},outline-kernels"
    status, captured = opt(capsys, source, "-p", passes, "-o", output)
    assert (status, captured.out) == (0, "")
    text = output.read_text()
    assert 'fx.program @small target = "mine"' in text
    assert "fx.acc<?x6x8x8, 48b>" in text


def test_standard_input(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FX.encode())))
    assert opt(capsys, "-") == (0, (FX, ""))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    status, captured = opt(capsys, "-")
    assert status == 2
    assert "error[not-text]" in captured.err


def test_the_list_of_passes(capsys):
    status, captured = opt(capsys, "--list-passes")
    assert status == 0
    lines = captured.out.splitlines()
    assert [line.split("{")[0] for line in lines[::2]] == list(ALL_PASSES)
    assert "lower-nn-to-fx{accumulator-bits=40 accumulator-wraps=false target=none}" in lines


@pytest.mark.parametrize(
    ("passes", "code", "hint"),
    [
        ("strip-los", "unknown-pass", 'did you mean "strip-loss"?'),
        ("lower-nn-to-fx{accumulator-bit=3}", "unknown-option", 'did you mean "accumulator-bits"?'),
        ("strip-loss{hard=true}", "unknown-option", None),
        ("lower-nn-to-fx{accumulator-bits=many}", "bad-option", None),
        ("lower-nn-to-fx{accumulator-bits=40", "bad-pipeline", None),
        (f"lower-nn-to-fx{{accumulator-bits={'9' * 5000}}}", "bad-pipeline", None),
        ("insert-statistics{acquires=all}", "bad-option", None),
        ("strip-loss;canonicalize", "bad-pipeline", None),
        ("lower-nn-to-fx", "not-lowered", "run strip-loss and fold-batch-norm"),
        ("fold-batch-norm,lower-nn-to-fx{accumulator-bits=99}", "width-out-of-range", None),
    ],
)
def test_faults(capsys, source, passes, code, hint):
    status, captured = opt(capsys, source, "-p", passes)
    assert (status, captured.out) == (2, "")
    assert f"error[{code}]" in captured.err
    assert hint is None or hint in captured.err


def test_several_unknown_passes_in_one_go(capsys, source):
    _, captured = opt(capsys, source, "-p", "strip-los,canonicalise")
    assert captured.err.count("error[unknown-pass]") == 2


@pytest.mark.parametrize("words", [(), ("missing.mlir",)])
def test_no_file(capsys, words):
    status, captured = opt(capsys, *words)
    assert status == 2
    assert captured.err.startswith("error[")

"""Text tests of the passes: each .mlir file says how it is run and what must come out."""

import re
import shlex
from pathlib import Path

import pytest
from filecheck.matcher import Matcher
from filecheck.options import Options

from binpoint.cli.main import main
from binpoint.compiler.pass_registry import ALL_PASSES, pass_class

FILES = sorted(Path(__file__).parent.glob("*.mlir"))
RUN = re.compile(r"^// RUN: (not )?binpoint (opt .*)$", re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_text(path, capsys, tmp_path):
    text = path.read_text()
    (fails, command) = RUN.search(text).groups()
    status = main([word.replace("%s", str(path)) for word in shlex.split(command)])
    captured = capsys.readouterr()
    assert status == (2 if fails else 0), captured.err
    result = tmp_path / "result.txt"
    # The whole path of the file in an error would depend on the machine.
    result.write_text((captured.err if fails else captured.out).replace(f"--> {path.parent}/", ""))
    assert Matcher.from_opts(Options(match_filename=str(path), input_file=str(result))).run() == 0


@pytest.mark.parametrize("name", ALL_PASSES)
def test_every_pass_has_a_text_test_and_says_what_it_does(name):
    assert f"{name.replace('-', '_')}.mlir" in {path.name for path in FILES}
    found = pass_class(name)
    assert found.name == name
    module = __import__(found.__module__, fromlist=["__doc__"])
    sentence, example = module.__doc__.split("\n\n")[:2]
    assert " -> " in " ".join(sentence.split())
    assert "->" in example

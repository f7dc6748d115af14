"""The text of .cfg files: sections, options, places."""

from __future__ import annotations

from pathlib import Path

import pytest

from binpoint.compiler.frontends.darknet.cfg import read_cfg
from binpoint.support.diagnostics import UserError


def faults(path: Path, text: str) -> list:
    file = path / "x.cfg"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        read_cfg(file)
    return [(fault.code, fault.location.line) for fault in caught.value.diagnostics]


def test_spaces_and_comments_mean_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.cfg"
    file.write_text("; a comment\n# another\n [net] # the input\n  width = 4 1 6 # pixels\n\n[yolo]\r\nmask = 0, 1\r\n")
    net, yolo = read_cfg(file)
    assert (net.name, net.options["width"].text, net.options["width"].location.line) == ("net", "416", 4)
    assert net.options["width"].location.column == 3
    assert (yolo.name, yolo.options["mask"].text) == ("yolo", "0,1")


def test_all_faults_are_reported_with_their_lines(tmp_path: Path) -> None:
    text = "width=3\n[net]\nheight\n=3\nwidth=\n[conv\nsize=3\nsize=3\nsize=5\n"
    found = [("not-a-cfg", 1), ("not-a-cfg", 3), ("not-a-cfg", 4), ("not-a-cfg", 5), ("not-a-cfg", 6)]
    assert faults(tmp_path, text) == [*found, ("duplicate-setting", 9)]


def test_a_file_without_sections(tmp_path: Path) -> None:
    assert faults(tmp_path, "# nothing\n") == [("not-a-cfg", None)]


def test_a_binary_file(tmp_path: Path) -> None:
    file = tmp_path / "x.cfg"
    file.write_bytes(b"[net]\n\xff\xfe")
    with pytest.raises(UserError) as caught:
        read_cfg(file)
    assert caught.value.diagnostics[0].code == "not-text"

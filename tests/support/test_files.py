"""File access: errors are diagnostics, writes are whole or nothing."""

import os
from pathlib import Path

import pytest

from binpoint.support.diagnostics import UserError
from binpoint.support.files import make_directory, read_bytes, read_text, write_atomically


def test_a_missing_file_is_a_diagnostic(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the network file"):
        read_bytes(tmp_path / "none.bp", "network file")


def test_a_directory_is_a_diagnostic(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unreadable-file"):
        read_bytes(tmp_path, "network file")


def test_bytes_that_are_no_text_are_located(tmp_path: Path) -> None:
    path = tmp_path / "net.bp"
    path.write_bytes(b"one\ntwo \xff")
    with pytest.raises(UserError) as caught:
        read_text(path, "network file")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.location is not None
    assert diagnostic.location.line == 2
    assert diagnostic.found == "byte 0xff at offset 8"


def test_a_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    write_atomically(path, "old and long")
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UserError, match="No space left on device"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(path, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert path.is_fifo()


def test_a_directory_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unwritable-file"):
        write_atomically(tmp_path, "text")


def test_a_write_into_a_missing_directory_is_a_diagnostic(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unwritable-file"):
        write_atomically(tmp_path / "none" / "out.txt", "text")


def test_make_directory_refuses_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot create the directory"):
        make_directory(tmp_path / "file" / "below")

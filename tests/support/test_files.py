"""File access: errors are diagnostics, writes are whole or nothing."""

import os
import tempfile
from pathlib import Path

import pytest

from binpoint.support.diagnostics import UserError
from binpoint.support.files import check_writable, make_directory, read_bytes, read_text, write_atomically


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


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "net.bp"
    path.write_bytes(b"\xef\xbb\xbfone\xef\xbb\xbf")
    assert read_text(path, "network file") == "one\ufeff"


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


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    for name, old in (("there", "old"), ("not-yet", None)):
        path = tmp_path / name
        if old is not None:
            path.write_text(old)
        link = tmp_path / f"{name}.link"
        link.symlink_to(path.name)
        write_atomically(link, "new")
        assert link.is_symlink()
        assert path.read_text() == "new"


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "private"
    path.touch(0o600)
    write_atomically(path, "text")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_name_may_have_the_greatest_length(tmp_path: Path) -> None:
    path = tmp_path / ("\u00e9" * 127)
    write_atomically(path, "text")
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs files below /dev")
def test_what_stands_below_dev_is_never_replaced() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        link = Path(folder) / "stdout"
        link.symlink_to(Path(folder) / "file")
        (Path(folder) / "file").touch()
        number = (Path(folder) / "file").stat().st_ino
        write_atomically(link, "text")
        assert link.is_symlink()
        assert link.stat().st_ino == number
        assert link.read_text() == "text"


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


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data.npy"
    data.touch()
    check_writable(data)
    check_writable(Path(os.devnull), [data])
    for path, found in (
        (tmp_path, "a directory"),
        (tmp_path / "no" / "y.npy", "no directory"),
        (tmp_path / "data.npy" / "y.npy", "no directory"),
        (tmp_path / "x" / ".." / "data.npy", "would overwrite an input"),
    ):
        with pytest.raises(UserError, match=found):
            check_writable(path, [tmp_path / "other.npy", data])
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserError, match="no permission"):
        check_writable(tmp_path / "y.npy")


@pytest.mark.parametrize(("name", "found"), [("a\0b", "null byte"), ("a\ud800b", "surrogates not allowed")])
def test_a_name_that_no_file_can_have_is_a_diagnostic(name: str, found: str) -> None:
    with pytest.raises(UserError, match=found):
        read_bytes(Path(name), "network file")
    with pytest.raises(UserError, match=found):
        write_atomically(Path(name), "text")

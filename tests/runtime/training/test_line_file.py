from __future__ import annotations

from pathlib import Path

import pytest

from binpoint.runtime.training.line_file import LineFile
from binpoint.support.diagnostics import UserError


def write(path: Path, *lines: str, position: int | None = None) -> int:
    file = LineFile(path, position)
    for line in lines:
        file.write(line)
    end = file.position()
    file.close()
    return end


def test_a_new_file_replaces_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    assert write(path, "a\n", "é\n") == 5  # bytes
    assert path.read_text("utf-8") == "a\né\n"


def test_what_stands_behind_the_position_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    end = write(path, "one\n")
    write(path, "two\n", position=end)
    write(path, "three\n", position=end)
    assert path.read_text() == "one\nthree\n"


def test_a_missing_file_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, "one\n", position=100)
    assert path.read_text() == "one\n"


def test_a_file_that_is_shorter_than_the_checkpoint_says_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\n")
    with pytest.raises(UserError, match="shorter-log"):
        LineFile(path, 5)
    assert path.read_text() == "one\n"


def test_devices_have_no_position() -> None:
    assert write(Path("/dev/null"), "one\n") == 0
    assert write(Path("/dev/null"), "one\n", position=7) == 0


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unwritable-file"):
        LineFile(tmp_path / "missing" / "log")


def test_a_full_disk_is_an_error() -> None:
    file = LineFile(Path("/dev/full"))
    file.write("one\n")
    with pytest.raises(UserError, match="No space left"):
        file.position()
    with pytest.raises(UserError, match="No space left"):
        file.close()

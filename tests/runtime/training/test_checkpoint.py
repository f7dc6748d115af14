from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from binpoint.runtime.training.checkpoint import FILE_NAME, HASH, HEADER, SHOWN_DIFFERENCES, CheckpointFolder, _digest
from binpoint.runtime.training.engine import Snapshot
from binpoint.support.diagnostics import UserError

IDENTITY = {"network": "small", "batch": "64"}
SNAPSHOT = Snapshot(
    {"w": np.arange(6, dtype=np.int8).reshape(2, 3), "bn.mean": np.array([0.1, 1 / 3])}, {"step": 7, "loss": 1 / 3}
)


def written(folder: Path, identity: dict[str, str] = IDENTITY) -> CheckpointFolder:
    checkpoints = CheckpointFolder(folder / "checkpoints", identity)
    checkpoints.write(SNAPSHOT, {"epoch": 2}, {"json": 123})
    return checkpoints


def rewrite(path: Path, hash_too: bool, **changes: object) -> None:
    """Change the document of a checkpoint, with or without its hash."""
    import safetensors

    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    text = json.dumps(json.loads(metadata[HEADER]) | changes)
    arrays = load_file(path)
    save_file(arrays, path, {HEADER: text, HASH: _digest(arrays, text) if hash_too else metadata[HASH]})


def test_what_is_written_is_read_exactly(tmp_path: Path) -> None:
    found = written(tmp_path).read()
    assert found is not None
    assert (found.progress, found.positions, found.identity) == ({"epoch": 2}, {"json": 123}, IDENTITY)
    assert found.snapshot.document == SNAPSHOT.document
    for name, array in SNAPSHOT.arrays.items():
        assert np.array_equal(found.snapshot.arrays[name], array)
        assert found.snapshot.arrays[name].dtype == array.dtype


def test_without_a_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert CheckpointFolder(tmp_path / "new", IDENTITY).read() is None


def test_a_new_checkpoint_replaces_the_old_one(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    checkpoints.write(SNAPSHOT, {"epoch": 3}, {})
    found = checkpoints.read()
    assert found is not None
    assert found.progress == {"epoch": 3}
    assert [path.name for path in checkpoints.path.parent.iterdir()] == [FILE_NAME]


def test_a_failed_write_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = written(tmp_path)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(UserError, match="unwritable-file"):
        checkpoints.write(SNAPSHOT, {"epoch": 3}, {})
    found = checkpoints.read()
    assert found is not None
    assert found.progress == {"epoch": 2}


def test_another_training_is_refused_with_the_settings_that_differ(tmp_path: Path) -> None:
    written(tmp_path)
    other = CheckpointFolder(tmp_path / "checkpoints", {"network": "small", "batch": "32", "seed": "1"})
    with pytest.raises(UserError) as caught:
        other.read()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "other-training"
    assert diagnostic.rows == (
        ("setting", "found", "expected"),
        ("batch", "32", "64"),
        ("seed", "1", "not given"),
    )
    assert "2 settings differ" in diagnostic.message


def test_many_and_long_differences_are_cut(tmp_path: Path) -> None:
    written(tmp_path, {f"setting {number}": "x" * 1000 for number in range(100)})
    with pytest.raises(UserError) as caught:
        CheckpointFolder(tmp_path / "checkpoints", {}).read()
    rows = caught.value.diagnostics[0].rows
    assert len(rows) == 1 + SHOWN_DIFFERENCES + 1
    assert max(len(cell) for row in rows for cell in row) < 100


def test_a_checkpoint_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    data = checkpoints.path.read_bytes()
    for length in (0, 5, 100, len(data) - 1):
        checkpoints.path.write_bytes(data[:length])
        with pytest.raises(UserError, match="damaged-checkpoint"):
            checkpoints.read()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    for make in (os.mkdir, os.mkfifo):
        checkpoints.path.unlink() if checkpoints.path.is_file() else checkpoints.path.rmdir()
        make(checkpoints.path)
        with pytest.raises(UserError, match="damaged-checkpoint"):
            checkpoints.read()


def test_a_changed_array_is_refused(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    data = bytearray(checkpoints.path.read_bytes())
    data[-1] ^= 1
    checkpoints.path.write_bytes(data)
    with pytest.raises(UserError, match="hash differs"):
        checkpoints.read()


def test_a_changed_document_is_refused(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    rewrite(checkpoints.path, hash_too=False, progress={"epoch": 9})
    with pytest.raises(UserError, match="hash differs"):
        checkpoints.read()


def test_another_version_is_refused(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    rewrite(checkpoints.path, hash_too=True, format_version=99)
    with pytest.raises(UserError, match="version 99"):
        checkpoints.read()


def test_a_forged_checkpoint_is_an_error_like_any_other(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    rewrite(checkpoints.path, hash_too=True, identity=3)
    with pytest.raises(UserError, match="damaged-checkpoint"):
        checkpoints.read()
    with pytest.raises(UserError, match="does not hold what it should"), checkpoints.restoring():
        {}["histories"]


def test_a_safetensors_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    save_file({"w": np.zeros(3)}, checkpoints.path)
    with pytest.raises(UserError, match="this is no checkpoint"):
        checkpoints.read()

"""The cache of compiled kernels: an aid that never fails a run."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from binpoint.backends.tensor_expression.backend import TensorExpressionBackend
from binpoint.backends.tensor_expression.cache import (
    DEFAULT_LIMIT,
    DIRECTORY,
    LIMIT,
    KernelCache,
    default_directory,
    generator_fingerprint,
    prune,
    size_limit,
)
from binpoint.support.diagnostics import UserError


def entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def test_code_is_kept_by_description(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "new" / "kernels")
    assert cache.get("conv") is None
    cache.put("conv", b"code")
    cache.put("pool", b"other")
    assert cache.get("conv") == b"code"
    assert cache.get("pool") == b"other"
    assert KernelCache(tmp_path / "new" / "kernels").get("conv") == b"code"


@pytest.mark.parametrize("damage", [b"", b"short", lambda code: code[:-1], lambda code: code[:40] + b"!" + code[41:]])
def test_damage_is_noticed(tmp_path: Path, damage: object) -> None:
    cache = KernelCache(tmp_path)
    cache.put("conv", b"a longer piece of code")
    (entry,) = entries(tmp_path)
    entry.write_bytes(damage(entry.read_bytes()) if callable(damage) else damage)
    assert cache.get("conv") is None
    cache.put("conv", b"generated again")
    assert cache.get("conv") == b"generated again"


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    cache = KernelCache(blocked / "kernels")
    cache.put("conv", b"code")
    assert cache.get("conv") is None
    assert blocked.read_text() == "not a directory"


def test_other_sources_other_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KernelCache(tmp_path)
    cache.put("conv", b"old")
    monkeypatch.setattr("binpoint.backends.tensor_expression.cache.generator_fingerprint", lambda: "changed")
    assert cache.get("conv") is None


def test_other_machines_other_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KernelCache(tmp_path)
    cache.put("conv", b"code of this machine")
    monkeypatch.setattr(platform, "machine", lambda: "another")
    generator_fingerprint.cache_clear()
    try:
        assert cache.get("conv") is None
    finally:
        generator_fingerprint.cache_clear()


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(DIRECTORY, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", fail)
    assert default_directory() is None


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    assert default_directory() == tmp_path
    monkeypatch.setenv(DIRECTORY, "")
    assert default_directory() is None
    monkeypatch.delenv(DIRECTORY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "binpoint"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".cache" / "binpoint"


def test_no_cache() -> None:
    cache = KernelCache(None)
    cache.put("conv", b"code")
    assert cache.get("conv") is None


def fill(directory: Path, *descriptions: str) -> dict[str, Path]:
    """An entry of 132 bytes for each description, each used an hour after the one before it, all of them long ago."""
    cache, files = KernelCache(directory), {}
    for number, description in enumerate(descriptions):
        before = set(directory.iterdir())
        cache.put(description, b"c" * 100)
        (files[description],) = set(directory.iterdir()) - before
        os.utime(files[description], (3600 * number, 3600 * number))
    return files


def left(directory: Path, files: dict[str, Path]) -> set[str]:
    return {description for description, path in files.items() if path in directory.iterdir()}


def test_what_was_not_used_for_the_longest_time_goes_first(tmp_path: Path) -> None:
    files = fill(tmp_path, "oldest", "old", "new", "newest")
    prune(tmp_path, 4 * 132)
    assert left(tmp_path, files) == {"oldest", "old", "new", "newest"}
    assert KernelCache(tmp_path).get("oldest") is not None  # now the last one that was used
    prune(tmp_path, 3 * 132)
    assert left(tmp_path, files) == {"oldest", "new", "newest"}
    prune(tmp_path, 3 * 132 - 1)
    assert left(tmp_path, files) == {"oldest", "newest"}
    prune(tmp_path, 0)
    assert left(tmp_path, files) == set()


def test_the_first_entry_that_is_written_prunes(tmp_path: Path) -> None:
    files = fill(tmp_path, "old", "new")
    cache = KernelCache(tmp_path, 2 * 132)
    assert cache.get("new") is not None
    assert left(tmp_path, files) == {"old", "new"}
    cache.put("another", b"c" * 100)
    assert left(tmp_path, files) == {"new"}
    cache.put("a third", b"c" * 100)
    assert len(entries(tmp_path)) == 3


def test_pruning_leaves_the_files_of_others(tmp_path: Path) -> None:
    fill(tmp_path, "conv")
    others = {tmp_path / name for name in ("notes.txt", "mine.kernel", "0" * 63 + ".kernel", "0" * 64)}
    for path in others:
        path.write_bytes(b"precious")
    prune(tmp_path, 0)
    assert set(tmp_path.iterdir()) == others


def test_pruning_outlives_what_vanishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = fill(tmp_path, "gone before it is measured", "gone before it is removed", "there")
    prune(tmp_path / "nowhere", 0)
    first, second, there = files.values()
    (tmp_path / ("0" * 64 + ".kernel")).mkdir()  # cannot be removed like a file
    stat, unlink = Path.stat, Path.unlink

    def stat_late(path: Path, **options: bool) -> os.stat_result:
        if path == first:
            unlink(path, missing_ok=True)
        return stat(path, **options)

    def unlink_late(path: Path) -> None:
        if path == second:
            unlink(path)
        unlink(path)

    monkeypatch.setattr(Path, "stat", stat_late)
    monkeypatch.setattr(Path, "unlink", unlink_late)
    prune(tmp_path, 0)
    monkeypatch.undo()
    assert not any(path.exists() for path in (first, second, there))


def test_how_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIMIT, raising=False)
    assert size_limit() == DEFAULT_LIMIT == 256 * 2**20
    monkeypatch.setenv(LIMIT, "")
    assert size_limit() == DEFAULT_LIMIT
    monkeypatch.setenv(LIMIT, "3")
    assert size_limit() == 3 * 2**20


@pytest.mark.parametrize("size", ["-1", "1.5", "1 GiB", "²", "9" * 5000])
def test_what_is_no_size(monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    monkeypatch.setenv(LIMIT, size)
    with pytest.raises(UserError) as caught:
        TensorExpressionBackend()
    assert [fault.code for fault in caught.value.diagnostics] == ["wrong-cache-size"]


RUN = """
import sys
from pathlib import Path
import numpy as np
from binpoint.backends.kernel import KernelExponents, KernelParameters, KernelSpec, Relu, TensorSpec, Widen
from binpoint.backends.tensor_expression.backend import TensorExpressionBackend

backend = TensorExpressionBackend(cache=Path(sys.argv[1]))
tensor = TensorSpec(5, 2, 2, 8)
kernel = backend.prepare(KernelSpec("relu", Widen(), (tensor,), tensor, Relu()), KernelParameters())
mantissas = np.arange(-10, 10).reshape(1, 5, 2, 2)
sample = np.ones((1, 5), np.bool_)
result = kernel([backend.upload(mantissas, tensor)], KernelExponents((0,), 0), sample=sample)
assert (backend.download(result.output) == np.maximum(mantissas, 0)).all()
assert result.statistics.msb_max == 3
print(backend.compiler.generated, "tvm" in sys.modules)
"""


def test_a_second_process_needs_no_compiler(tmp_path: Path) -> None:
    """What one process compiled another one loads, without importing TVM; damage and junk are compiled again."""

    def run() -> str:
        command = [sys.executable, "-c", RUN, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert run() == "2 True"
    assert run() == "0 False"
    damaged, wrong = entries(tmp_path)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    junk = b"no object code"
    wrong.write_bytes(hashlib.sha256(junk).digest() + junk)
    assert run() == "2 True"

from __future__ import annotations

import contextlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from binpoint.runtime.arrays import pick, read_npy, read_npz
from binpoint.support.diagnostics import UserError


def npy(array: np.ndarray, **options: bool) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def code_of(error: pytest.ExceptionInfo[UserError]) -> str:
    (diagnostic,) = error.value.diagnostics
    return diagnostic.code


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        np.asfortranarray(np.arange(24, dtype=np.float64).reshape(2, 3, 4)),
        np.arange(4, dtype=">f4"),
        np.zeros((0, 3), np.float32),
        np.array(1.5),
    ],
    ids=["bytes", "fortran", "big-endian", "empty", "scalar"],
)
def test_reads_what_numpy_wrote(tmp_path: Path, array: np.ndarray) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(npy(array))
    np.testing.assert_array_equal(read_npy(path, "array"), array)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "not-npy"),
        (b"not an array at all", "not-npy"),
        (npy(np.arange(9))[:30], "not-npy"),
        (npy(np.arange(9)).replace(b"'shape': (9,)", b"'shape': (-1,"), "not-npy"),
        (npy(np.arange(9)).replace(b"(9,), }    ", b"(-3, -3), }"), "not-npy"),
        (npy(np.arange(0)).replace(b"(0,), }" + b" " * 19, b"(0, 9999999999999999999) }"), "not-npy"),
        (npy(np.arange(9))[:-1], "truncated-data"),
        (npy(np.arange(9)) + b"x", "truncated-data"),
        (npy(np.arange(9)).replace(b"(9,), }      ", b"(9999999,), }"), "truncated-data"),
        (npy(np.array([{}], object), allow_pickle=True), "wrong-dtype"),
        (npy(np.array(["text"])), "wrong-dtype"),
        (npy(np.array([1j])), "wrong-dtype"),
        (npy(np.zeros(2, [("a", "i4")])), "wrong-dtype"),
    ],
    ids=[
        "empty",
        "text",
        "half a header",
        "bad header",
        "negative sizes",
        "sizes past all memory",
        "short",
        "long",
        "huge",
        "objects",
        "str",
        "complex",
        "record",
    ],
)
def test_says_what_is_wrong_with_an_array(tmp_path: Path, data: bytes, code: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with pytest.raises(UserError) as caught:
        read_npy(path, "array")
    assert code_of(caught) == code


def test_reads_the_arrays_of_an_npz(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.arange(6).reshape(2, 3), y=np.array([1, 2]))
    arrays = read_npz(path, "data file")
    np.testing.assert_array_equal(pick(arrays, ["images", "x"], path, "images"), np.arange(6).reshape(2, 3))
    with pytest.raises(UserError, match='expected: "labels"'):
        pick(arrays, ["labels"], path, "labels")


def test_damaged_npz_files_are_user_errors(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.arange(60))
    whole = path.read_bytes()
    for data in (b"", whole[:100], whole[:200] + b"\xff" + whole[201:]):
        path.write_bytes(data)
        with pytest.raises(UserError) as caught:
            read_npz(path, "data file")
        assert code_of(caught) == "corrupt-data"


def test_no_byte_of_an_npz_can_fail_in_another_way(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.arange(3, dtype=np.uint8))
    whole = path.read_bytes()
    for place in range(len(whole)):
        for byte in (0x00, 0xFF):
            path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
            with contextlib.suppress(UserError):
                read_npz(path, "data file")


def test_an_object_array_in_an_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", npy(np.array([{}], object), allow_pickle=True))
    with pytest.raises(UserError, match="never unpickled"):
        read_npz(path, "data file")

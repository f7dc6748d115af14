from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path

import pytest

from binpoint.runtime.archive import pack, unpack
from binpoint.support.diagnostics import UserError

MEMBERS = {"a.txt": b"first", "b.txt": b"second"}
PATH = Path("some.bpz")


def zipped(*entries: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of double names
        for name, data in entries:
            archive.writestr(name, data)
    return stream.getvalue()


def fault(data: bytes) -> str:
    with pytest.raises(UserError) as caught:
        unpack(data, MEMBERS, PATH, "artifact")
    (diagnostic,) = caught.value.diagnostics
    return f"{diagnostic.code}: {diagnostic}"


def test_members_come_back_whatever_their_order() -> None:
    backwards = dict(reversed(MEMBERS.items()))
    assert pack(backwards) == pack(MEMBERS)
    assert unpack(pack(MEMBERS), MEMBERS, PATH, "artifact") == MEMBERS
    assert zipfile.ZipFile(io.BytesIO(pack(MEMBERS))).namelist() == ["a.txt", "b.txt"]


@pytest.mark.parametrize("data", [b"", b"no zip file", b"\x1f\x8b\x08 gzip"])
def test_other_files_are_no_artifacts(data: bytes) -> None:
    assert fault(data).startswith("not-an-artifact")


def test_every_cut_is_noticed() -> None:
    whole = pack(MEMBERS)
    for length in range(4, len(whole)):
        assert fault(whole[:length]).startswith("damaged-artifact")


def test_a_changed_byte_of_a_member_is_noticed() -> None:
    assert "CRC" in fault(pack(MEMBERS).replace(b"second", b"sekond"))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (zipped(("a.txt", b""), ("../a.txt", b"")), "'../a.txt' of the artifact is not part of the format"),
        (zipped(("/a.txt", b"")), "not part of the format"),
        (zipped(("a.txt", b""), ("a.txt", b"")), "is there twice"),
        (zipped(("a.txt", bytes(10**6)), compression=zipfile.ZIP_DEFLATED), "is compressed"),
        (zipped(("a.txt", b"first")).replace(b"\x05\x00\x00\x00", b"\x00\x00\x00\x80"), "damaged-artifact"),
    ],
    ids=["outside", "root", "twice", "bomb", "declared size"],
)
def test_members_that_pack_never_writes_are_refused(data: bytes, text: str) -> None:
    assert text in fault(data)

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from binpoint.runtime.idx import read_idx
from binpoint.support.diagnostics import UserError

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
PLAIN = struct.pack(">4B3I", 0, 0, 8, 3, *PIXELS.shape) + PIXELS.tobytes()


@pytest.mark.parametrize("data", [PLAIN, gzip.compress(PLAIN)], ids=["plain", "gzip"])
def test_reads_the_pixels_of_a_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "images"
    path.write_bytes(data)
    np.testing.assert_array_equal(read_idx(path, 3, "image file"), PIXELS)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "not-idx"),
        (b"PK\x03\x04 something else", "not-idx"),
        (PLAIN[:2] + b"\x0d" + PLAIN[3:], "not-idx"),
        (struct.pack(">4BI", 0, 0, 8, 1, 2) + b"ab", "not-idx"),
        (PLAIN[:10], "truncated-data"),
        (PLAIN[:-1], "truncated-data"),
        (PLAIN + b"x", "truncated-data"),
        (struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1), "truncated-data"),
        (gzip.compress(PLAIN[:-1]), "truncated-data"),
        (gzip.compress(PLAIN)[:-12], "corrupt-data"),
        (gzip.compress(PLAIN)[:-8] + bytes(8), "corrupt-data"),
        (gzip.compress(PLAIN, 0)[:20] + b"\xff" * 40, "corrupt-data"),
    ],
    ids=[
        "empty",
        "another format",
        "floats",
        "labels",
        "half a header",
        "short",
        "long",
        "declared huge",
        "short within gzip",
        "gzip cut off",
        "gzip checksum",
        "gzip garbage",
    ],
)
def test_says_what_is_wrong_with_a_file(tmp_path: Path, data: bytes, code: str) -> None:
    path = tmp_path / "images"
    path.write_bytes(data)
    with pytest.raises(UserError) as caught:
        read_idx(path, 3, "image file")
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == [code]
    assert str(path) in str(caught.value)


def test_a_missing_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the image file"):
        read_idx(tmp_path / "nothing", 3, "image file")

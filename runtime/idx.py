"""The idx format of MNIST: a magic number, big-endian sizes, then unsigned bytes; plain or gzip."""

from __future__ import annotations

import gzip
import io
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from binpoint.support.diagnostics import Location, UserError, user_error
from binpoint.support.files import read_bytes

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08
_PIECE = 1 << 24


def read_idx(path: Path, dimensions: int, what: str) -> NDArray[np.uint8]:
    """An idx file of unsigned bytes with that many dimensions; `what` names it in errors.

    Raises:
        UserError: where the file is unreadable, no idx file, of another element type or number of dimensions,
            shorter or longer than its header says, or fails gzip's check.
    """
    data = read_bytes(path, what)
    stream: io.BufferedIOBase = io.BytesIO(data)
    if data.startswith(_GZIP_MAGIC):
        stream = gzip.GzipFile(fileobj=stream)
    try:
        return _read(stream, path, dimensions, what)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise user_error(
            "corrupt-data",
            f"the {what} is damaged: its gzip data does not unpack",
            location=Location(str(path)),
            found=str(error),
            hint="fetch or copy the file again",
        ) from None


def _read(stream: io.BufferedIOBase, path: Path, dimensions: int, what: str) -> NDArray[np.uint8]:
    magic = bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    header = stream.read(4 * (1 + dimensions))
    if header[:4] != magic:
        raise user_error(
            "not-idx",
            f"the {what} does not start like an idx file of unsigned bytes with {dimensions} dimension(s)",
            location=Location(str(path)),
            found=f"magic number 0x{header[:4].hex()}" if header else "an empty file",
            expected=f"magic number 0x{magic.hex()}",
        )
    if len(header) < 4 * (1 + dimensions):
        raise _wrong_length(path, what, f"a header of {len(header)} bytes", f"{4 * (1 + dimensions)} bytes")
    shape = tuple(int(size) for size in np.frombuffer(header[4:], ">u4"))
    size = math.prod(shape)
    # One byte more than there should be: sees a longer file, and takes gzip to its checksum.
    body = _read_at_most(stream, size + 1)
    if len(body) != size:
        found = f"{len(body)} bytes" if len(body) < size else f"more than {size} bytes"
        raise _wrong_length(path, what, f"{found} of data", f"{' x '.join(map(str, shape))} = {size} bytes")
    return np.frombuffer(body, np.uint8).reshape(shape)


def _read_at_most(stream: io.BufferedIOBase, count: int) -> bytes:
    """Up to `count` bytes, in pieces: a header may declare more than any machine holds."""
    parts = []
    while count > 0 and (part := stream.read(min(count, _PIECE))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _wrong_length(path: Path, what: str, found: str, expected: str) -> UserError:
    return user_error(
        "truncated-data",
        f"the {what} is not as long as its header says",
        location=Location(str(path)),
        found=found,
        expected=expected,
    )

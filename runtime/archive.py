"""Zip files whose bytes depend on their contents alone, and a reader that trusts nothing it is given.

Members are stored, not compressed: the bytes do not depend on a compression library, a member is never larger than
the file, and mantissas hardly compress.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

from binpoint.support.diagnostics import Location, UserError, user_error

_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
"""The earliest date of the zip format, for every member."""

_PERMISSIONS = 0o100644 << 16
_ENCRYPTED = 0x1
_ZIP_MAGIC = b"PK\x03\x04"


def pack(members: Mapping[str, bytes]) -> bytes:
    """The members as a zip file, sorted by name."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _TIMESTAMP)
            info.create_system = 3  # Unix, also where this runs on another system
            info.external_attr = _PERMISSIONS
            archive.writestr(info, members[name])
    return stream.getvalue()


def unpack(data: bytes, known: Collection[str], path: Path, what: str) -> dict[str, bytes]:
    """The members of a zip file that `pack` could have written; `what` names the kind of file in errors.

    Raises:
        UserError: where the data is no zip file, is cut off or damaged, or holds a member that is not `known`,
            doubled, compressed or encrypted.
    """
    if not data.startswith(_ZIP_MAGIC):
        found = "an empty file" if not data else f"a file that starts with {data[:4]!r}"
        raise user_error(
            "not-an-artifact", f"this is no {what}", location=Location(str(path)), found=found, expected="a zip file"
        )
    members: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                _check_member(info, known, members, path, what)
                members[info.filename] = archive.read(info)
    # The zip reader raises many kinds of errors on damaged headers (struct.error, NotImplementedError, ...).
    except UserError:
        raise
    except Exception as error:
        raise user_error(
            "damaged-artifact",
            f"the {what} is cut off or damaged",
            location=Location(str(path)),
            found=str(error) or type(error).__name__,
            hint="compile or copy it again",
        ) from None
    return members


def _check_member(info: zipfile.ZipInfo, known: Collection[str], seen: Collection[str], path: Path, what: str) -> None:
    fault = None
    if info.filename not in known:
        fault = "is not part of the format"
    elif info.filename in seen:
        fault = "is there twice"
    elif info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        fault = "is compressed; members are stored"
    elif info.flag_bits & _ENCRYPTED:
        fault = "is encrypted"
    if fault is not None:
        raise user_error(
            "damaged-artifact",
            f"the member {info.filename!r} of the {what} {fault}",
            location=Location(str(path)),
            expected=", ".join(sorted(known)),
        )

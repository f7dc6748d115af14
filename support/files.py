"""Reading and writing the user's files: errors become diagnostics, writes are atomic."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from binpoint.support.diagnostics import Location, UserError, user_error


def read_bytes(path: Path, what: str) -> bytes:
    """The file's bytes. `what` names the kind of file in the error, e.g. "network file"."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        raise _os_error(error, path, f"cannot read the {what}", "unreadable-file") from None


def read_text(path: Path, what: str) -> str:
    """The file as UTF-8 text, with a diagnostic where it is not text."""
    data = read_bytes(path, what)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise user_error(
            "not-text",
            f"the {what} is not UTF-8 text",
            location=Location(str(path), line),
            found=f"byte 0x{data[error.start]:02x} at offset {error.start}",
            expected="UTF-8 text",
        ) from None


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write the whole file or nothing: a temporary sibling is renamed over the target.

    An interrupted or failed write leaves an existing file as it was. What is no file but can be written, such as
    /dev/null or a pipe, is written in place. Raises UserError.
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    temporary: str | None = None
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise _os_error(error, path, "cannot write the file", "unwritable-file") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    """Create the directory and its parents; an existing one is fine. Raises UserError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _os_error(error, path, "cannot create the directory", "unwritable-file") from None


def _os_error(error: OSError | ValueError, path: Path, message: str, code: str) -> UserError:
    found = getattr(error, "strerror", None) or str(error)
    return user_error(code, message, location=Location(str(path)), found=found)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

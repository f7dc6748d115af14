"""Reading and writing the user's files: errors become diagnostics, writes are atomic."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from binpoint.support.diagnostics import Location, UserError, user_error

_DEVICES = Path("/dev")


def read_bytes(path: Path, what: str) -> bytes:
    """The file's bytes. `what` names the kind of file in the error, e.g. "network file"."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        raise _os_error(error, path, f"cannot read the {what}", "unreadable-file") from None


def read_text(path: Path, what: str) -> str:
    """The file as UTF-8 text without a byte order mark, with a diagnostic where it is not text."""
    data = read_bytes(path, what)
    try:
        return data.decode("utf-8").removeprefix("\N{BYTE ORDER MARK}")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise user_error(
            "not-text",
            f"the {what} is not UTF-8 text",
            location=Location(str(path), line),
            found=f"byte 0x{data[error.start]:02x} at offset {error.start}",
            expected="UTF-8 text",
        ) from None


def check_readable(path: Path, what: str) -> None:
    """Refuse what cannot be opened, before a library opens it that would say so in its own way. Raises UserError."""
    try:
        with path.open("rb"):
            pass
    except (OSError, ValueError) as error:
        raise _os_error(error, path, f"cannot read the {what}", "unreadable-file") from None


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write the whole file or nothing: a temporary sibling is renamed over the target.

    An interrupted or failed write leaves an existing file as it was; one that is replaced keeps its mode, and a link
    to it stays a link. What is no file but can be written, such as /dev/null or a pipe, is written in place, and so is
    /dev/stdout whatever stands behind it. Raises UserError.
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    temporary: str | None = None
    try:
        if path.exists() and (not path.is_file() or _DEVICES in path.absolute().parents):
            path.write_bytes(content)
            return
        place = Path(os.path.realpath(path))
        mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else 0o666 & ~_umask()
        # The name is cut, because that of a file may already have the greatest length.
        descriptor, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:32]}.")
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, place)
        temporary = None
    except (OSError, ValueError) as error:
        raise _os_error(error, path, "cannot write the file", "unwritable-file") from None
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def check_writable(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse, before any work is done, what could not be written or would overwrite an input. Raises UserError."""
    if os.path.realpath(path) in map(os.path.realpath, inputs):
        raise user_error("same-file", "the output would overwrite an input", location=Location(str(path)))
    folder = path.absolute().parent
    if path.is_dir():
        found = "a directory"
    elif not folder.is_dir():
        found = f"no directory {path.parent}"
    elif path.exists() and not path.is_file():
        return  # a device or a pipe
    elif not os.access(folder, os.W_OK | os.X_OK):
        found = f"no permission to write in {path.parent}"
    else:
        return
    raise user_error("unwritable-file", "cannot write the file", location=Location(str(path)), found=found)


def make_directory(path: Path) -> None:
    """Create the directory and its parents; an existing one is fine. Raises UserError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _os_error(error, path, "cannot create the directory", "unwritable-file") from None


def remove_file(path: Path) -> None:
    """Remove a file, or the link to it; one that is not there is fine. Raises UserError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _os_error(error, path, "cannot remove the file", "unwritable-file") from None


def _os_error(error: OSError | ValueError, path: Path, message: str, code: str) -> UserError:
    found = getattr(error, "strerror", None) or str(error)
    return user_error(code, message, location=Location(str(path)), found=found)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""Text files of lines that a resumed run goes on writing where its checkpoint was taken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from binpoint.support.diagnostics import Location, UserError, user_error


class LineFile:
    """A file that is written line by line.

    Args:
        path: the file.
        position: where a checkpoint says that its lines end: what stands behind is dropped, and writing goes on
            there. None starts a new file, also over an old one.

    Raises:
        UserError: the file cannot be written, or is shorter than the checkpoint says.
    """

    def __init__(self, path: Path, position: int | None = None) -> None:
        self._path = path
        goes_on = position is not None and path.is_file()
        try:
            self._stream: BinaryIO = path.open("r+b" if goes_on else "wb")
            if goes_on and position is not None:
                self._cut(position)
        except OSError as error:
            raise self._error(error) from None

    def write(self, text: str) -> None:
        """Write text, which reaches the file at the latest with `position`. Raises UserError."""
        try:
            self._stream.write(text.encode("utf-8", errors="backslashreplace"))
        except OSError as error:
            raise self._error(error) from None

    def position(self) -> int:
        """Bring everything to the disk; gives the length in bytes. Raises UserError."""
        try:
            self._stream.flush()
            if not self._path.is_file():
                return 0
            os.fsync(self._stream.fileno())
            return self._stream.tell()
        except OSError as error:
            raise self._error(error) from None

    def close(self) -> None:
        """Write what is left and close. Raises UserError."""
        try:
            self._stream.close()
        except OSError as error:
            raise self._error(error) from None

    def _cut(self, position: int) -> None:
        found = self._stream.seek(0, os.SEEK_END)
        if found < position:
            raise user_error(
                "shorter-log",
                "the file ends before the checkpoint does: it is not the one that this training wrote",
                location=Location(str(self._path)),
                found=f"{found} bytes",
                expected=f"at least {position} bytes",
                hint="write to a file of another name",
            )
        self._stream.truncate(position)
        self._stream.seek(position)

    def _error(self, error: OSError) -> UserError:
        place = Location(str(self._path))
        return user_error("unwritable-file", "cannot write the file", location=place, found=error.strerror)

"""The local cache of compiled kernels: object code by a hash of everything that decides it.

A cache is an aid: an entry that cannot be read, is damaged or cannot be written never fails a run. It holds code that
this machine compiled for itself; artifacts carry none. Several processes may use one at the same time.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from binpoint.support.diagnostics import UserError, user_error
from binpoint.support.files import make_directory, write_atomically

DIRECTORY = "BINPOINT_CACHE"
"""The environment variable that names the cache's directory; set but empty turns the cache off."""

LIMIT = "BINPOINT_CACHE_MIB"
"""The environment variable that limits the size of the cache."""

DEFAULT_LIMIT = 256 << 20
"""Bytes of entries that a cache may keep, some thousands of kernels; the least recently used ones go first."""

ENTRIES = "[0-9a-f]" * 64 + ".kernel"
"""The files of a cache. A directory that the user names may hold others, which are not ours to remove."""

PACKAGES = ("apache-tvm", "apache-tvm-ffi")
"""The packages whose versions decide the code."""


def default_directory() -> Path | None:
    """Where compiled kernels are kept: BINPOINT_CACHE, else the user's cache directory; None for nowhere."""
    chosen = os.environ.get(DIRECTORY)
    if chosen is not None:
        return Path(chosen) if chosen else None
    user = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(user) if user else Path.home() / ".cache") / "binpoint"
    except RuntimeError:  # a user without a home, as in some containers
        return None


def size_limit() -> int:
    """How many bytes of entries are kept: BINPOINT_CACHE_MIB, else DEFAULT_LIMIT. Raises UserError."""
    chosen = os.environ.get(LIMIT, "")
    if not chosen:
        return DEFAULT_LIMIT
    if not (chosen.isascii() and chosen.isdecimal() and len(chosen) <= 9):
        expected = f"a whole number of MiB, such as {DEFAULT_LIMIT >> 20}"
        raise user_error("wrong-cache-size", f"{LIMIT} is no size", found=chosen, expected=expected)
    return int(chosen) << 20


@lru_cache(maxsize=1)
def generator_fingerprint() -> str:
    """A hash of the sources that generate kernels, of the compiler's version, and of what kind of machine this is.

    Machines of several kinds may share a cache by way of a home directory on a network.
    """
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()}\0".encode())
    package = Path(__file__).resolve().parent.parent
    for source in sorted(package.rglob("*.py")):
        digest.update(str(source.relative_to(package)).encode() + b"\0" + source.read_bytes() + b"\0")
    for name in PACKAGES:
        digest.update(f"{name}=={version(name)}\0".encode())
    return digest.hexdigest()


class KernelCache:
    """Object code by description, in one directory; None keeps nothing.

    The first entry that is written also removes what `limit` bytes of entries leave no room for. Later ones do not:
    what one process compiles is little beside the limit.
    """

    def __init__(self, directory: Path | None, limit: int = DEFAULT_LIMIT) -> None:
        self.directory = directory
        self._limit = limit
        self._pruned = False

    def get(self, description: str) -> bytes | None:
        """The code, None where there is none or it is damaged."""
        if self.directory is None:
            return None
        path = self._path(self.directory, description)
        try:
            entry = path.read_bytes()
        except OSError:
            return None
        with suppress(OSError):  # a cache that this user may only read
            os.utime(path)
        checksum, code = entry[: hashlib.sha256().digest_size], entry[hashlib.sha256().digest_size :]
        return code if hashlib.sha256(code).digest() == checksum else None

    def put(self, description: str, code: bytes) -> None:
        """Keep the code; where the directory cannot be written, do nothing."""
        if self.directory is None:
            return
        try:
            make_directory(self.directory)
            write_atomically(self._path(self.directory, description), hashlib.sha256(code).digest() + code)
        except UserError:
            return
        if not self._pruned:
            self._pruned = True
            prune(self.directory, self._limit)

    @staticmethod
    def _path(directory: Path, description: str) -> Path:
        name = hashlib.sha256(f"{generator_fingerprint()}\0{description}".encode()).hexdigest()
        return directory / f"{name}.kernel"


def prune(directory: Path, limit: int) -> None:
    """Remove the entries that were not used for the longest time, until the others take at most `limit` bytes.

    An entry's time is that of its last use. Other processes may read, write and remove entries meanwhile; one that
    misses an entry generates it again.
    """
    found = []
    for path in _entries(directory):
        with suppress(OSError):
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, path))
    kept = 0
    for _, size, path in sorted(found, reverse=True):
        kept += size
        if kept > limit:
            with suppress(OSError):
                path.unlink()


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.glob(ENTRIES))
    except OSError:  # the directory too may be removed at any time
        return []

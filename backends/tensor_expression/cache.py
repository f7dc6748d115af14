"""The local cache of compiled kernels: object code by a hash of everything that decides it.

A cache is an aid: an entry that cannot be read, is damaged or cannot be written never fails a run. It holds code that
this machine compiled for itself; artifacts carry none.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from binpoint.support.diagnostics import UserError
from binpoint.support.files import make_directory, write_atomically

DIRECTORY = "BINPOINT_CACHE"
"""The environment variable that names the cache's directory; set but empty turns the cache off."""

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
    """Object code by description, in one directory; None keeps nothing."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory

    def get(self, description: str) -> bytes | None:
        """The code, None where there is none or it is damaged."""
        if self.directory is None:
            return None
        try:
            entry = self._path(self.directory, description).read_bytes()
        except OSError:
            return None
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

    @staticmethod
    def _path(directory: Path, description: str) -> Path:
        name = hashlib.sha256(f"{generator_fingerprint()}\0{description}".encode()).hexdigest()
        return directory / f"{name}.kernel"

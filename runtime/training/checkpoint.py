"""Checkpoints: everything that a killed training goes on from, in one safetensors file that is written whole or not.

Arrays are tensors of the file; all else is one JSON document in its header, beside a hash of both. The identity says of
which training the checkpoint is: settings by name, compared one by one before anything is taken over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from binpoint.runtime.training.engine import Snapshot
from binpoint.runtime.training.identity import Identity, differences
from binpoint.support.diagnostics import Diagnostic, Location, UserError, user_error
from binpoint.support.files import make_directory, write_atomically

FORMAT, FORMAT_VERSION = "binpoint-checkpoint", 2
FILE_NAME = "checkpoint.safetensors"
HEADER, HASH = "binpoint", "sha256"
"""Keys of the file's metadata: the document, and the hash of document and arrays."""

SHOWN_DIFFERENCES = 20
"""How many differing fields an error shows."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A training at one moment.

    Attributes:
        identity: what must be the same where it goes on.
        snapshot: of the engine.
        progress: of the loop, as plain data.
        positions: lengths of the log and the trace in bytes, by the name of their option.
    """

    identity: Identity
    snapshot: Snapshot
    progress: Mapping[str, Any]
    positions: Mapping[str, int]


class CheckpointFolder:
    """Holds the last checkpoint of one training.

    Args:
        folder: made where it is missing.
        identity: of the training.
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._path, self._identity = folder / FILE_NAME, dict(identity)
        make_directory(folder)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def write(self, snapshot: Snapshot, progress: Mapping[str, Any], positions: Mapping[str, int]) -> None:
        """Replace the last checkpoint, whole or not at all. Raises UserError."""
        from safetensors.numpy import save

        arrays = {name: np.ascontiguousarray(array) for name, array in snapshot.arrays.items()}
        document = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "identity": self._identity,
            "engine": snapshot.document,
            "progress": progress,
            "positions": positions,
        }
        text = json.dumps(document, ensure_ascii=False)
        write_atomically(self._path, save(arrays, {HEADER: text, HASH: _digest(arrays, text)}))

    def read(self) -> Checkpoint | None:
        """The last checkpoint, None where there is none yet.

        Raises:
            UserError: the file is no whole checkpoint, or one of another training: with the settings that differ.
        """
        if not self._path.exists():
            return None
        if not self._path.is_file():
            raise _damaged(self._path, "this is no checkpoint", "no ordinary file")
        document, arrays = _load(self._path)
        version = document.get("format_version")
        if document.get("format") != FORMAT or version != FORMAT_VERSION:
            found = f"{document.get('format')}, version {version}"
            raise _damaged(self._path, "this is no checkpoint of this version", found)
        with self.restoring():
            self._check_identity(document["identity"])
            snapshot = Snapshot(arrays, document["engine"])
            return Checkpoint(document["identity"], snapshot, document["progress"], document["positions"])

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """What does not fit together inside of a checkpoint, which only a forged one can hold, becomes a UserError."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _damaged(self._path, "the checkpoint does not hold what it should", repr(error)) from None

    def _check_identity(self, kept: Identity) -> None:
        rows = differences(self._identity, kept)
        if not rows:
            return
        count = "1 setting differs" if len(rows) == 1 else f"{len(rows)} settings differ"
        more = [("...", "", "")] if len(rows) > SHOWN_DIFFERENCES else []
        raise UserError(
            Diagnostic(
                "other-training",
                f"the checkpoint is of another training: {count}",
                Location(str(self._path)),
                hint="go on with what the checkpoint expects, or train into another folder",
                rows=(("setting", "found", "expected"), *rows[:SHOWN_DIFFERENCES], *more),
            )
        )


def _load(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The document and the arrays of a whole file. Raises UserError."""
    import safetensors

    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no mapping
    except OSError as error:
        place = Location(str(path))
        raise user_error("unreadable-file", "cannot read the checkpoint", location=place, found=error) from None
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise _damaged(path, "the checkpoint is cut off or damaged", str(error)) from None
    if HEADER not in metadata:
        raise _damaged(path, "this is no checkpoint", "a safetensors file of another kind")
    if metadata.get(HASH) != _digest(arrays, metadata[HEADER]):
        raise _damaged(path, "the checkpoint is not the one that was written: its hash differs", None)
    document: dict[str, Any] = json.loads(metadata[HEADER])
    return document, arrays


def _digest(arrays: Mapping[str, NDArray[Any]], document: str) -> str:
    digest = hashlib.sha256(document.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()


def _damaged(path: Path, message: str, found: str | None) -> UserError:
    hint = "remove it to start anew"
    return user_error("damaged-checkpoint", message, location=Location(str(path)), found=found, hint=hint)

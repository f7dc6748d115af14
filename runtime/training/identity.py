"""What makes one training another: options, data, network and target, by the names and in the words of a user."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.training_program import TrainingProgram
from binpoint.runtime.data import ArraySource, Samples
from binpoint.support.target import Target
from binpoint.support.target_file import target_settings

Identity = Mapping[str, str]
"""What must be the same where a training goes on: `--seed` is "0", `numeric.rounding` is "floor"."""

COMPILED = "compiled program"
"""The one field that follows from the others, with the same compiler."""

SHOWN_CHARACTERS = 60
"""How much of a value an error shows."""


def program_fields(program: TrainingProgram) -> dict[str, str]:
    """A hash of everything that one mini-batch does: of every step and every format."""
    formats = sorted(program.formats.items())
    parts = (program.name, program.logits, program.inputs, program.parameters, program.steps, formats)
    return {COMPILED: _shown_hash(hashlib.sha256(str(parts).encode()))}


def target_fields(target: Target) -> dict[str, str]:
    """The array, key by key as `--set` names them; who allocates does not matter, results are the same."""
    irrelevant = ("allocation.allocator", "description")
    return {f"target.{key}": value for key, value in target_settings(target).items() if key not in irrelevant}


def data_fields(samples: Samples, option: str) -> dict[str, str]:
    """How many samples an option gives, and a hash of their labels and, where they are in memory, of all numbers."""
    digest = hashlib.sha256()
    if samples.labels is not None:
        digest.update(samples.labels.tobytes())
    for name, source in sorted(samples.sources.items()):
        digest.update(name.encode())
        if isinstance(source, ArraySource):
            digest.update(source.array.tobytes())
    for name in samples.names or ():
        digest.update(name.encode())
    return {f"samples of {option}": str(len(samples)), f"content of {option}": _shown_hash(digest)}


def parameter_fields(parameters: Mapping[str, NDArray[np.float32]], file: Path | None) -> dict[str, str]:
    """Where the first parameters come from; None for a draw, which the seed and the network decide."""
    if file is None:
        return {"first parameters": "drawn"}
    digest = hashlib.sha256()
    for _, values in sorted(parameters.items()):
        digest.update(np.ascontiguousarray(values).data)
    return {"first parameters": f"of a weights file, {_shown_hash(digest)}"}


def differences(found: Identity, expected: Identity) -> list[tuple[str, str, str]]:
    """(field, found, expected) of each field that differs; what follows from others only where it is alone."""
    names = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    told = [name for name in names if name != COMPILED] or names
    return [(name, *_excerpts(_words(found, name), _words(expected, name))) for name in told]


def _words(fields: Identity, name: str) -> str:
    return fields.get(name, "not given")


def _shown_hash(digest: hashlib._Hash) -> str:
    return f"sha256 {digest.hexdigest()[:16]}"


def _excerpts(one: str, other: str) -> tuple[str, str]:
    """Two texts that differ, long ones cut to where they do."""
    if max(len(one), len(other)) <= SHOWN_CHARACTERS:
        return one, other
    alike = next((index for index, pair in enumerate(zip(one, other, strict=False)) if len(set(pair)) > 1), 0)
    start = max(0, alike - SHOWN_CHARACTERS // 2)
    return _excerpt(one, start), _excerpt(other, start)


def _excerpt(text: str, start: int) -> str:
    head, tail = "..." if start else "", "..." if len(text) > start + SHOWN_CHARACTERS else ""
    return f"{head}{text[start : start + SHOWN_CHARACTERS]}{tail}"

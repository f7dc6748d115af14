"""The manifest of an artifact: what it is, who wrote it, and the hash of every other member."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from binpoint.support.diagnostics import Collector, Diagnostic, Location, UserError, user_error
from binpoint.support.json_text import JsonText
from binpoint.support.version import VERSION

FORMAT = "binpoint-artifact"
FORMAT_VERSION = 1
"""Raised by one with every change that an older reader cannot follow."""

MEMBER = "manifest.json"


class Source(StrEnum):
    """The kinds of places that parameters come from."""

    FILE = "file"
    DRAW = "draw"
    TRAINING = "training"


@dataclass(frozen=True)
class Origin:
    """Where parameters come from: a file of this name, a random draw with this seed, or training."""

    source: Source
    file: str | None = None
    seed: int | None = None

    def __str__(self) -> str:
        match self.source:
            case Source.FILE:
                return f"read from {self.file}"
            case Source.DRAW:
                return f"drawn with seed {self.seed}"
            case Source.TRAINING:
                return "trained"


@dataclass(frozen=True)
class Manifest:
    """What an artifact says about itself.

    `batch` is the number of images that it was compiled for, `policy` the numeric policy in words (the IR holds
    it in full), `hashes` the SHA-256 of every other member in hexadecimal. `origin` is that of the parameters, None
    where whoever wrote the artifact did not say.
    """

    network: str
    target: str
    batch: int
    policy: tuple[str, ...]
    hashes: Mapping[str, str]
    origin: Origin | None = None
    format_version: int = FORMAT_VERSION
    binpoint_version: str = VERSION


def digest(data: bytes) -> str:
    """The SHA-256 of a member in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def print_manifest(manifest: Manifest) -> str:
    """The manifest as JSON, always the same for the same contents."""
    document = {
        "format": FORMAT,
        "format_version": manifest.format_version,
        "binpoint_version": manifest.binpoint_version,
        "network": manifest.network,
        "target": manifest.target,
        "batch": manifest.batch,
        "policy": list(manifest.policy),
        "weights": origin_facts(manifest.origin),
        "sha256": dict(sorted(manifest.hashes.items())),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def origin_facts(origin: Origin | None) -> dict[str, str | int] | None:
    """An origin as JSON values."""
    if origin is None:
        return None
    facts = {"source": str(origin.source), "file": origin.file, "seed": origin.seed}
    return {key: value for key, value in facts.items() if value is not None}


def parse_manifest(text: str, file: str) -> Manifest:
    """Read a manifest. `file` names the artifact in diagnostics.

    Raises:
        UserError: where the text is no manifest, or is of a newer format.
    """
    document = JsonText(text, file, "manifest").data
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else document
        raise _fault(file, f'the manifest does not say that this is a "{FORMAT}"', str(found)[:40])
    version = document.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise user_error(
            "newer-artifact",
            f"the artifact has format {version}; binpoint {VERSION} reads formats up to {FORMAT_VERSION}",
            location=Location(file),
            found=f"written by binpoint {str(document.get('binpoint_version'))[:40]}",
            hint="compile the network again, or use a newer binpoint",
        )
    _check_keys(document, file)
    return Manifest(
        network=document["network"],
        target=document["target"],
        batch=document["batch"],
        policy=tuple(document["policy"]),
        hashes=document["sha256"],
        origin=_origin(document.get("weights"), file),
        format_version=document["format_version"],
        binpoint_version=document["binpoint_version"],
    )


def check_hashes(manifest: Manifest, members: Mapping[str, bytes], file: str) -> None:
    """Compare every member with its hash.

    Raises:
        UserError: with every member that is missing, not listed, or not what the manifest says.
    """
    collector = Collector()
    for name in sorted({*manifest.hashes, *members} - {MEMBER}):
        if name not in members:
            message = f'the member "{name}" is missing'
        elif name not in manifest.hashes:
            message = f'the manifest does not list the member "{name}"'
        elif digest(members[name]) != manifest.hashes[name]:
            message = f'the member "{name}" is not the one that was written: its hash differs'
        else:
            continue
        hint = "compile or copy the artifact again"
        collector.add(Diagnostic("damaged-artifact", message, Location(file), hint=hint))
    collector.raise_any()


def _check_keys(document: dict[str, Any], file: str) -> None:
    checks: dict[str, Callable[[Any], bool]] = {
        "format_version": _is_count,
        "binpoint_version": _is_text,
        "network": _is_text,
        "target": _is_text,
        "batch": _is_count,
        "policy": lambda value: isinstance(value, list) and all(map(_is_text, value)),
        "sha256": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    }
    for key, check in checks.items():
        if not check(document.get(key)):
            raise _fault(file, f'the manifest has no usable "{key}"', str(document.get(key))[:40])


def _origin(facts: object, file: str) -> Origin | None:
    """The origin of the parameters; artifacts of before it was recorded have none."""
    match facts:
        case None:
            return None
        case {"source": Source.FILE, "file": str(name), **rest} if not rest:
            return Origin(Source.FILE, file=name)
        case {"source": Source.DRAW, "seed": int(seed), **rest} if not rest and not isinstance(seed, bool):
            return Origin(Source.DRAW, seed=seed)
        case {"source": Source.TRAINING, **rest} if not rest:
            return Origin(Source.TRAINING)
    raise _fault(file, 'the manifest has no usable "weights"', str(facts)[:40])


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _fault(file: str, message: str, found: str) -> UserError:
    return user_error("damaged-artifact", message, location=Location(file), found=found)

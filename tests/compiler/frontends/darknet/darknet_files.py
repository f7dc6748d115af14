"""Small Darknet networks with drawn weights, as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

HEADER = np.array([0, 2, 0, 7, 0], "<i4").tobytes()
"""Version 0.2.0, then the count of images seen in 64 bits."""


def net(*sections: str, size: tuple[int, int] = (8, 8), channels: int = 3) -> str:
    """A .cfg text: each section is "[name] key=value key=value"."""
    lines = ["[net]", "# Testing", "batch=1", f"height={size[0]}", f"width={size[1]}", f"channels={channels}", ""]
    for section in sections:
        name, *options = section.split(" ")
        lines += [name, *options, ""]
    return "\n".join(lines)


def conv(filters: int, size: int = 3, activation: str = "leaky", norm: int = 1, more: str = "") -> str:
    """A convolutional section that keeps the size."""
    options = f"filters={filters} size={size} stride=1 pad=1 activation={activation}"
    return f"[convolutional] batch_normalize={norm} {options}{' ' + more if more else ''}"


def head(classes: int = 2, kind: str = "yolo", more: str = "") -> str:
    """A detection head of two anchors."""
    return f"[{kind}] anchors=1,2,3,4 num=2 classes={classes}{' ' + more if more else ''}"


def write_cfg(folder: Path, text: str, name: str = "tiny.cfg") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def write_weights(folder: Path, count: int, most: float = 1) -> Path:
    """A weights file of `count` numbers between a tenth of `most` and that: fit for variances, too."""
    numbers = np.random.default_rng(0).uniform(most / 10, most, count).astype("<f4")
    path = folder / "tiny.weights"
    path.write_bytes(HEADER + numbers.tobytes())
    return path

"""The allocations that the experiments compare: one array, its statistics PEs thinned in several ways."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

from binpoint.support.target import Allocation, RotationCount, Strategy, Target
from binpoint.support.target_file import load_target

ARRAY = "dlu2048"
"""The shipped target whose array all of them share."""

FULL = "full"
"""Statistics in every PE: what the others are compared with."""

CONTINUOUS = "continuous"
"""Rotated, and the rotation goes on across mini-batches."""


def allocations(thinning: int) -> dict[str, Target]:
    """Targets by name, all but `full` with a statistics circuit in one PE of `thinning`.

    Args:
        thinning: a square, such as 16: `both` and `thinned` thin images and channels by its root.
    """
    root = isqrt(thinning)
    if root * root != thinning:
        raise ValueError(f"the thinning {thinning} is no square")
    array = load_target(ARRAY)
    kinds = {
        "image": Allocation(Strategy.MECHANICAL, thinning, 1),
        "channel": Allocation(Strategy.MECHANICAL, 1, thinning),
        "both": Allocation(Strategy.MECHANICAL, root, root),
        "rotated": Allocation(),
        "thinned": Allocation(Strategy.THINNED_ROTATED, root, root),
        CONTINUOUS: Allocation(rotation=RotationCount.CONTINUOUS),
    }
    targets = {FULL: full_statistics(array)}
    for name, allocation in kinds.items():
        statistics_pes = tuple(range(0, array.pes, thinning))
        targets[name] = replace(array, name=name, statistics_pes=statistics_pes, allocation=allocation)
    return targets


def full_statistics(target: Target) -> Target:
    """The same array with a statistics circuit in every PE."""
    return replace(target, name=FULL, statistics_pes=tuple(range(target.pes)))


TITLES = {
    FULL: "statistics in every PE",
    "image": "mechanical, thinned by image",
    "channel": "mechanical, thinned by channel",
    "both": "mechanical, thinned by both",
    "rotated": "rotated (fig. 13)",
    "thinned": "thinned-rotated (fig. 15)",
    CONTINUOUS: "rotated across mini-batches",
}
"""What plots call them."""

COLOURS = {
    FULL: "#000000",
    "image": "#e69f00",
    "channel": "#d55e00",
    "both": "#cc79a7",
    "rotated": "#0072b2",
    "thinned": "#56b4e9",
    CONTINUOUS: "#009e73",
}
"""Their colours in all plots, distinct to colour-blind eyes, too (Okabe and Ito): warm ones are mechanical."""

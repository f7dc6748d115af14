"""The counter-based generator of stochastic rounding: SplitMix64, keyed by (seed, tensor, step).

The number that decides a result depends on the key and on the result's index alone, so rounding does not
depend on tiles, batches or threads. Source of the mixing function: Steele, Lea, Flood, "Fast splittable
pseudorandom number generators", OOPSLA 2014, with the constants of Vigna's splitmix64.c.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from binpoint.backends.kernel import Draw

GOLDEN_GAMMA = 0x9E3779B97F4A7C15
"""The increment of the counter: 2^64 over the golden ratio, odd."""

MIX_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""(shift, multiplier) of the finalizer's two rounds: z = (z ^ (z >> shift)) * multiplier."""

LAST_SHIFT = 31
"""The finalizer ends with z ^ (z >> 31)."""

_MASK = 2**64 - 1


def draw_key(draw: Draw) -> int:
    """The 64-bit key of one tensor in one step.

    Starting from 0, each of seed, tensor, step is added with GOLDEN_GAMMA and the sum is mixed. Negative
    numbers count modulo 2^64.
    """
    key = 0
    for part in (draw.seed, draw.tensor, draw.step):
        key = _mix((key + part + GOLDEN_GAMMA) & _MASK)
    return key


def draws(key: int, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """r(i) = mix(key + (i + 1) * GOLDEN_GAMMA mod 2^64) for each element index i >= 0."""
    # Unsigned 64-bit arrays wrap modulo 2^64, as the generator wants.
    state = np.uint64(key) + (indices.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN_GAMMA)
    for shift, multiplier in MIX_STEPS:
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(multiplier)
    return state ^ (state >> np.uint64(LAST_SHIFT))


def _mix(state: int) -> int:
    for shift, multiplier in MIX_STEPS:
        state = (state ^ (state >> shift)) * multiplier & _MASK
    return state ^ (state >> LAST_SHIFT)

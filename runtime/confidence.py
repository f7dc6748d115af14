"""What a sample proves about the share of values that overflow, decided in integers (docs/policies.md).

Of n samples k overflow. C. J. Clopper and E. S. Pearson (Biometrika 26, 1934) bound the true share from above, at
confidence 1 - a, by the p for which a binomial variable X of n draws has P(X <= k) = a. That probability falls as p
grows, so the bound is at most r if and only if P(X <= k) <= a at p = r: the tail is compared, nothing is inverted.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

_FRACTION_BITS = 64
"""Bits behind the point of the terms of a tail; each is rounded towards the cautious answer."""


@lru_cache(maxsize=4096)
def most_overflows(samples: int, share: Fraction, confidence: Fraction) -> int:
    """The most overflows in a sample whose upper confidence bound on the true share is at most `share`.

    -1 where not even a sample without overflows has such a bound: (1 - share)^samples > 1 - confidence.

    Args:
        samples: n, 0 or more.
        share: 0 to 1.
        confidence: more than 0 and less than 1.
    """
    if share >= 1:
        return samples - 1
    proven, refuted = -1, int(samples * share) + 1
    while refuted - proven > 1:
        middle = (proven + refuted) // 2
        if _is_unlikely(samples, middle, share, 1 - confidence):
            proven = middle
        else:
            refuted = middle
    return proven


def _is_unlikely(samples: int, overflows: int, share: Fraction, chance: Fraction) -> bool:
    """Whether P(X <= k) <= chance for X of n draws that overflow with probability r < 1 each, and k <= r * n.

    With T_j = P(X = j), S = T_0 + ... + T_k and R = T_(k+1) + ... + T_n, S + R = 1, so S <= a means
    (1 - a) * S <= a * R. Only T_j / T_k are needed, and T_(j+1) / T_j = (n - j) / (j + 1) * r / (1 - r).
    """
    hit, miss = share.numerator, share.denominator - share.numerator
    below = term = 1 << _FRACTION_BITS
    for j in range(overflows, 0, -1):
        smaller = -(-term * j * miss // ((samples - j + 1) * hit))
        if smaller == term:  # rounded up, terms stop shrinking here: the j that are left are no larger
            below += j * term
            break
        term = smaller
        below += term
    needed = -(-below * (chance.denominator - chance.numerator) // chance.numerator)
    above, term = 0, 1 << _FRACTION_BITS
    for j in range(overflows, samples):
        term = term * (samples - j) * hit // ((j + 1) * miss)
        above += term
        if above >= needed or term == 0:
            break
    return above >= needed

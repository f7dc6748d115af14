"""The bound of Clopper and Pearson, against exact binomial sums."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.runtime.confidence import most_overflows

SHARES = st.fractions(0, 1, max_denominator=50)
CONFIDENCES = st.fractions(Fraction(1, 2), Fraction(999, 1000), max_denominator=1000)


def tail(samples, overflows, share):
    """P(X <= overflows), exactly."""
    terms = (math.comb(samples, j) * share**j * (1 - share) ** (samples - j) for j in range(overflows + 1))
    return sum(terms, Fraction(0))


@given(st.integers(0, 60), SHARES, CONFIDENCES)
def test_the_most_overflows_are_those_of_the_exact_tail(samples, share, confidence):
    # Terms are rounded towards the cautious answer, which may decide an exact tie.
    cautious = (1 - confidence) * (1 - Fraction(1, 2**40))
    tails = [tail(samples, k, share) for k in range(samples + 1)]
    least, most = (sum(each <= chance for each in tails) - 1 for chance in (cautious, 1 - confidence))
    assert least <= most_overflows(samples, share, confidence) <= most


@pytest.mark.parametrize(
    ("share", "confidence", "samples"),
    [("0.05", "0.95", 59), ("0.01", "0.99", 459), ("0.00002", "0.95", 149_786), ("0.00002", "0.999", 345_385)],
)
def test_without_overflows_so_many_samples_prove_a_share(share, confidence, samples):
    """n >= log(1 - confidence) / log(1 - share): 59 for 5 % at 95 % is the classic number."""
    share, confidence = Fraction(share), Fraction(confidence)
    assert most_overflows(samples, share, confidence) == 0
    assert most_overflows(samples - 1, share, confidence) == -1


@pytest.mark.parametrize(
    ("samples", "share", "most"), [(10**6, "0.00002", 12), (10**9, "0.00002", 19_767), (10**8, "0.1", 9_995_065)]
)
def test_large_samples_approach_the_normal_bound(samples, share, most):
    """k <= m - 1.645 * sqrt(m * (1 - r)) for m = n * r; exact within a few counts and quick."""
    share = Fraction(share)
    assert most_overflows(samples, share, Fraction(19, 20)) == most
    mean = float(samples * share)
    assert most == pytest.approx(mean - 1.645 * math.sqrt(mean * (1 - share)), abs=2)


@given(st.integers(0, 10**7), st.fractions(0, Fraction(1, 1000), max_denominator=10**6))
def test_a_bound_never_tolerates_more_than_the_share_itself(samples, share):
    assert most_overflows(samples, share, Fraction(19, 20)) <= share * samples


@given(st.integers(0, 10**6), st.fractions(0, Fraction(1, 1000), max_denominator=10**6))
def test_more_samples_and_less_confidence_tolerate_more(samples, share):
    least = most_overflows(samples, share, Fraction(99, 100))
    assert least <= most_overflows(samples + 1000, share, Fraction(99, 100))
    assert least <= most_overflows(samples, share, Fraction(9, 10))

"""Where terms meet: as fine as possible, and never past the accumulator."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from binpoint.backends.kernel import Accumulator
from binpoint.backends.oracle.alignment import aligned, alignment_exponent, meeting_exponent, total
from binpoint.support.numeric import Rounding

terms = st.lists(st.tuples(st.integers(-80, 80), st.integers(2, 24)), min_size=1, max_size=5)


@given(terms, st.sampled_from([32, 40, 63]), st.sampled_from(list(Rounding)), st.booleans())
def test_the_sum_of_extremes_fits(terms, accumulator, rounding, negative):
    exponent = meeting_exponent(terms, accumulator)
    extremes = [np.array([-(2 ** (bits - 1)) if negative else 2 ** (bits - 1) - 1]) for _, bits in terms]
    found = total(aligned(extremes, [each for each, _ in terms], exponent, rounding)).item()
    assert -(2 ** (accumulator - 1)) <= found < 2 ** (accumulator - 1)
    exact = sum(int(x[0]) * Fraction(2) ** each for x, (each, _) in zip(extremes, terms, strict=True))
    assert abs(found - exact / Fraction(2) ** exponent) <= len(terms)


def test_terms_meet_at_the_finest_where_there_is_room():
    assert meeting_exponent([(-10, 16), (-30, 16)], 63) == -30
    assert meeting_exponent([(0, 16), (-60, 16)], 63) == -45  # 16 bits, a carry and a rounding above -45: 63 bits
    assert meeting_exponent([(5, 16)], 63) == 5


def test_a_narrow_coarse_term_does_not_cost_the_fine_ones():
    """Each term has a width of its own; operands of an add count as wide as the widest."""
    assert meeting_exponent([(20, 4), (-10, 32)], 40) == -10
    assert alignment_exponent([20, -10], 32, Accumulator(40)) == 14

"""The counter-based generator against SplitMix64 in Python integers."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from binpoint.backends.generator import GOLDEN_GAMMA, draw_key, draws
from binpoint.backends.kernel import Draw

INT64 = st.integers(-(2**63), 2**63 - 1)


def mix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_known_sequence():
    # The first outputs of splitmix64.c from state 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert draws(1234567, np.arange(4)).tolist() == expected


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**40), min_size=1))
def test_draws_depend_on_key_and_index_alone(key, indices):
    expected = [mix((key + (index + 1) * GOLDEN_GAMMA) % 2**64) for index in indices]
    assert draws(key, np.array(indices)).tolist() == expected


@given(INT64, INT64, INT64)
def test_key_chains_seed_tensor_step(seed, tensor, step):
    key = 0
    for part in (seed, tensor, step):
        key = mix((key + part + GOLDEN_GAMMA) % 2**64)
    assert draw_key(Draw(seed, tensor, step)) == key


def test_neighbouring_draws_have_different_keys():
    keys = {draw_key(Draw(*parts)) for parts in itertools.product(range(-3, 12), repeat=3)}
    assert len(keys) == 15**3

"""One sentence a question: what a PE computes, who computes a pair, what is idle."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpoint.scheduling.allocation import schedule_layer
from binpoint.scheduling.explain import Explainer, ranges
from binpoint.support.target import Allocation, Strategy, Target

TARGET = Target("tiny", 16, (4, 4), (0, 4, 8, 12), allocation=Allocation(Strategy.THINNED_ROTATED, 2, 2))


def explainer(
    images: int, channels: int, target: Target = TARGET, *, statistics: bool = True, exact: bool = False
) -> Explainer:
    return Explainer(schedule_layer("conv1", images, channels, target), target, statistics, exact=exact)


def test_a_pe_with_one_pair() -> None:
    assert explainer(2, 6).pe(0).sentence == (
        "In conv1, PE 0 of tiny computes image 0, channel 0 in round 0, sampled because PE 0 has a statistics circuit."
    )


def test_a_pe_that_idles_in_some_rounds() -> None:
    assert explainer(4, 6).pe(15).sentence == (
        "In conv1, PE 15 of tiny computes image 3, channel 2 in round 0, not sampled because PE 15 has no statistics "
        "circuit (only multiples of 4 have one), and is idle in round 1 because the layer's 24 pairs "
        "(4 images x 6 channels) leave 8 of 2 x 16 PE-rounds empty."
    )


def test_a_pe_with_many_pairs_lists_the_first() -> None:
    answer = explainer(16, 16, replace(TARGET, allocation=Allocation())).pe(1)
    assert answer.sentence == (
        "In conv1, PE 1 of tiny computes image 0, channel 1 in round 0, image 1, channel 2 in round 1, image 2, "
        "channel 3 in round 2 and 13 more of 16 pairs, not sampled because PE 1 has no statistics circuit "
        "(only multiples of 4 have one)."
    )
    assert len(answer.facts["tiles"]) == 16


def test_an_idle_pe() -> None:
    answer = explainer(2, 6).pe(13)
    assert answer.sentence == (
        "In conv1, PE 13 of tiny is idle throughout, because the layer's 12 pairs (2 images x 6 channels) "
        "leave 4 of 16 PEs empty."
    )
    assert answer.facts == {"pe": 13, "statistics_pe": False, "tiles": [], "idle_rounds": [0]}


def test_a_pair() -> None:
    answer = explainer(4, 6).pair(2, 1)
    assert answer.sentence == (
        "In conv1, image 2, channel 1 is computed by PE 12 of tiny in round 0 (of rounds 0 to 1) and is sampled, "
        "because PE 12 has a statistics circuit."
    )
    assert answer.facts["sampled"] is True


def test_a_pair_inside_a_tile() -> None:
    sentence = explainer(5, 7, replace(TARGET, tile=(2, 3), statistics_pes=(1,))).pair(3, 3).sentence
    assert sentence == (
        "In conv1, image 3, channel 3, in the tile of images 2 to 3, channels 3 to 5, is computed by PE 3 of tiny in "
        "the only round and is not sampled, because PE 3 has no statistics circuit."
    )


def test_a_layer_without_statistics_is_never_sampled() -> None:
    sentence = explainer(2, 6, statistics=False, exact=True).pair(0, 0).sentence
    assert sentence.endswith("is not sampled, because conv1 only moves mantissas and has no statistics.")
    sentence = explainer(2, 6, statistics=False).pair(0, 0).sentence
    assert sentence.endswith(
        "is not sampled, because the exponents of conv1 follow what its blocks lose, not statistics."
    )


def test_idle_pes() -> None:
    answer = explainer(4, 6).idle()
    assert answer.sentence == (
        "In conv1, PEs 8 to 15 in round 1 are idle on tiny, because the layer's 24 pairs (4 images x 6 channels) "
        "leave 8 of 2 x 16 PE-rounds empty."
    )
    assert answer.facts == {"idle_pe_rounds": 8, "pe_rounds": 32, "idle": {"1": list(range(8, 16))}}


def test_no_idle_pe() -> None:
    assert explainer(8, 4).idle().sentence == (
        "In conv1, no PE of tiny is idle: the layer's 32 pairs (8 images x 4 channels) fill its 2 rounds."
    )


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([5], "PE 5"),
        ([0, 1, 2], "PEs 0 to 2"),
        ([0, 2, 3], "PEs 0 and 2 to 3"),
        ([0, 2, 4], "PEs 0, 2 and 4"),
        ([0, 2, 4, 6], "PEs 0, 2, 4 and 6"),
        ([0, 2, 4, 6, 7, 9], "PEs 0, 2, 4 and 3 more"),
    ],
)
def test_numbers_in_words(numbers: list[int], words: str) -> None:
    assert ranges("PE", numbers) == words


@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 20))
def test_pes_and_pairs_tell_the_same_story(images: int, channels: int, pes: int) -> None:
    target = Target("t", pes, (1, pes), (0,))
    asked = explainer(images, channels, target)
    tiles = [tile for pe in range(pes) for tile in asked.pe(pe).facts["tiles"]]
    assert len(tiles) == images * channels
    for tile in tiles:
        facts = asked.pair(tile["images"][0], tile["channels"][0]).facts
        assert (facts["pe"], facts["round"], facts["sampled"]) == (tile["pe"], tile["round"], tile["sampled"])
    idle = asked.idle().facts["idle"]
    for pe in range(pes):
        rounds = [int(number) for number, free in idle.items() if pe in free]
        assert rounds == asked.pe(pe).facts["idle_rounds"]
    assert asked.idle().facts["idle_pe_rounds"] == asked.schedule.rounds * pes - images * channels
    assert np.isin(asked.schedule.pe, range(pes)).all()

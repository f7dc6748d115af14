"""The cost of exponents of blocks, for the two embodiments of JP7819764B2."""

from dataclasses import replace

import pytest

from binpoint.scheduling.block_hardware import BlockWork, block_hardware
from binpoint.support.numeric import BlockMethod, BlockWords, Measure, Neighbour
from binpoint.support.target_file import load_target

WORK = BlockWork((32, 56, 56), 24)


def changed(target, **words):
    return replace(target, blocks=replace(target.blocks, words=BlockWords(**words)))


def test_the_first_embodiment_waits_in_a_buffer():
    hardware = block_hardware(load_target("block16"), WORK)
    # 16 results of 40 bits, and 32 channels that share a position take 16 PEs two rounds.
    assert (hardware.delay_buffer_bits, hardware.delay_buffer_bits_array) == (16 * 40 * 2, 16 * 16 * 40 * 2)
    assert hardware.analysis_storage_bits_array == 0
    assert hardware.latency_cycles_block == 2 * 24 + 4
    # 8 counters up to 16.
    assert hardware.counter_bits == 8 * 5
    assert (hardware.multipliers, hardware.comparators) == (16 * 9, 2 * 16 * 8)
    assert hardware.shifters == 16 * 10 + 16 + 16 * 8 + 16
    assert (hardware.position_bits, hardware.position_bits_frame) == (3, 3 * 14 * 14)
    assert (hardware.window_positions, hardware.target_positions, hardware.float_positions) == (4, 9, 36)


@pytest.mark.parametrize(
    ("neighbours", "blocks"),
    [
        ((Neighbour.LEFT,), 1),
        ((Neighbour.UPPER_RIGHT,), 13),
        ((Neighbour.UPPER, Neighbour.LEFT), 14),
        (tuple(Neighbour), 15),
    ],
)
def test_the_second_embodiment_stores_what_its_neighbours_lost(neighbours, blocks):
    target = changed(load_target("block16-neighbour"), method=BlockMethod.PREDICT, neighbours=neighbours)
    hardware = block_hardware(target, WORK)
    assert (hardware.delay_buffer_bits, hardware.latency_cycles_block) == (0, 24 + 2)
    # 14 columns of blocks; counters up to 16 x 32 take 10 bits.
    assert hardware.analysis_storage_bits_array == blocks * 8 * 10


def test_channels_with_positions_of_their_own():
    target = load_target("block16-neighbour")
    target = replace(target, blocks=replace(target.blocks, per_channel=True))
    hardware = block_hardware(target, WORK)
    assert hardware.analysis_storage_bits_array == 16 * 15 * 8 * 5
    assert hardware.position_bits_frame == 3 * 14 * 14 * 32


def test_errors_need_wider_sums_and_listed_candidates_count():
    target = changed(load_target("block16"), measure=Measure.MSE, positions=(6, 4, 2))
    hardware = block_hardware(target, WORK)
    assert hardware.counter_bits == 3 * (80 + 4)
    assert hardware.position_bits == 2
    target = changed(load_target("block16"), measure=Measure.ABSOLUTE_ERROR, candidates=1)
    assert block_hardware(target, WORK).counter_bits == 44
    assert block_hardware(target, WORK).position_bits_frame == 0


def test_a_target_without_blocks_is_refused():
    with pytest.raises(ValueError, match="has no blocks"):
        block_hardware(load_target("dlu2048"), WORK)

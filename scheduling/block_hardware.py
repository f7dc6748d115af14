"""What exponents of blocks cost in hardware: buffers, shifters, comparators, cycles (JP7819764B2 figs. 6, 7, 8, 11).

Every formula is in docs/targets.md. Embodiment 1 (`analyse`) keeps results in a delay buffer until their block is
analysed; embodiment 2 (`predict`) keeps analysis results of neighbouring blocks instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from binpoint.scheduling.positions import Window, target_positions, window_positions
from binpoint.support.blocks import Shape, block_count
from binpoint.support.numeric import BlockMethod, BlockPolicy, Measure, Neighbour
from binpoint.support.target import Target
from binpoint.support.target_blocks import TargetBlocks

RANGE_LIMITS = 2
"""A result is compared with the least and the greatest mantissa."""

ALIGN_CYCLES, ANALYSE_CYCLES, DETERMINE_CYCLES, QUANTISE_CYCLES = 1, 1, 1, 1
"""Stages behind the sums: each takes all results of a block at once."""


@dataclass(frozen=True)
class BlockWork:
    """What is computed: a map (C, H, W) of `bits`-bit results from `input_channels`; the kernel is a filter unit's."""

    map: Shape
    input_channels: int
    bits: int = 8


@dataclass(frozen=True)
class BlockHardware:
    """The block hardware of a target for some work. Bits and counts are of one PE unless the name says otherwise.

    Attributes:
        filter_units: one a pixel of a block (fig. 7).
        multipliers: taps of all filter units.
        alignment_shifters: barrel shifters in front of the sums, one a tap and one for the running sum (fig. 8).
        realignment_shifters: one a result, to bring a block to one position (fig. 7).
        analysis_shifters: one a result and candidate (fig. 9A).
        quantisation_shifters: one a result (fig. 6).
        comparators: of trial results with both ends of the range, one pair a result and candidate.
        delay_buffer_bits: results that wait for their block's position; 0 in embodiment 2.
        counter_bits: what the analysis of the present block counts or sums in.
        analysis_storage_bits_array: analysis results of earlier blocks that predictions read; 0 in embodiment 1. One
            storage serves all PEs where channels share positions, else each PE has one.
        position_bits: what names one of the candidates.
        position_bits_frame: the positions of one image's map.
        mantissa_bits_frame: its mantissas.
        window_positions, target_positions: how many positions a filter unit's window and the PE's target block meet.
        float_positions: what the target block would meet in floating point: one a pixel.
        interval_cycles_block: from one block of a PE to the next.
        latency_cycles_block: from a block's first product to its quantised results.
    """

    filter_units: int
    multipliers: int
    alignment_shifters: int
    realignment_shifters: int
    analysis_shifters: int
    quantisation_shifters: int
    comparators: int
    delay_buffer_bits: int
    delay_buffer_bits_array: int
    counter_bits: int
    analysis_storage_bits_array: int
    position_bits: int
    position_bits_frame: int
    mantissa_bits_frame: int
    window_positions: int
    target_positions: int
    float_positions: int
    interval_cycles_block: int
    latency_cycles_block: int

    @property
    def shifters(self) -> int:
        """All barrel shifters of a PE."""
        return self.alignment_shifters + self.realignment_shifters + self.analysis_shifters + self.quantisation_shifters


def block_hardware(target: Target, work: BlockWork) -> BlockHardware:
    """The block hardware of a target. Raises ValueError for one without."""
    hardware = target.blocks
    if hardware is None:
        raise ValueError(f"{target.name} has no blocks")
    policy = hardware.policy
    pixels, taps = hardware.size[0] * hardware.size[1], hardware.filter[0] * hardware.filter[1]
    candidates = len(policy.positions) if policy.positions is not None else policy.candidates
    position_bits = (candidates - 1).bit_length()
    rounds = 1 if hardware.per_channel else ceil(work.map[0] / target.pes)
    analyses = policy.method is BlockMethod.ANALYSE
    delay_bits = pixels * target.accumulator_bits * rounds if analyses else 0
    padding = (hardware.filter[0] - 1) // 2, (hardware.filter[1] - 1) // 2
    window = Window(work.map[1:], hardware.filter, padding=padding)
    target_block = window.target_block(hardware.size)
    return BlockHardware(
        filter_units=pixels,
        multipliers=pixels * taps,
        alignment_shifters=pixels * (taps + 1),
        realignment_shifters=pixels,
        analysis_shifters=pixels * candidates,
        quantisation_shifters=pixels,
        comparators=RANGE_LIMITS * pixels * candidates,
        delay_buffer_bits=delay_bits,
        delay_buffer_bits_array=delay_bits * target.pes,
        counter_bits=candidates * _loss_bits(policy, pixels, target.accumulator_bits),
        analysis_storage_bits_array=_storage_bits(target, hardware, work, candidates),
        position_bits=position_bits,
        position_bits_frame=position_bits * block_count(hardware.granularity, work.map),
        mantissa_bits_frame=work.map[0] * work.map[1] * work.map[2] * work.bits,
        window_positions=window_positions(window, hardware.size),
        target_positions=target_positions(window, hardware.size, target_block),
        float_positions=target_block[0] * target_block[1],
        interval_cycles_block=work.input_channels,
        latency_cycles_block=_latency(analyses, work.input_channels, rounds),
    )


def _loss_bits(policy: BlockPolicy, results: int, accumulator_bits: int) -> int:
    """The width of one candidate's loss over so many results."""
    if policy.measure is Measure.OVERFLOWS:
        return results.bit_length()
    error_bits = accumulator_bits if policy.measure is Measure.ABSOLUTE_ERROR else 2 * accumulator_bits
    return error_bits + (results - 1).bit_length()


def _storage_bits(target: Target, hardware: TargetBlocks, work: BlockWork, candidates: int) -> int:
    """Embodiment 2 keeps the losses of as many blocks as lie, in raster order, back to the farthest neighbour read."""
    policy = hardware.policy
    if policy.method is BlockMethod.ANALYSE:
        return 0
    columns = ceil(work.map[2] / hardware.size[1])
    lags = {
        Neighbour.LEFT: 1,
        Neighbour.UPPER_RIGHT: columns - 1,
        Neighbour.UPPER: columns,
        Neighbour.UPPER_LEFT: columns + 1,
    }
    kept = max(1, *(lags[neighbour] for neighbour in policy.neighbours))
    pixels = hardware.size[0] * hardware.size[1]
    if hardware.per_channel:
        return target.pes * kept * candidates * _loss_bits(policy, pixels, target.accumulator_bits)
    return kept * candidates * _loss_bits(policy, pixels * work.map[0], target.accumulator_bits)


def _latency(analyses: bool, sums: int, rounds: int) -> int:
    """One input channel a cycle. A prediction is made while sums are, and what it needs is analysed while quantised."""
    if not analyses:
        return sums + ALIGN_CYCLES + QUANTISE_CYCLES
    return sums * rounds + ALIGN_CYCLES + ANALYSE_CYCLES + DETERMINE_CYCLES + QUANTISE_CYCLES

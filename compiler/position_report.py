"""What the positions of a program's feature maps take, and how many of them its convolutions meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp

from binpoint.backends.kernel import TensorSpec
from binpoint.backends.program import Program
from binpoint.dialect.block_attributes import Positions
from binpoint.dialect.fx_accumulate import Conv2dOp
from binpoint.dialect.fx_program import KernelOp
from binpoint.support.blocks import block_count
from binpoint.support.numeric import BlockPolicy


@dataclass(frozen=True)
class MapPositions:
    """The positions of one feature map.

    Attributes:
        granularity: what shares one.
        position_bits: the bits of one: what names a candidate.
        blocks_per_frame: how many an image has.
        mantissa_bits_per_frame: the bits of an image's mantissas.
        met: for a convolution, the most that are met at a time, and in how many pixels (height, width).
    """

    granularity: str
    position_bits: int
    blocks_per_frame: int
    mantissa_bits_per_frame: int
    met: Positions = ()

    @property
    def position_bits_per_frame(self) -> int:
        """The memory of an image's positions."""
        return self.position_bits * self.blocks_per_frame


@dataclass(frozen=True)
class PositionReport:
    """The positions of inputs and kernels by name, empty for a program without blocks."""

    maps: Mapping[str, MapPositions] = field(default_factory=dict)

    @property
    def position_bits_per_frame(self) -> int:
        """The memory of all maps' positions for one image."""
        return sum(each.position_bits_per_frame for each in self.maps.values())

    @property
    def mantissa_bits_per_frame(self) -> int:
        """The memory of all maps' mantissas for one image."""
        return sum(each.mantissa_bits_per_frame for each in self.maps.values())

    @property
    def most_met(self) -> Positions:
        """The largest count of any window, and of any target block."""
        convolutions = [each.met for each in self.maps.values() if each.met]
        if not convolutions:
            return ()
        return tuple(dict.fromkeys(max(met[end] for met in convolutions) for end in (0, -1)))


def position_report(program: Program, module: ModuleOp) -> PositionReport:
    """The positions of a program, read from its specs and its module's convolutions."""
    if not program.has_blocks:
        return PositionReport()
    met = _met(module)
    bits: dict[str, int] = {}
    maps: dict[str, MapPositions] = {}
    for declared in program.inputs:
        bits[declared.name] = _bits(declared.blocks or BlockPolicy())
        maps[declared.name] = _map(declared.tensor, bits[declared.name], ())
    for call in program.calls:
        spec = call.spec
        # What is only moved has the candidates of what it was moved from.
        bits[spec.name] = bits[call.inputs[0]] if spec.blocks is None else _bits(spec.blocks)
        maps[spec.name] = _map(spec.output, bits[spec.name], met.get(spec.name, ()))
    return PositionReport(maps)


def _map(tensor: TensorSpec, bits: int, met: Positions) -> MapPositions:
    channels, height, width = tensor.shape
    blocks = block_count(tensor.granularity, tensor.shape)
    return MapPositions(str(tensor.granularity), bits, blocks, channels * height * width * tensor.bits, met)


def _bits(policy: BlockPolicy) -> int:
    candidates = policy.candidates if policy.positions is None else len(policy.positions)
    return (candidates - 1).bit_length()


def _met(module: ModuleOp) -> dict[str, Positions]:
    return {
        kernel.label.data: step.positions.data
        for kernel in module.walk()
        if isinstance(kernel, KernelOp)
        for step in kernel.steps()
        if isinstance(step, Conv2dOp) and step.positions is not None
    }

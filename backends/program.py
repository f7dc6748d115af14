"""A program: the kernels of a network in order, as the runtime and the float reference read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from binpoint.backends.kernel import KernelSpec, TensorSpec
from binpoint.support.numeric import BlockPolicy
from binpoint.support.numeric import TensorPolicy as TensorPolicy


@dataclass(frozen=True)
class ProgramInput:
    """A network input: its feature map and how pixels become numbers.

    A pixel p of channel c enters as (p * scale - mean[c]) / deviation[c]; mean and deviation have one entry,
    or one a channel.
    """

    name: str
    tensor: TensorSpec
    scale: Fraction = Fraction(1)
    mean: tuple[Fraction, ...] = (Fraction(0),)
    deviation: tuple[Fraction, ...] = (Fraction(1),)
    blocks: BlockPolicy | None = None
    """How the host finds the exponents of blocks, in programs that know them."""


@dataclass(frozen=True)
class KernelCall:
    """One kernel and what it reads: tensor names (a program input or an earlier call's name).

    `weight` and `bias` name parameters (`conv1.weight`), None where the kernel has none. The call's result
    is called `spec.name`. `fused` lists the layers of the network file that the kernel computes.
    """

    spec: KernelSpec
    inputs: tuple[str, ...]
    weight: str | None = None
    bias: str | None = None
    fused: tuple[str, ...] = ()
    weight_per_channel: bool = False
    """Whether the weights have an exponent for each output channel."""


@dataclass(frozen=True)
class Program:
    """The kernels of a network in data-flow order.

    `outputs` names the tensors that leave the network. `policies` has an entry for every tensor that has an
    exponent of its own: inputs, parameters and the results of kernels that quantise (not exact ones).
    """

    name: str
    inputs: tuple[ProgramInput, ...]
    calls: tuple[KernelCall, ...]
    outputs: tuple[str, ...]
    policies: Mapping[str, TensorPolicy] = field(default_factory=dict)

    @property
    def has_blocks(self) -> bool:
        """Whether kernels find exponents block by block: all of them do, or none."""
        return any(call.spec.blocks is not None for call in self.calls)

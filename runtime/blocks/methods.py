"""How a run finds the positions of feature maps, and what each way makes of a program."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from binpoint.backends.kernel import KernelSpec, TensorSpec
from binpoint.backends.program import KernelCall, Program
from binpoint.support.numeric import BlockMethod, BlockPolicy, Granularity, Measure


class Method(StrEnum):
    """Where the positions of a run come from."""

    BLOCKS = "blocks"
    """Each block's own analysis, or its neighbours', as the network was compiled (JP7819764B2)."""
    FIXED = "fixed"
    """One position a layer, calibrated once."""
    FRAME = "frame"
    """One position a layer, from the overflows of the previous frame (WO2022/003855)."""
    CURRENT = "current"
    """One position a layer, from the overflows of a first pass over the same frame: every frame runs twice."""


def program_for(program: Program, method: Method) -> Program:
    """The program as a method runs it: all but `blocks` have one position a map, whatever it was compiled for."""
    if method is Method.BLOCKS:
        if not program.has_blocks:
            raise ValueError(f'the program "{program.name}" knows no blocks')
        return program
    return replace(
        program,
        inputs=tuple(
            replace(declared, tensor=_whole(declared.tensor), blocks=_given_position(declared.blocks))
            for declared in program.inputs
        ),
        calls=tuple(_whole_call(call) for call in program.calls),
    )


def _whole_call(call: KernelCall) -> KernelCall:
    """One exponent a map: pools and resizes only move it, all others are told it."""
    spec: KernelSpec = call.spec
    policy = None if spec.operation.exact else _given_position(spec.blocks)
    inputs = tuple(map(_whole, spec.inputs))
    return replace(call, spec=replace(spec, inputs=inputs, output=_whole(spec.output), blocks=policy))


def _whole(tensor: TensorSpec) -> TensorSpec:
    return replace(tensor, granularity=Granularity())


def _given_position(policy: BlockPolicy | None) -> BlockPolicy:
    """A prediction for a block that has no neighbours: the position that the call gives."""
    return replace(policy or BlockPolicy(), method=BlockMethod.PREDICT, measure=Measure.OVERFLOWS)

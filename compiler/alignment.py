"""By how many bits aligning operands of several exponents can widen a sum (JP7819764B2 fig. 8).

With `fraction` selection a PE shifts to the finest exponent that it meets: mantissas grow by the distance between the
coarsest and the finest candidate. With `integer` selection they only shrink.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from binpoint.dialect.fx_accumulate import AccumulateOp, MergeOp
from binpoint.dialect.fx_program import InputOp, KernelOp
from binpoint.dialect.fx_types import FixedTensorType, is_feature_map, map_shape
from binpoint.dialect.fx_values import BlockMoveOp, MoveOp, QuantizeOp
from binpoint.support.blocks import has_one_exponent
from binpoint.support.numeric import BlockPolicy, Selection


def alignment_bits(op: AccumulateOp) -> int | None:
    """The most bits of left shift within one sum; None where nothing bounds them: candidates of several layers meet."""
    bits = 0
    for value in op.operands:
        if not is_feature_map(value):
            continue
        policy = _policy_of(value)
        if policy is None:
            continue
        if isinstance(op, MergeOp):
            return None
        assert isinstance(value.type, FixedTensorType)
        if policy.selection is Selection.FRACTION and not has_one_exponent(
            value.type.granularity.data, map_shape(value)
        ):
            bits = max(bits, candidate_spread(policy))
    return bits


def candidate_spread(policy: BlockPolicy) -> int:
    """The distance between the coarsest and the finest candidate."""
    if policy.positions is not None:
        return max(policy.positions) - min(policy.positions)
    return policy.candidates - 1


def _policy_of(value: SSAValue) -> BlockPolicy | None:
    """How the exponents of a feature map were found, through what only moves them; None for one without blocks."""
    owner = value.owner
    if isinstance(owner, KernelOp):
        owner = owner.steps()[-1]
    if isinstance(owner, QuantizeOp | InputOp | BlockMoveOp) and owner.blocks is not None:
        return owner.blocks.data
    return _policy_of(owner.input) if isinstance(owner, MoveOp) else None

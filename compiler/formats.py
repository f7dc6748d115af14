"""Which width, accumulators and exponent policy a tensor has: from the network's numeric policy and the target."""

from __future__ import annotations

from xdsl.ir import Operation

from binpoint.dialect.assembly import location_of
from binpoint.dialect.fx_attributes import OnOverflowAttr
from binpoint.dialect.policies import PolicyAttr
from binpoint.support.diagnostics import user_error
from binpoint.support.numeric import (
    BITS_RANGE,
    BlockPolicy,
    BlockWords,
    Granularity,
    NumericPolicy,
    OnOverflow,
    TensorClass,
    TensorPolicy,
    UpdatePolicy,
)


class Formats:
    """The formats of one network.

    Args:
        numeric: the network's policy.
        accumulator_bits: the width where the policy names none.
        accumulator_wraps: whether accumulators wrap instead of saturating.
    """

    def __init__(self, numeric: NumericPolicy, accumulator_bits: int, accumulator_wraps: bool) -> None:
        self.numeric = numeric
        self.accumulator_bits = accumulator_bits
        self.on_overflow = OnOverflowAttr(OnOverflow.WRAP if accumulator_wraps else OnOverflow.SATURATE)

    @property
    def granularity(self) -> Granularity:
        """What shares an exponent in feature maps, where a layer says nothing."""
        return self.numeric.granularity or Granularity()

    def block_policy(self, op: Operation, policy: NumericPolicy) -> BlockPolicy:
        """How the blocks of a result get their exponents. Raises UserError for positions out of the declared range."""
        blocks = (policy.blocks or BlockWords()).policy()
        least, most = policy.exponent_range
        outside = [position for position in blocks.positions or () if not least <= -position <= most]
        if outside:
            raise user_error(
                "exponent-out-of-range",
                "a candidate position is outside of the range of its layer's exponents",
                location=location_of(op),
                found=f"position {outside[0]}, exponent {-outside[0]}",
                expected=f"exponents {least} to {most}",
            )
        return blocks

    def bits(self, policy: NumericPolicy, tensor_class: TensorClass, op: Operation) -> int:
        """The width of a class of tensors. Raises UserError for one that no type has."""
        bits = policy.width(tensor_class) or self.accumulator_bits
        least, most = BITS_RANGE[tensor_class]
        if not least <= bits <= most:
            raise user_error(
                "width-out-of-range",
                f"{tensor_class} cannot have {bits} bits",
                location=location_of(op),
                found=bits,
                expected=f"{least} to {most} bits",
            )
        return bits

    def exponent(
        self, op: Operation, policy: NumericPolicy, update: UpdatePolicy, names: tuple[str, ...]
    ) -> PolicyAttr:
        """How a tensor's exponent is found; the user may have given a start under any of its names.

        Raises UserError for a start outside of the declared range.
        """
        least, most = policy.exponent_range
        given = [name for name in names if name in self.numeric.exponents]
        start = self.numeric.exponents[given[0]] if given else None
        if start is not None and not least <= start <= most:
            raise user_error(
                "exponent-out-of-range",
                f'the first exponent of "{given[0]}" is outside of the range of its layer',
                location=location_of(op),
                found=start,
                expected=f"{least} to {most}",
            )
        return PolicyAttr(TensorPolicy(update, start, policy.exponent_range))

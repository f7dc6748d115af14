"""What a target adds to a network's numeric policy: exponents of blocks, where the network says nothing of them."""

from __future__ import annotations

from dataclasses import replace

from binpoint.compiler.network import NetworkGraph
from binpoint.support.diagnostics import user_error
from binpoint.support.numeric import BlockPolicy, BlockWords, Granularity, NumericPolicy
from binpoint.support.target import Target

ONE_POSITION = BlockWords(candidates=1)
"""For networks whose feature maps have one exponent each and only the weights more: it stays where it is calibrated."""


def with_target_blocks(network: NetworkGraph, target: Target) -> NetworkGraph:
    """The network with everything said about exponents: its own words, then the target's, then the defaults.

    A network that says `exponent = tensor` and nothing of blocks has none, whatever the target.
    """
    numeric, hardware = network.numeric, target.blocks
    granularity, words = numeric.granularity, numeric.blocks
    if granularity is None:
        granularity = Granularity() if hardware is None else hardware.granularity
    resolved = replace(numeric, granularity=granularity)
    if not has_blocks(resolved):
        return network.with_numeric(resolved)
    words = words or (BlockWords() if _cuts_maps(resolved) else ONE_POSITION)
    default = BlockWords(**vars(BlockPolicy()))
    if hardware is not None:
        default = hardware.words.over(default)
    overrides = {
        name: replace(policy, blocks=(policy.blocks or words).over(default))
        for name, policy in numeric.overrides.items()
    }
    return network.with_numeric(replace(resolved, blocks=words.over(default), overrides=overrides))


def with_one_exponent(network: NetworkGraph) -> NetworkGraph:
    """The network for training, which knows one exponent a tensor.

    Raises:
        UserError: the network wants more.
    """
    if has_blocks(network.numeric):
        numeric = network.numeric
        per_channel = ", weights per channel" if numeric.weights_per_channel else ""
        raise user_error(
            "unsupported-granularity",
            "training runs with one exponent a tensor",
            location=network.location,
            found=f"exponent = {numeric.granularity or Granularity()}{per_channel}",
            expected="exponent = tensor, and no blocks",
            hint="train with --set numeric.exponent=tensor, then compile the trained weights with blocks",
        )
    return network.with_numeric(replace(network.numeric, granularity=Granularity()))


def pe_block(target: Target, numeric: NumericPolicy) -> tuple[int, int]:
    """(height, width) of the block that a PE computes at a time: its hardware's, else the network's, else one pixel."""
    if target.blocks is not None:
        return target.blocks.size
    return (1, 1) if numeric.granularity is None else numeric.granularity.block or (1, 1)


def has_blocks(numeric: NumericPolicy) -> bool:
    """Whether anything has more than one exponent, or blocks are spoken of."""
    policies = [numeric, *numeric.overrides.values()]
    return _cuts_maps(numeric) or any(each.weights_per_channel or each.blocks is not None for each in policies)


def _cuts_maps(numeric: NumericPolicy) -> bool:
    policies = [numeric, *numeric.overrides.values()]
    return any(each.granularity not in (None, Granularity()) for each in policies)

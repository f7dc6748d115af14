"""What of a network does not fit a target: widths of operands and accumulators, statistics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from binpoint.compiler.block_defaults import has_blocks
from binpoint.compiler.layers import LAYER_KINDS
from binpoint.compiler.network import NetworkGraph
from binpoint.support.diagnostics import Diagnostic
from binpoint.support.numeric import STATISTICS_OF_RULE, ExponentRule, TensorClass
from binpoint.support.target import Target


def target_misfits(network: NetworkGraph, target: Target, trained: bool = False) -> list[Diagnostic]:
    """Everything that does not fit, one diagnostic a cause; it names the layers and points at the first one.

    Operands of the multipliers (activations, weights, and gradients where the network is trained) must fit
    the registers, accumulators the target's, and the update rule what the statistics PEs acquire.

    Args:
        network: the graph.
        target: the PE array.
        trained: whether it is going to be trained, which a network with a loss is in any case.
    """
    trained = trained or any(layer.kind == "cross_entropy" for layer in network.layers.values())
    return [
        *_wide_operands(network, target, trained),
        *_wide_accumulators(network, target),
        *_statistics(network, target, trained),
    ]


def _wide_operands(network: NetworkGraph, target: Target, trained: bool) -> Iterator[Diagnostic]:
    layers: dict[tuple[TensorClass, int], list[str]] = defaultdict(list)
    for name in network.order:
        policy = network.numeric.for_layer(name)
        for operand in _operands(network, name, trained):
            bits = policy.width(operand)
            if bits is not None and bits > target.register_bits:
                layers[operand, bits].append(name)
    for (operand, bits), names in layers.items():
        message = f"{bits}-bit {operand} do not fit the {target.register_bits}-bit registers of {target.name}"
        hint = f"{operand} = {target.register_bits} bits"
        yield _misfit("wide-operand", message, network, names, f"at most {target.register_bits} bits", hint)


def _operands(network: NetworkGraph, name: str, trained: bool) -> Iterator[TensorClass]:
    """The classes of tensors that a layer's multipliers read."""
    layer = network.layers[name]
    yield TensorClass.ACTIVATIONS
    if LAYER_KINDS[layer.kind].parameters(network.input_shapes(name), layer.attributes):
        yield TensorClass.WEIGHTS
    if trained:
        yield TensorClass.GRADIENTS


def _wide_accumulators(network: NetworkGraph, target: Target) -> Iterator[Diagnostic]:
    layers: dict[int, list[str]] = defaultdict(list)
    for name in network.order:
        bits = network.numeric.for_layer(name).width(TensorClass.ACCUMULATORS)
        if bits is not None and bits > target.accumulator_bits:
            layers[bits].append(name)
    for bits, names in layers.items():
        message = f"{bits}-bit accumulators are wider than the {target.accumulator_bits} bits of {target.name}"
        hint = f"accumulators = {target.accumulator_bits} bits, or leave the width to the target"
        yield _misfit("wide-accumulator", message, network, names, f"at most {target.accumulator_bits} bits", hint)


def _statistics(network: NetworkGraph, target: Target, trained: bool) -> Iterator[Diagnostic]:
    if has_blocks(network.numeric) and not trained:
        return  # exponents of blocks follow what PEs analyse, not statistics
    acquired = target.acquires if target.statistics_pes else ()
    layers: dict[tuple[ExponentRule, str], list[str]] = defaultdict(list)
    for name in network.order:
        policy = network.numeric.for_layer(name)
        classes = {TensorClass.ACTIVATIONS, *policy.updates}
        if trained:
            classes |= {TensorClass.GRADIENTS, TensorClass.WEIGHT_GRADIENTS}
        for rule in sorted({policy.update_for(tensor_class).rule for tensor_class in classes}):
            for position in STATISTICS_OF_RULE[rule]:
                if position not in acquired:
                    layers[rule, position].append(name)
    for (rule, position), names in layers.items():
        message = f"{rule} needs {position} positions, which no PE of {target.name} acquires"
        fitting = [other for other, needs in STATISTICS_OF_RULE.items() if set(needs) <= set(acquired)]
        hint = f"update = {' or '.join(fitting)}"
        yield _misfit("missing-statistics", message, network, names, f"statistics PEs that acquire {position}", hint)


def _misfit(
    code: str, message: str, network: NetworkGraph, names: Sequence[str], expected: str, hint: str
) -> Diagnostic:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    where = network.layers[names[0]].location
    return Diagnostic(code, message, where, f"layer{'s' if len(names) > 1 else ''} {shown}", expected, hint)

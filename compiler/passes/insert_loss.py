"""The outputs of a network -> its one loss, softmax and cross-entropy of the logits.

    %soft = nn.softmax "soft" (%fc2) : tensor<?x10x1x1xf32>
    nn.output (%soft)
->  %loss = nn.cross_entropy "loss" (%fc2) folds = ["soft"] : tensor<?x10x1x1xf32>
    nn.output (%loss)
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass

from binpoint.dialect.assembly import location_of, value_name
from binpoint.dialect.attributes import NameAttr, NamesAttr
from binpoint.dialect.nn_layers import CrossEntropyOp, InputOp, LayerOp, SoftmaxOp
from binpoint.dialect.nn_network import NetworkOp, OutputOp
from binpoint.support.diagnostics import user_error

LOSS = "loss"
"""The name of a loss that the network file leaves out."""


@dataclass(frozen=True)
class InsertLoss(ModulePass):
    """The outputs of a network -> its one loss, softmax and cross-entropy of the logits."""

    name = "insert-loss"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run over every network of the module. Raises UserError where it is not clear what the logits are."""
        for network in op.ops:
            if isinstance(network, NetworkOp):
                _insert(network)


def _insert(network: NetworkOp) -> None:
    """A loss that the network has is the one, whatever else leaves; else its one output is the logits."""
    block, output = network.body.block, network.body.block.last_op
    assert isinstance(output, OutputOp)
    losses = [op for op in block.ops if isinstance(op, CrossEntropyOp)]
    if len(losses) > 1 or (not losses and len(output.values) > 1):
        raise user_error(
            "no-single-loss",
            "training needs one loss",
            location=location_of(losses[1] if losses else output) or location_of(network),
            found=f"{len(losses)} cross_entropy layers" if losses else f"{len(output.values)} outputs",
            expected="one cross_entropy layer, or one output: the logits",
        )
    given = losses[0] if losses else None
    loss = _loss(network, output.values[0] if given is None else given.input, given)
    block.insert_ops_before([loss, OutputOp.create(operands=[loss.result], location=output.location)], output)
    block.erase_op(output)
    if given is not None:
        # Who reads a loss reads its logits.
        given.result.replace_all_uses_with(given.input)
        block.erase_op(given)


def _loss(network: NetworkOp, value: SSAValue, given: CrossEntropyOp | None) -> CrossEntropyOp:
    """The loss of a value; a softmax that ends there is part of it."""
    merged: list[str] = [] if given is None else list(given.layers[1:])
    source = value.owner
    if isinstance(source, SoftmaxOp):
        merged += source.layers
        value = source.input
    label = given.label if given is not None else NameAttr(_free_name(network))
    properties: dict[str, Attribute] = {"label": label}
    if merged:
        properties["folds"] = NamesAttr(tuple(merged))
    loss = CrossEntropyOp.create(
        operands=[value],
        result_types=[value.type],
        properties=properties,
        location=network.location if given is None else given.location,
    )
    loss.result.name_hint = value_name(label.data)
    return loss


def _free_name(network: NetworkOp) -> str:
    """`loss`, or a longer name where a layer has that one."""
    taken = {op.label.data for op in network.body.block.ops if isinstance(op, LayerOp | InputOp)}
    name = LOSS
    while name in taken:
        name = f"{name}.{LOSS}"
    return name

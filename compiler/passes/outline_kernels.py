"""A chain from accumulate to quantise, or an exact operation -> one kernel, named by its first layer.

%conv1.acc = fx.conv2d (%x, %w) layers = ["conv1"], ...    %conv1 = fx.kernel "conv1" layers = ["conv1", "relu1"] {
%relu1.acc = fx.relu (%conv1.acc) layers = ["relu1"] ...     %conv1.acc = fx.conv2d (%x, %w) ...
%relu1 = fx.quantize (%relu1.acc) ...                        ...
                                                        ->   fx.yield (%relu1)
                                                           } : !fx.tensor<...>
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region
from xdsl.passes import ModulePass

from binpoint.dialect.assembly import location_of, value_name
from binpoint.dialect.attributes import NameAttr, NamesAttr
from binpoint.dialect.fx_accumulate import AccumulateOp
from binpoint.dialect.fx_program import KernelOp, ProgramOp, YieldOp
from binpoint.dialect.fx_training import TrainingOp
from binpoint.dialect.fx_values import ExactOp, QuantizeOp, StatsOp
from binpoint.support.diagnostics import UserError, user_error


@dataclass(frozen=True)
class OutlineKernels(ModulePass):
    """A chain from accumulate to quantise, or an exact operation -> one kernel, named by its first layer."""

    name = "outline-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run over every program of the module. Raises UserError for a chain that is used apart."""
        for program in op.ops:
            if isinstance(program, ProgramOp | TrainingOp):
                for end in list(program.body.block.ops):
                    if isinstance(end, QuantizeOp | ExactOp):
                        _outline(_chain(end))


def _chain(end: QuantizeOp | ExactOp) -> list[Operation]:
    """The operations of the kernel that ends here, in order."""
    steps: list[Operation] = [end]
    while not isinstance(steps[0], AccumulateOp | ExactOp):
        source = steps[0].operands[0]
        readers = [use.operation for use in source.uses]
        statistics = [reader for reader in readers if isinstance(reader, StatsOp)]
        if not isinstance(source.owner, Operation) or set(readers) != {steps[0], *statistics} or len(statistics) > 1:
            raise _not_a_chain(end, "its accumulators are used elsewhere")
        steps[:0] = [source.owner, *statistics]
    return steps


def _outline(steps: list[Operation]) -> None:
    """Move the steps into a kernel in the place of the last one."""
    end = steps[-1]
    layers = _take_layers(steps)
    block = end.parent
    if not layers or block is None:
        raise _not_a_chain(end, "none of its operations names a layer")
    kernel = KernelOp.create(
        result_types=[end.results[0].type],
        properties={"label": NameAttr(layers[0]), "layers": NamesAttr(layers)},
        regions=[Region(Block())],
        location=steps[0].location,
    )
    block.insert_op_before(kernel, end)
    end.results[0].replace_all_uses_with(kernel.result)
    for step in steps:
        kernel.body.block.add_op(block.detach_op(step))
    kernel.body.block.add_op(YieldOp.create(operands=[end.results[0]]))
    kernel.result.name_hint = value_name(layers[0])
    end.results[0].name_hint = value_name(f"{layers[0]}.out")


def _take_layers(steps: list[Operation]) -> tuple[str, ...]:
    """The layers that the steps compute; the kernel names them from now on."""
    names: list[str] = []
    for step in steps:
        layers = step.properties.pop("layers", None)
        if isinstance(layers, NamesAttr):
            names += layers.data
    return tuple(dict.fromkeys(names))


def _not_a_chain(end: Operation, why: str) -> UserError:
    return user_error(
        "not-a-kernel",
        f"the operations that lead to this {end.name} make no kernel: {why}",
        location=location_of(end),
    )

"""A kernel's definition: its arguments and stages as tensor expressions, before any schedule.

Arguments come in this order: input feature maps; the operands of `operand_shapes`; output; event counts; values where
the plan has them; scalars.
"""

from __future__ import annotations

from tvm import te, tirx

from binpoint.backends.kernel import AveragePool, Convolution, Sigmoid, Softmax, TensorSpec
from binpoint.backends.tensor_expression import operations
from binpoint.backends.tensor_expression.arithmetic import Expression, Scalars
from binpoint.backends.tensor_expression.epilogue import finish
from binpoint.backends.tensor_expression.layout import PLAIN, Layout, feature_map_layout, storage_dtype
from binpoint.backends.tensor_expression.operations import INDEX, Part, Source, sizes
from binpoint.backends.tensor_expression.plan import Form, KernelPlan
from binpoint.backends.tensor_expression.runtime_scalars import CALL_SCALARS, scalar_names


def define(plan: KernelPlan) -> list[Expression]:
    """The arguments of a kernel: placeholders, the outputs' definitions, scalars."""
    scalars = scalar_variables(plan)
    sources = input_sources(plan)
    operands = operand_placeholders(plan)
    part = output_part(plan, sources[0].tensor.shape[0], scalars)
    total = operations.define(plan, part, sources, operands, scalars)
    inputs = [source.tensor for source in sources]
    if plan.spec.exact:
        return [*inputs, total, *scalars.values()]
    stages = finish(plan, part, total, operands.get("bias"), scalars)
    outputs = [stages.output, *stages.counts, *(stages.values if plan.values else ())]
    return [*inputs, *operands.values(), *outputs, *scalars.values()]


def layout_of(plan: KernelPlan, spec: TensorSpec) -> Layout:
    """The layout of a feature map in a kernel's form."""
    return feature_map_layout(spec) if plan.form is Form.LAYER else PLAIN


def scalar_variables(plan: KernelPlan) -> Scalars:
    """The kernel's scalar arguments by name."""
    container = plan.container.dtype
    return {name: tirx.Var(name, INDEX if name in CALL_SCALARS else container) for name in scalar_names(plan)}


def input_sources(plan: KernelPlan) -> list[Source]:
    """Placeholders of the input feature maps; N is symbolic."""
    batch = tirx.Var("N", INDEX)
    sources = []
    for index, spec in enumerate(plan.spec.inputs):
        layout = layout_of(plan, spec)
        tensor = te.placeholder(sizes(layout.shape(spec, batch)), storage_dtype(spec.bits), name=f"input{index}")
        sources.append(Source(tensor, layout, spec))
    return sources


def operand_placeholders(plan: KernelPlan) -> dict[str, Expression]:
    """Placeholders of the parameters and tables by name, in the order of the arguments."""
    return {
        name: te.placeholder(sizes(shape), dtype, name=name) for name, (shape, dtype) in operand_shapes(plan).items()
    }


def operand_shapes(plan: KernelPlan) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each operand: `weight`, `bias`, `reciprocals`, `table`."""
    spec = plan.spec
    layout = layout_of(plan, spec.output)
    match spec.operation:
        case Convolution() as operation:
            channels = spec.inputs[0].channels // operation.groups
            blocks = layout.blocks(spec.output.channels)
            weight = (blocks, channels, *operation.kernel, layout.block), storage_dtype(operation.weight_bits)
            bias = (blocks * layout.block,), plan.container.dtype
            return {"weight": weight} | ({} if operation.bias_bits is None else {"bias": bias})
        case AveragePool():
            return {"reciprocals": ((spec.output.height, spec.output.width), "int32")}
        case Sigmoid() | Softmax():
            return {"table": ((1 << spec.inputs[0].bits,), "int32")}
        case _:
            return {}


def output_part(plan: KernelPlan, batch: Expression, scalars: Scalars) -> Part:
    """The results that the kernel computes: a whole layer, or a tile of run-time size and place."""
    spec = plan.spec.output
    if plan.form is Form.LAYER:
        layout = layout_of(plan, spec)
        padded = spec.channels % layout.block != 0
        return Part(layout.shape(spec, batch), layout.coordinates, tirx.const(0, INDEX), spec.channels, padded)
    first_image, first_channel = scalars["first_image"], scalars["first_channel"]
    images, channels = tirx.Var("images", INDEX), tirx.Var("channels", INDEX)

    def coordinates(
        i: Expression, j: Expression, h: Expression, w: Expression, _: Expression
    ) -> tuple[Expression, ...]:
        return first_image + i, first_channel + j, h, w

    return Part((images, channels, spec.height, spec.width, 1), coordinates, first_image, spec.channels, False)

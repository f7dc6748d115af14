"""A kernel's definition: its arguments and stages as tensor expressions, before any schedule.

Arguments come in this order: input feature maps; the operands of `operand_shapes`; output; event counts; values where
the plan has them; scalars.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx

from binpoint.backends.gradients import (
    AveragePoolGradient,
    ChannelAffine,
    ConvolutionDataGradient,
    LeakyReluGradient,
    SigmoidGradient,
)
from binpoint.backends.kernel import AveragePool, Convolution, Sigmoid, Softmax, TensorSpec
from binpoint.backends.tensor_expression import operations
from binpoint.backends.tensor_expression.arithmetic import Expression, Scalars, cast, constant
from binpoint.backends.tensor_expression.epilogue import Condition, finish
from binpoint.backends.tensor_expression.layout import PLAIN, Layout, feature_map_layout, storage_dtype
from binpoint.backends.tensor_expression.plan import Form, KernelPlan
from binpoint.backends.tensor_expression.runtime_scalars import CALL_SCALARS, scalar_names
from binpoint.backends.tensor_expression.tensors import INDEX, Coordinates, Part, Source, sizes


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
    passes = None
    if isinstance(plan.spec.operation, LeakyReluGradient):
        passes = leaky_condition(sources[0])
    stages = finish(plan, part, total, operands.get("bias"), scalars, passes)
    outputs = [*stages.counts] if stages.output is None else [stages.output, *stages.counts]
    return [*inputs, *operands.values(), *outputs, *(stages.values if plan.values else ()), *scalars.values()]


def leaky_condition(stored: Source) -> Condition:
    """Where the stored output of a leaky ReLU is not negative, its gradient passes unscaled."""

    def passes(*at: Expression) -> Expression:
        mantissa = stored.read(*at)
        return mantissa >= constant(0, mantissa)

    return passes


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
    blocks = layout.blocks(spec.output.channels)

    def filters(terms: int, kernel: tuple[int, int], bits: int) -> tuple[tuple[int, ...], str]:
        return (blocks, terms, *kernel, layout.block), storage_dtype(bits)

    bias = {"bias": ((blocks * layout.block,), plan.container.dtype)}
    match spec.operation:
        case Convolution() as operation:
            terms = spec.inputs[0].channels // operation.groups
            weight = {"weight": filters(terms, operation.kernel, operation.weight_bits)}
            return weight if operation.bias_bits is None else weight | bias
        case ConvolutionDataGradient(convolution):
            terms = spec.inputs[0].channels // convolution.groups
            return {"weight": filters(terms, convolution.kernel, convolution.weight_bits)}
        case ChannelAffine(weight_bits):
            return {"weight": filters(len(spec.inputs), (1, 1), weight_bits)} | bias
        case AveragePool():
            return {"reciprocals": ((spec.output.height, spec.output.width), "int32")}
        case AveragePoolGradient():
            return {"reciprocals": ((spec.inputs[0].height, spec.inputs[0].width), "int32")}
        case Sigmoid() | Softmax() | SigmoidGradient():
            return {"table": ((1 << spec.inputs[0].bits,), "int32")}
        case _:
            return {}


def output_part(plan: KernelPlan, batch: Expression, scalars: Scalars) -> Part:
    """The results that the kernel computes: a whole layer, or a tile of run-time size and place."""
    spec = plan.spec.output
    if plan.form is Form.LAYER:
        layout = layout_of(plan, spec)
        padded = spec.channels % layout.block != 0
        shape: tuple[Expression, ...] = layout.shape(spec, batch)
        coordinates: Callable[..., Coordinates] = layout.coordinates
        first_image = tirx.const(0, INDEX)
    else:
        first_image, first_channel = scalars["first_image"], scalars["first_channel"]
        padded, shape = False, (tirx.Var("images", INDEX), tirx.Var("channels", INDEX), spec.height, spec.width, 1)
        coordinates = _tile_coordinates(first_image, first_channel)

    def element(*index: Expression) -> Expression:
        n, c, h, w = (cast(coordinate, INDEX) for coordinate in coordinates(*index))
        image = n + scalars["image_offset"] if "image_offset" in scalars else n
        return ((image * spec.channels + c) * spec.height + h) * spec.width + w

    return Part(shape, coordinates, element, first_image, spec.channels, padded)


def _tile_coordinates(first_image: Expression, first_channel: Expression) -> Callable[..., Coordinates]:
    return lambda i, j, h, w, _: (first_image + i, first_channel + j, h, w)

"""Parameters of the nn dialect, and the expressions that passes build over them. They are evaluated once, later."""

from __future__ import annotations

from abc import ABC, abstractmethod

from xdsl.dialects.builtin import Float32Type, TensorType
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure

from binpoint.dialect.assembly import ReadableOp
from binpoint.dialect.attributes import FractionAttr, NameAttr
from binpoint.dialect.nn_types import parameter_shape
from binpoint.dialect.shapes import check_shape, check_vector


class ParameterOp(ReadableOp, ABC):
    """An operation whose result is a parameter."""

    result = result_def(TensorType[Float32Type])
    traits = traits_def(Pure())

    @abstractmethod
    def output_shape(self) -> tuple[int, ...]:
        """The shape that the result must have. Raises VerifyException for operands that do not fit."""

    def verify_(self) -> None:
        """The result's shape follows from the operands."""
        check_shape(self.output_shape(), parameter_shape(self.result), "the result")


@irdl_op_definition
class NamedParameterOp(ParameterOp):
    """A parameter as the network's weights hold it.

    %conv1.weight = nn.parameter "conv1.weight" : tensor<6x1x5x5xf32>
    """

    name = "nn.parameter"
    label = prop_def(NameAttr)

    def output_shape(self) -> tuple[int, ...]:
        """Any."""
        return parameter_shape(self.result)


@irdl_op_definition
class BatchScaleOp(ParameterOp):
    """What batch normalisation multiplies a channel by: gamma / sqrt(variance + epsilon).

    %bn1.scale = nn.batch_scale (%bn1.gamma, %bn1.variance) epsilon = 1/100000 : tensor<6xf32>
    """

    name = "nn.batch_scale"
    gamma = operand_def(TensorType[Float32Type])
    variance = operand_def(TensorType[Float32Type])
    epsilon = prop_def(FractionAttr)

    def output_shape(self) -> tuple[int, ...]:
        """That of gamma, a vector."""
        shape = parameter_shape(self.gamma)
        check_vector(shape[0], shape, "gamma")
        check_vector(shape[0], parameter_shape(self.variance), "variance")
        return shape


@irdl_op_definition
class BatchShiftOp(ParameterOp):
    """What batch normalisation adds to a channel after the scale: beta + (bias - mean) * scale.

    %conv1.bias = nn.batch_shift (%bn1.scale, %bn1.beta, %bn1.mean) : tensor<6xf32>
    """

    name = "nn.batch_shift"
    scale = operand_def(TensorType[Float32Type])
    beta = operand_def(TensorType[Float32Type])
    mean = operand_def(TensorType[Float32Type])
    bias = opt_operand_def(TensorType[Float32Type])

    def output_shape(self) -> tuple[int, ...]:
        """That of the scale, a vector."""
        channels = parameter_shape(self.scale)[0]
        for name, value in zip(("scale", "beta", "mean", "bias"), self.operands, strict=False):
            check_vector(channels, parameter_shape(value), name)
        return (channels,)


@irdl_op_definition
class ScaleFiltersOp(ParameterOp):
    """Filters multiplied by one number an output channel.

    %conv1.folded = nn.scale_filters (%conv1.weight, %bn1.scale) : tensor<6x1x5x5xf32>
    """

    name = "nn.scale_filters"
    weight = operand_def(TensorType[Float32Type])
    scale = operand_def(TensorType[Float32Type])

    def output_shape(self) -> tuple[int, ...]:
        """That of the filters."""
        shape = parameter_shape(self.weight)
        check_vector(shape[0], parameter_shape(self.scale), "the scale")
        return shape


@irdl_op_definition
class DiagonalFiltersOp(ParameterOp):
    """One number a channel as 1x1 filters of a depthwise convolution.

    %bn1.weight = nn.diagonal_filters (%bn1.scale) : tensor<6x1x1x1xf32>
    """

    name = "nn.diagonal_filters"
    scale = operand_def(TensorType[Float32Type])

    def output_shape(self) -> tuple[int, ...]:
        """(C, 1, 1, 1)."""
        shape = parameter_shape(self.scale)
        check_vector(shape[0], shape, "the scale")
        return (shape[0], 1, 1, 1)


PARAMETER_OPS = [NamedParameterOp, BatchScaleOp, BatchShiftOp, ScaleFiltersOp, DiagonalFiltersOp]

"""Operations of the fx dialect for training: gradients of layers, and the affine form of batch normalisation.

They are steps of kernels like those of inference: accumulate -> statistics -> quantise, or exact. The result of a
gradient of data is a feature map; that of a gradient of a parameter has the parameter's sizes.

    %0 = fx.conv2d_weight_gradient (%image, %conv1.acc.grad) kernel = 5x5, on_overflow = saturate,
                                   overflow = impossible, needed = 30b : !fx.acc<6x1x5x5, 40b>
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from xdsl.irdl import irdl_op_definition, operand_def, prop_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.attributes import ConstantAttr
from binpoint.dialect.fx_accumulate import AccumulateOp, Averaging, FeatureMapOp
from binpoint.dialect.fx_attributes import ChannelAttr
from binpoint.dialect.fx_types import FixedTensorType, map_shape, parameter_sizes
from binpoint.dialect.fx_values import ExactOp
from binpoint.dialect.groups import Convolved, Windowed
from binpoint.dialect.shapes import Shape, check_shape, filter_shape, pool_shape, same_shape, window_shape

VECTOR_WINDOW = (1, 1)


class GradientOp(FeatureMapOp, ABC):
    """Reads dy, the first operand; the gradient of a feature map.

    Strides and windows lose the size of what they read, so the result says it, and `output_of` checks that the
    forward operation would turn it into a map of dy's shape.
    """

    @abstractmethod
    def output_of(self, shape: Shape) -> Shape:
        """The shape of the forward operation's result for an input of this shape."""

    def output_shape(self) -> Shape:
        """The result's own, if it fits."""
        shape = map_shape(self.result)
        check_shape(self.output_of(shape), map_shape(self.operands[0]), "the gradient")
        return shape


class DataGradientOp(GradientOp, ABC):
    """Reads dy and the filters of the forward layer: dL/dx."""

    gradient = operand_def(FixedTensorType)
    weight = operand_def(FixedTensorType)


@irdl_op_definition
class Conv2dDataGradientOp(Convolved, DataGradientOp):
    """dL/dx of a convolution: each dy times the filters goes to the elements that its window read."""

    name = "fx.conv2d_data_gradient"

    def output_of(self, shape: Shape) -> Shape:
        """(K, H, W) of the convolution."""
        return _convolved(self, shape, parameter_sizes(self.weight))


@irdl_op_definition
class LinearDataGradientOp(DataGradientOp):
    """dL/dx of a linear layer: the transposed filters times dy."""

    name = "fx.linear_data_gradient"

    def output_of(self, shape: Shape) -> Shape:
        """(K, 1, 1)."""
        return _projected(shape, parameter_sizes(self.weight))


class WeightGradientOp(AccumulateOp, ABC):
    """Reads x and dy: dL/dw, of the sizes of the filters, summed over the images of the mini-batch."""

    input = operand_def(FixedTensorType)
    gradient = operand_def(FixedTensorType)

    @abstractmethod
    def output_of(self, shape: Shape, weight: tuple[int, ...]) -> Shape:
        """The shape of the forward layer's result."""

    def output_sizes(self) -> tuple[int, ...]:
        """The result's own, if the forward layer with such filters has a result of dy's shape."""
        weight = parameter_sizes(self.result)
        check_shape(self.output_of(map_shape(self.input), weight), map_shape(self.gradient), "the gradient")
        return weight


@irdl_op_definition
class Conv2dWeightGradientOp(Convolved, WeightGradientOp):
    """dL/dw of a convolution: each element of a filter meets every dy with the x that it was multiplied with."""

    name = "fx.conv2d_weight_gradient"

    def output_of(self, shape: Shape, weight: tuple[int, ...]) -> Shape:
        """(K, H, W) of the convolution."""
        return _convolved(self, shape, weight)


@irdl_op_definition
class LinearWeightGradientOp(WeightGradientOp):
    """dL/dw of a linear layer: the outer product of dy and x, summed over images."""

    name = "fx.linear_weight_gradient"

    def output_of(self, shape: Shape, weight: tuple[int, ...]) -> Shape:
        """(K, 1, 1)."""
        return _projected(shape, weight)


@irdl_op_definition
class BiasGradientOp(AccumulateOp):
    """Reads dy: dL/db, the sum over images and pixels of each channel."""

    name = "fx.bias_gradient"
    gradient = operand_def(FixedTensorType)

    def output_sizes(self) -> tuple[int, ...]:
        """(K,)."""
        return map_shape(self.gradient)[:1]


@irdl_op_definition
class MaxPoolGradientOp(Windowed, FeatureMapOp):
    """Reads x and dy: dy goes to the first of the largest elements of its window, row by row; overlaps add up."""

    name = "fx.max_pool_gradient"
    input = operand_def(FixedTensorType)
    gradient = operand_def(FixedTensorType)

    def output_shape(self) -> Shape:
        """That of x."""
        shape = map_shape(self.input)
        pooled = pool_shape(shape, self.kernel.data, self.stride.data, self.padding.data)
        check_shape(pooled, map_shape(self.gradient), "the gradient")
        return shape


@irdl_op_definition
class AveragePoolGradientOp(Averaging, GradientOp):
    """Reads dy: each window's dy times its reciprocal goes to every element of the window."""

    name = "fx.avg_pool_gradient"
    gradient = operand_def(FixedTensorType)

    def output_of(self, shape: Shape) -> Shape:
        """That of the pool."""
        return self.pooled(shape)


@irdl_op_definition
class ResizeGradientOp(GradientOp):
    """Reads dy: the sum of dy over the elements that read an element."""

    name = "fx.resize_gradient"
    gradient = operand_def(FixedTensorType)

    def output_of(self, shape: Shape) -> Shape:
        """As many channels; any height and width."""
        return (shape[0], *map_shape(self.gradient)[1:])


class ActivationGradientOp(FeatureMapOp, ABC):
    """Reads the stored output y and dy, of one shape."""

    output = operand_def(FixedTensorType)
    gradient = operand_def(FixedTensorType)

    def output_shape(self) -> Shape:
        """That of both."""
        return same_shape((map_shape(self.output), map_shape(self.gradient)))


@irdl_op_definition
class LeakyReluGradientOp(ActivationGradientOp):
    """dy where y >= 0, else slope * dy: `fx.leaky_relu_gradient (%y, %dy) slope = 205 * 2^-11, ...`."""

    name = "fx.leaky_relu_gradient"
    slope = prop_def(ConstantAttr)


@irdl_op_definition
class SigmoidGradientOp(ActivationGradientOp):
    """dy * y * (1 - y), the factor from a table over the mantissas of y."""

    name = "fx.sigmoid_gradient"


class MaskOp(ExactOp, ABC):
    """Reads the stored output y and dy: some of dy, the rest 0. Width and exponent are those of dy."""

    output = operand_def(FixedTensorType)
    gradient = operand_def(FixedTensorType)

    def output_shape(self) -> Shape:
        """That of both."""
        return same_shape((map_shape(self.output), map_shape(self.gradient)))


@irdl_op_definition
class ReluGradientOp(MaskOp):
    """dy where y > 0, else 0."""

    name = "fx.relu_gradient"


@irdl_op_definition
class ClipGradientOp(MaskOp):
    """dy where 0 < y < limit, else 0: `fx.clip_gradient (%y, %dy) limit = 192 * 2^-5`."""

    name = "fx.clip_gradient"
    limit = prop_def(ConstantAttr)


@irdl_op_definition
class ChannelSliceOp(ExactOp):
    """As many channels of dy as the result has, from `first` on: the gradient of one part of a concat."""

    name = "fx.channel_slice"
    gradient = operand_def(FixedTensorType)
    first = prop_def(ChannelAttr, default_value=ChannelAttr(0))

    def output_shape(self) -> Shape:
        """Fewer channels."""
        channels, height, width = map_shape(self.gradient)
        count = map_shape(self.result)[0]
        if self.first.data + count > channels:
            raise VerifyException(f"channels {self.first.data} to {self.first.data + count - 1} of {channels}")
        return count, height, width


@irdl_op_definition
class ChannelAffineOp(FeatureMapOp):
    """The sum of feature maps, each times one number a channel: coefficients (inputs, C, 1, 1).

    With a bias it is batch normalisation: forward of one map, backward of two.

    %0 = fx.channel_affine (%conv1, %bn1.scale) on_overflow = saturate, ... : !fx.acc<?x16x8x8, 40b>
    """

    name = "fx.channel_affine"
    inputs = var_operand_def(FixedTensorType)
    weight = operand_def(FixedTensorType)

    def output_shape(self) -> Shape:
        """That of all maps."""
        if not self.inputs:
            raise VerifyException("expected at least one feature map")
        shape = same_shape([map_shape(value) for value in self.inputs])
        check_shape((len(self.inputs), shape[0], 1, 1), parameter_sizes(self.weight), "the coefficients")
        return shape


def _convolved(op: Convolved, shape: Shape, weight: tuple[int, ...]) -> Shape:
    """The result of the convolution whose gradient the operation is."""
    channels = filter_shape(shape, weight, op.groups.data)
    check_shape(op.kernel.data, weight[2:], "the filters' window")
    return (channels, *window_shape(shape, op.kernel.data, op.stride.data, op.padding.data, op.dilation.data))


def _projected(shape: Shape, weight: tuple[int, ...]) -> Shape:
    """The result of the linear layer whose gradient the operation is."""
    check_shape(VECTOR_WINDOW, shape[1:], "the height and width of the input")
    channels = filter_shape(shape, weight, 1)
    check_shape(VECTOR_WINDOW, weight[2:], "the filters' window")
    return channels, 1, 1


GRADIENT_OPS = [
    Conv2dDataGradientOp,
    LinearDataGradientOp,
    Conv2dWeightGradientOp,
    LinearWeightGradientOp,
    BiasGradientOp,
    MaxPoolGradientOp,
    AveragePoolGradientOp,
    ResizeGradientOp,
    LeakyReluGradientOp,
    SigmoidGradientOp,
    ReluGradientOp,
    ClipGradientOp,
    ChannelSliceOp,
    ChannelAffineOp,
]

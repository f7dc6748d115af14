"""The layers of the nn dialect, one operation a layer kind of the language.

Every layer carries the name it has in the network file (`label`) and, once a pass has merged others into it, their
names (`folds`). Attribute groups that several kinds share are classes without an operation of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from xdsl.dialects.builtin import Float32Type, TensorType, UnitAttr
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.assembly import ReadableOp
from binpoint.dialect.attributes import (
    CountAttr,
    FractionAttr,
    NameAttr,
    NamesAttr,
    PairAttr,
    ShapeAttr,
)
from binpoint.dialect.groups import PixelInput, Windowed
from binpoint.dialect.nn_types import feature_map_shape, parameter_shape
from binpoint.dialect.shapes import (
    Shape,
    check_shape,
    check_vector,
    concat_shape,
    filter_shape,
    pool_shape,
    reshaped,
    same_shape,
    window_shape,
)

FeatureMap = TensorType[Float32Type]


class LayerOp(ReadableOp, ABC):
    """An operation whose result is a feature map and whose operands begin with feature maps."""

    label = prop_def(NameAttr)
    folds = opt_prop_def(NamesAttr)
    result = result_def(FeatureMap)
    traits = traits_def(Pure())

    @abstractmethod
    def output_shape(self) -> Shape:
        """The (C, H, W) that the result must have. Raises VerifyException for operands that do not fit."""

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of the network file that this operation computes."""
        return (self.label.data, *(self.folds.data if self.folds is not None else ()))

    def verify_(self) -> None:
        """The result's shape follows from operands and properties."""
        check_shape(self.output_shape(), feature_map_shape(self.result), "the result")


class UnaryOp(LayerOp, ABC):
    """A layer that reads one feature map."""

    input = operand_def(FeatureMap)


class ElementwiseOp(UnaryOp, ABC):
    """A layer that keeps the shape."""

    def output_shape(self) -> Shape:
        """That of the input."""
        return feature_map_shape(self.input)


class FilterOp(LayerOp, ABC):
    """A layer that multiplies by filters and adds a bias, where it has one."""

    input = operand_def(FeatureMap)
    weight = operand_def(TensorType[Float32Type])
    bias = opt_operand_def(TensorType[Float32Type])

    def check_bias(self, channels: int) -> None:
        """Raise VerifyException unless the bias has one number a channel."""
        if self.bias is not None:
            check_vector(channels, parameter_shape(self.bias), "the bias")


class ConvolutionOp(Windowed, FilterOp, ABC):
    """Cross-correlation; subclasses say how many groups there are."""

    dilation = prop_def(PairAttr, default_value=PairAttr((1, 1)))

    @abstractmethod
    def group_count(self) -> int:
        """In how many groups channels are convolved apart."""

    def output_shape(self) -> Shape:
        """(K, H, W) from the filters (K, C / groups, R, S)."""
        shape, weight = feature_map_shape(self.input), parameter_shape(self.weight)
        channels = filter_shape(shape, weight, self.group_count())
        check_shape(self.kernel.data, weight[2:], "the filters' window")
        self.check_bias(channels)
        windows = window_shape(shape, self.kernel.data, self.stride.data, self.padding.data, self.dilation.data)
        return (channels, *windows)


@irdl_op_definition
class InputOp(PixelInput, ReadableOp):
    """An input of the network.

    %image = nn.input "image" scale = 1/255 : tensor<?x1x28x28xf32>
    """

    name = "nn.input"
    label = prop_def(NameAttr)
    result = result_def(FeatureMap)

    def verify_(self) -> None:
        """The result is a feature map that mean and deviation fit."""
        self.check_pixels(feature_map_shape(self.result)[0])


@irdl_op_definition
class Conv2dOp(ConvolutionOp):
    """2-D convolution (cross-correlation).

    %conv1 = nn.conv2d "conv1" (%image, %conv1.weight, %conv1.bias) kernel = 5x5 : tensor<?x6x24x24xf32>
    """

    name = "nn.conv2d"
    groups = prop_def(CountAttr, default_value=CountAttr(1))

    def group_count(self) -> int:
        """As given."""
        return self.groups.data


@irdl_op_definition
class DepthwiseOp(ConvolutionOp):
    """Convolution of each channel on its own."""

    name = "nn.depthwise"

    def group_count(self) -> int:
        """One group a channel."""
        return feature_map_shape(self.input)[0]


@irdl_op_definition
class LinearOp(FilterOp):
    """A fully connected layer over a vector; the filters are (K, C)."""

    name = "nn.linear"

    def output_shape(self) -> Shape:
        """(K, 1, 1)."""
        shape, weight = feature_map_shape(self.input), parameter_shape(self.weight)
        check_shape((1, 1), shape[1:], "the height and width of the input")
        check_shape((weight[0], shape[0]), weight, "the filters")
        self.check_bias(weight[0])
        return weight[0], 1, 1


@irdl_op_definition
class ReluOp(ElementwiseOp):
    """max(x, 0)."""

    name = "nn.relu"


@irdl_op_definition
class Relu6Op(ElementwiseOp):
    """min(max(x, 0), 6)."""

    name = "nn.relu6"


@irdl_op_definition
class LeakyReluOp(ElementwiseOp):
    """x, or slope * x below zero."""

    name = "nn.leaky_relu"
    slope = prop_def(FractionAttr)


@irdl_op_definition
class SigmoidOp(ElementwiseOp):
    """1 / (1 + e^-x)."""

    name = "nn.sigmoid"


@irdl_op_definition
class SoftmaxOp(ElementwiseOp):
    """Softmax over the channels of each pixel."""

    name = "nn.softmax"


@irdl_op_definition
class CrossEntropyOp(ElementwiseOp):
    """Softmax and cross-entropy against the labels: the loss of training. Its result is the logits."""

    name = "nn.cross_entropy"


class PoolOp(Windowed, UnaryOp, ABC):
    """A pool over windows; every window holds at least one element of the map."""

    def output_shape(self) -> Shape:
        """Fewer rows and columns, as many channels."""
        shape = feature_map_shape(self.input)
        return pool_shape(shape, self.kernel.data, self.stride.data, self.padding.data)


@irdl_op_definition
class MaxPoolOp(PoolOp):
    """The largest value of a window; padding never wins."""

    name = "nn.max_pool"


@irdl_op_definition
class AveragePoolOp(PoolOp):
    """The mean of a window; `include_padding` counts padded zeros in the divisor."""

    name = "nn.avg_pool"
    include_padding = opt_prop_def(UnitAttr)


class GlobalPoolOp(UnaryOp, ABC):
    """A pool over the whole feature map."""

    def output_shape(self) -> Shape:
        """(C, 1, 1)."""
        return feature_map_shape(self.input)[0], 1, 1


@irdl_op_definition
class GlobalMaxPoolOp(GlobalPoolOp):
    """The largest value of each channel."""

    name = "nn.global_max_pool"


@irdl_op_definition
class GlobalAveragePoolOp(GlobalPoolOp):
    """The mean of each channel."""

    name = "nn.global_avg_pool"


class MergeOp(LayerOp, ABC):
    """A layer that reads two or more feature maps."""

    inputs = var_operand_def(FeatureMap)

    def input_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the operands. Raises VerifyException for fewer than two."""
        if len(self.inputs) < 2:
            raise VerifyException("expected two or more feature maps")
        return tuple(feature_map_shape(value) for value in self.inputs)


@irdl_op_definition
class AddOp(MergeOp):
    """The sum of feature maps of one shape."""

    name = "nn.add"

    def output_shape(self) -> Shape:
        """That of all operands."""
        return same_shape(self.input_shapes())


@irdl_op_definition
class ConcatOp(MergeOp):
    """Feature maps one after the other, by channel."""

    name = "nn.concat"

    def output_shape(self) -> Shape:
        """As many channels as all operands together."""
        return concat_shape(self.input_shapes())


@irdl_op_definition
class UpsampleOp(UnaryOp):
    """Nearest neighbour, by whole factors."""

    name = "nn.upsample"
    scale = prop_def(PairAttr)

    def output_shape(self) -> Shape:
        """(C, H * vertical, W * horizontal)."""
        channels, height, width = feature_map_shape(self.input)
        return channels, height * self.scale.data[0], width * self.scale.data[1]


@irdl_op_definition
class ResizeOp(UnaryOp):
    """Nearest neighbour, to a height and width."""

    name = "nn.resize"
    size = prop_def(PairAttr)

    def output_shape(self) -> Shape:
        """(C, height, width)."""
        return (feature_map_shape(self.input)[0], *self.size.data)


@irdl_op_definition
class FlattenOp(UnaryOp):
    """A feature map as a vector, channels outermost."""

    name = "nn.flatten"

    def output_shape(self) -> Shape:
        """(C * H * W, 1, 1)."""
        channels, height, width = feature_map_shape(self.input)
        return channels * height * width, 1, 1


@irdl_op_definition
class ReshapeOp(UnaryOp):
    """The same elements in another shape, channels outermost."""

    name = "nn.reshape"
    shape = prop_def(ShapeAttr)

    def output_shape(self) -> Shape:
        """The given one, if it has as many elements."""
        return reshaped(feature_map_shape(self.input), self.shape.data)


@irdl_op_definition
class BatchNormOp(LayerOp):
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta."""

    name = "nn.batch_norm"
    input = operand_def(FeatureMap)
    gamma = operand_def(TensorType[Float32Type])
    beta = operand_def(TensorType[Float32Type])
    mean = operand_def(TensorType[Float32Type])
    variance = operand_def(TensorType[Float32Type])
    epsilon = prop_def(FractionAttr)

    def output_shape(self) -> Shape:
        """That of the input; parameters have one number a channel."""
        shape = feature_map_shape(self.input)
        for name in ("gamma", "beta", "mean", "variance"):
            check_vector(shape[0], parameter_shape(getattr(self, name)), name)
        return shape


LAYER_OPS = [
    InputOp,
    Conv2dOp,
    DepthwiseOp,
    LinearOp,
    ReluOp,
    Relu6Op,
    LeakyReluOp,
    SigmoidOp,
    MaxPoolOp,
    AveragePoolOp,
    GlobalMaxPoolOp,
    GlobalAveragePoolOp,
    AddOp,
    ConcatOp,
    UpsampleOp,
    ResizeOp,
    FlattenOp,
    ReshapeOp,
    BatchNormOp,
    SoftmaxOp,
    CrossEntropyOp,
]

"""Steps of training that the host computes in floating point, each marked `float64`: the loss and batch statistics.

    %fc2.grad = fx.host.softmax_cross_entropy "fc2.grad" (%fc2) float64, exponent = <...>
                : !fx.tensor<?x10x1x1, 8b, exp = tensor>

They read mantissas or exact sums with their exponents, compute in float64, and write mantissas, rounded half-even at
an exponent of their own, which `exponent` says how to find. Everything else of a training program is integer
arithmetic on the accelerator.
"""

from __future__ import annotations

from fractions import Fraction

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.assembly import ReadableOp
from binpoint.dialect.attributes import FractionAttr, NameAttr
from binpoint.dialect.fx_attributes import ExponentAttr
from binpoint.dialect.fx_types import AccumulatorType, FixedTensorType, check_sizes, map_shape, sizes_of
from binpoint.dialect.policies import PolicyAttr
from binpoint.dialect.shapes import check_shape

FORWARD_TERMS = ((0,), (0, 0))
BACKWARD_TERMS = ((1,), (1, 0))
"""The sums of a batch normalisation: of x and of x squared; of dy and of dy times x, where the operands are (x, dy)."""

MOMENTS = 2
"""How many sums either step reads."""


@irdl_op_definition
class SoftmaxCrossEntropyOp(ReadableOp):
    """(softmax(logits) - one hot) / N, times 2^scale_exponent: the gradient of the mean loss of a mini-batch.

    The label is the gradient's name. Scaling the loss moves exponents only.
    """

    name = "fx.host.softmax_cross_entropy"
    label = prop_def(NameAttr)
    float64 = prop_def(UnitAttr)
    exponent = prop_def(PolicyAttr)
    scale_exponent = prop_def(ExponentAttr, default_value=ExponentAttr(0))
    logits = operand_def(FixedTensorType)
    result = result_def(FixedTensorType)

    def verify_(self) -> None:
        """The gradient has the logits' shape, a vector: there is one label an image."""
        shape = map_shape(self.logits)
        check_shape((1, 1), shape[1:], "the height and width of the logits")
        check_shape(shape, map_shape(self.result), "the gradient")


@irdl_op_definition
class BatchNormOp(ReadableOp):
    """Mean and variance of each channel from exact sums (of x, of x squared); from them y = scale * x + shift.

    scale = gamma / sqrt(variance + epsilon), shift = beta - mean * scale. The label is the layer's name; its results
    are called <label>.scale and <label>.shift. The host keeps running statistics, which inference uses: each moves by
    `momentum` towards that of the mini-batch.

    %bn1.scale, %bn1.shift = fx.host.batch_norm "bn1" (%bn1.sums, %bn1.gamma, %bn1.beta) float64, exponent = <...>,
      epsilon = 1/100000 : !fx.tensor<1x16x1x1, 16b, exp = tensor>, !fx.tensor<16, 16b, exp = tensor>
    """

    name = "fx.host.batch_norm"
    label = prop_def(NameAttr)
    float64 = prop_def(UnitAttr)
    exponent = prop_def(PolicyAttr)
    epsilon = prop_def(FractionAttr)
    momentum = prop_def(FractionAttr, default_value=FractionAttr(Fraction(1, 10)))
    sums = operand_def(AccumulatorType)
    gamma = operand_def(FixedTensorType)
    beta = operand_def(FixedTensorType)
    scale = result_def(FixedTensorType)
    shift = result_def(FixedTensorType)

    def verify_(self) -> None:
        """One number a channel everywhere."""
        channels = _channels(self.sums)
        for name in ("gamma", "beta", "shift"):
            check_sizes((channels,), sizes_of(getattr(self, name)), name)
        check_sizes((1, channels, 1, 1), sizes_of(self.scale), "scale")


@irdl_op_definition
class BatchNormGradientOp(ReadableOp):
    """Gradients of gamma and beta, and the coefficients of dx = A * dy + B * x + C, from exact sums.

    Reads the forward sums (of x, of x squared), the backward sums (of dy, of dy times x) and gamma. The results are
    called <label>.grad.scale, (A, B), <label>.grad.shift, C, <label>.gamma.grad and <label>.beta.grad; the exponents
    of the last two follow `gradient_exponent`.
    """

    name = "fx.host.batch_norm_gradient"
    label = prop_def(NameAttr)
    float64 = prop_def(UnitAttr)
    exponent = prop_def(PolicyAttr)
    gradient_exponent = prop_def(PolicyAttr)
    epsilon = prop_def(FractionAttr)
    sums = operand_def(AccumulatorType)
    gradient_sums = operand_def(AccumulatorType)
    gamma = operand_def(FixedTensorType)
    scale = result_def(FixedTensorType)
    shift = result_def(FixedTensorType)
    gamma_gradient = result_def(FixedTensorType)
    beta_gradient = result_def(FixedTensorType)

    def verify_(self) -> None:
        """One number a channel everywhere."""
        channels = _channels(self.sums)
        check_shape((MOMENTS, channels), sizes_of(self.gradient_sums), "the backward sums")
        for name in ("gamma", "shift", "gamma_gradient", "beta_gradient"):
            check_sizes((channels,), sizes_of(getattr(self, name)), name)
        check_sizes((2, channels, 1, 1), sizes_of(self.scale), "scale")
        if self.gamma_gradient.type != self.beta_gradient.type:
            raise VerifyException("the gradients of gamma and beta differ in type")


def _channels(sums: SSAValue) -> int:
    sizes = sizes_of(sums)
    if len(sizes) != 2 or sizes[0] != MOMENTS:
        raise VerifyException(f"{sums.type} are no sums of a batch normalisation: expected 2xC")
    return sizes[1]


BATCH_NORM_COEFFICIENTS = ("scale", "shift")
BATCH_NORM_GRADIENTS = ("grad.scale", "grad.shift", "gamma.grad", "beta.grad")
"""What the results of the two steps of a batch normalisation are called, behind the layer's name."""

HOST_OPS = [SoftmaxCrossEntropyOp, BatchNormOp, BatchNormGradientOp]

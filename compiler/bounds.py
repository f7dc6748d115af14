"""The width that holds every exact sum of an operation, from widths and the length of the reduction.

Mantissas of b bits lie in -2^(b-1) .. 2^(b-1)-1. So L products of a and b bits lie within L * 2^(a+b-2), and L
mantissas of b bits reach down to L * -2^(b-1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd, prod
from typing import Any

from binpoint.backends.tables import FRACTION_BITS
from binpoint.dialect import fx_accumulate, fx_gradients
from binpoint.dialect.fx_accumulate import AccumulateOp
from binpoint.dialect.fx_training import ChannelSumsOp, TrainingOp
from binpoint.dialect.fx_types import map_shape, parameter_sizes, width
from binpoint.dialect.groups import Windowed


def needed_bits(op: AccumulateOp) -> int:
    """A width in bits that holds every exact sum of the operation, whatever its operands.

    It is the least where some result sees all terms; zeros of padding count as terms.
    """
    for cls in type(op).__mro__:
        if cls in BOUNDS:
            return BOUNDS[cls](op)
    raise ValueError(f"there is no bound for {op.name}")


def fits_by_construction(op: AccumulateOp) -> bool:
    """Whether the operation itself chooses its result's exponent or constants so that its values fit.

    Alignment leaves the sums of add and concat one bit less than there is; tables have a fixed number of bits. Their
    need says nothing about the network.
    """
    if isinstance(op, fx_gradients.ChannelAffineOp):
        return len(op.inputs) > 1
    return isinstance(
        op,
        fx_accumulate.MergeOp | fx_accumulate.SigmoidOp | fx_accumulate.SoftmaxOp | fx_gradients.SigmoidGradientOp,
    )


def needed_sum_bits(op: ChannelSumsOp) -> int:
    """The least width in bits that holds every sum over the images and pixels of a mini-batch."""
    terms = _batch(op) * prod(map_shape(op.inputs[0])[1:])
    return max(
        signed_bits(terms << sum(width(op.inputs[factor]) - 1 for factor in factors))
        if len(factors) > 1
        else _sum_of(terms, width(op.inputs[factors[0]]))
        for factors in op.terms.data
    )


def signed_bits(value: int) -> int:
    """The least width of a two's complement number: signed_bits(127) = 8, signed_bits(-128) = 8."""
    return (value if value >= 0 else ~value).bit_length() + 1


def _products(terms: int, *widths: int) -> int:
    """So many products of mantissas of two widths."""
    return signed_bits(terms << (sum(widths) - 2))


def _sum_of(terms: int, bits: int) -> int:
    """So many mantissas of one width."""
    return signed_bits(-(terms << (bits - 1)))


def _aligned(op: AccumulateOp, bits: int, terms: int) -> int:
    """A sum whose alignment leaves room for the carries of all terms and one bit of rounding: `alignment_exponent`."""
    carries = (terms - 1).bit_length()
    return max(width(op.result) - 1, bits + carries + 1)


def _filter(op: fx_accumulate.FilterOp) -> int:
    return _products(prod(parameter_sizes(op.weight)[1:]), width(op.input), width(op.weight))


def _average_pool(op: fx_accumulate.AveragePoolOp) -> int:
    """A window's sum is negative at its largest: divisor * -2^(b-1)."""
    divisors, _ = op.reciprocals.data
    return max(_sum_of(divisor * multiplier, width(op.input)) for divisor, multiplier in divisors)


def _merge(op: fx_accumulate.MergeOp) -> int:
    return _aligned(op, max(width(value) for value in op.inputs), len(op.inputs))


def _table(op: AccumulateOp) -> int:
    return signed_bits(1 << FRACTION_BITS)


def _widest(op: AccumulateOp) -> int:
    return max(width(operand) for operand in op.operands)


def _data_gradient(op: fx_gradients.DataGradientOp) -> int:
    """An element is met by the outputs of its group whose window holds it, each once a position in the window."""
    outputs, _, *kernel = parameter_sizes(op.weight)
    groups, taps = 1, 1
    if isinstance(op, fx_gradients.Conv2dDataGradientOp):
        groups = op.groups.data
        # Position r meets row y where y + padding - r * dilation is a multiple of the stride: one r in so many.
        for size, stride, dilation in zip(kernel, op.stride.data, op.dilation.data, strict=True):
            taps *= _ceiling(size, stride // gcd(stride, dilation))
    return _products(outputs // groups * taps, width(op.gradient), width(op.weight))


def _weight_gradient(op: fx_gradients.WeightGradientOp) -> int:
    """One product an image and output pixel."""
    terms = _batch(op) * prod(map_shape(op.gradient)[1:])
    return _products(terms, width(op.input), width(op.gradient))


def _bias_gradient(op: fx_gradients.BiasGradientOp) -> int:
    return _sum_of(_batch(op) * prod(map_shape(op.gradient)[1:]), width(op.gradient))


def _max_pool_gradient(op: fx_gradients.MaxPoolGradientOp) -> int:
    return _sum_of(_overlap(op), width(op.gradient))


def _average_pool_gradient(op: fx_gradients.AveragePoolGradientOp) -> int:
    largest = max(multiplier for _, multiplier in op.reciprocals.data[0])
    return _sum_of(_overlap(op) * largest, width(op.gradient))


def _overlap(op: Windowed) -> int:
    """How many windows can hold one element."""
    return prod(_ceiling(size, stride) for size, stride in zip(op.kernel.data, op.stride.data, strict=True))


def _resize_gradient(op: fx_gradients.ResizeGradientOp) -> int:
    """How many output elements can read one element: ceil(H_out / H) rows, columns alike."""
    after, before = map_shape(op.gradient)[1:], map_shape(op.result)[1:]
    return _sum_of(prod(_ceiling(a, b) for a, b in zip(after, before, strict=True)), width(op.gradient))


def _sigmoid_gradient(op: fx_gradients.SigmoidGradientOp) -> int:
    """The table of y * (1 - y) <= 1/4 has as many fraction bits as fit: `sigmoid_gradient_fraction_bits`."""
    bits = width(op.gradient)
    fraction_bits = min(FRACTION_BITS, width(op.result) - bits + 1)
    return _sum_of(1 << (fraction_bits - 2), bits)


def _channel_affine(op: fx_gradients.ChannelAffineOp) -> int:
    widest = max(width(value) for value in op.inputs)
    if len(op.inputs) == 1:
        return _products(1, widest, width(op.weight))
    return _aligned(op, widest + width(op.weight), len(op.inputs))


def _batch(op: AccumulateOp | ChannelSumsOp) -> int:
    """The images of the mini-batch of the program that an operation stands in."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, TrainingOp):
        parent = parent.parent_op()
    if parent is None:
        raise ValueError(f"{op.name} stands outside of fx.training, which says how many images there are")
    return parent.batch.data


def _ceiling(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


BOUNDS: Mapping[type, Callable[[Any], int]] = {
    fx_accumulate.FilterOp: _filter,
    fx_accumulate.AveragePoolOp: _average_pool,
    fx_accumulate.MergeOp: _merge,
    fx_accumulate.WidenOp: _widest,
    fx_accumulate.SigmoidOp: _table,
    fx_accumulate.SoftmaxOp: _table,
    fx_gradients.DataGradientOp: _data_gradient,
    fx_gradients.WeightGradientOp: _weight_gradient,
    fx_gradients.BiasGradientOp: _bias_gradient,
    fx_gradients.MaxPoolGradientOp: _max_pool_gradient,
    fx_gradients.AveragePoolGradientOp: _average_pool_gradient,
    fx_gradients.ResizeGradientOp: _resize_gradient,
    # The accumulators hold dy; the slope scales it behind them, as that of the activation.
    fx_gradients.LeakyReluGradientOp: lambda op: width(op.gradient),
    fx_gradients.SigmoidGradientOp: _sigmoid_gradient,
    fx_gradients.ChannelAffineOp: _channel_affine,
}
"""The bound of each accumulating operation, or of a class of them."""

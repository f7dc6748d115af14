"""A batch normalisation -> new filters and bias of the convolution before it, or a depthwise 1x1 convolution.

%conv1 = nn.conv2d "conv1" (%image, %w) ...        %s = nn.batch_scale (%gamma, %variance) ...
%bn1 = nn.batch_norm "bn1" (%conv1, %gamma, ...)   %w2 = nn.scale_filters (%w, %s)
                                                   %b2 = nn.batch_shift (%s, %beta, %mean)
                                                -> %conv1 = nn.conv2d "conv1" (%image, %w2, %b2) folds = ["bn1"]
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

from binpoint.dialect.assembly import value_name
from binpoint.dialect.attributes import NamesAttr, PairAttr
from binpoint.dialect.nn_layers import BatchNormOp, DepthwiseOp, FilterOp
from binpoint.dialect.nn_parameters import (
    BatchScaleOp,
    BatchShiftOp,
    DiagonalFiltersOp,
    ParameterOp,
    ScaleFiltersOp,
)
from binpoint.dialect.nn_types import feature_map_shape, parameter_type


class ReplaceBatchNorm(RewritePattern):
    """Into the filters where nobody else reads the convolution, else into a convolution of its own."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BatchNormOp, rewriter: PatternRewriter) -> None:
        """Replace the normalisation and the convolution before it."""
        scale = _insert(rewriter, _scale(op), f"{op.label.data}.scale")
        producer = op.input.owner
        if isinstance(producer, FilterOp) and op.input.has_one_use():
            folded = _fold_into(producer, op, scale, rewriter)
            rewriter.replace(op, folded)
            rewriter.erase(producer)
        else:
            rewriter.replace(op, _depthwise(op, scale, rewriter))


def _insert(rewriter: PatternRewriter, op: ParameterOp, name: str) -> SSAValue:
    op.result.name_hint = value_name(name)
    return rewriter.insert(op).result


def _scale(op: BatchNormOp) -> BatchScaleOp:
    return BatchScaleOp.create(
        operands=[op.gamma, op.variance],
        result_types=[op.gamma.type],
        properties={"epsilon": op.epsilon},
        location=op.location,
    )


def _shift(op: BatchNormOp, scale: SSAValue, bias: SSAValue | None) -> BatchShiftOp:
    return BatchShiftOp.create(
        operands=[scale, op.beta, op.mean, *([] if bias is None else [bias])],
        result_types=[op.gamma.type],
        location=op.location,
    )


def _fold_into(producer: FilterOp, op: BatchNormOp, scale: SSAValue, rewriter: PatternRewriter) -> FilterOp:
    """The convolution with scaled filters and a shifted bias, not yet inserted."""
    scaled = ScaleFiltersOp.create(
        operands=[producer.weight, scale], result_types=[producer.weight.type], location=op.location
    )
    weight = _insert(rewriter, scaled, f"{producer.label.data}.weight.scaled")
    bias = _insert(rewriter, _shift(op, scale, producer.bias), f"{producer.label.data}.bias.shifted")
    folds = NamesAttr((*producer.layers[1:], *op.layers))
    folded = type(producer).create(
        operands=[producer.input, weight, bias],
        result_types=[producer.result.type],
        properties={**producer.properties, "folds": folds},
        location=producer.location,
    )
    folded.result.name_hint = producer.result.name_hint
    return folded


def _depthwise(op: BatchNormOp, scale: SSAValue, rewriter: PatternRewriter) -> DepthwiseOp:
    """The normalisation as a depthwise 1x1 convolution, not yet inserted."""
    channels = feature_map_shape(op.input)[0]
    diagonal = DiagonalFiltersOp.create(
        operands=[scale], result_types=[parameter_type((channels, 1, 1, 1))], location=op.location
    )
    weight = _insert(rewriter, diagonal, f"{op.label.data}.weight")
    bias = _insert(rewriter, _shift(op, scale, None), f"{op.label.data}.bias")
    properties: dict[str, Attribute] = {"label": op.label, "kernel": PairAttr((1, 1))}
    if op.folds is not None:
        properties["folds"] = op.folds
    return DepthwiseOp.create(
        operands=[op.input, weight, bias],
        result_types=[op.result.type],
        properties=properties,
        location=op.location,
    )


@dataclass(frozen=True)
class FoldBatchNorm(ModulePass):
    """A batch normalisation -> new filters and bias of the convolution before it, or a depthwise convolution."""

    name = "fold-batch-norm"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Run over every network of the module."""
        PatternRewriteWalker(ReplaceBatchNorm()).rewrite_module(op)

"""The fx dialect: a network in fixed point, one kernel a layer, with every width, exponent and overflow in sight.

fx.program @tiny target = "dlu2048" {
  %image = fx.input "image" scale = 1/255, exponent = <msb-histogram, r_max = 1/50000, range = [-128, 127]>
           : !fx.tensor<?x1x28x28, 8b, exp = tensor>
  %w = fx.parameter "conv.weight" exponent = <msb-max, r_max = 0, range = [-128, 127]>
       : !fx.tensor<6x1x5x5, 8b, exp = tensor>
  %conv = fx.kernel "conv" layers = ["conv", "relu"] {
    %0 = fx.conv2d (%image, %w) kernel = 5x5, on_overflow = saturate, overflow = impossible, needed = 20b
         : !fx.acc<?x6x24x24, 40b>
    %1 = fx.relu (%0) : !fx.acc<?x6x24x24, 40b>
    fx.stats (%1) acquires = [msb, lsb]
    %2 = fx.quantize (%1) rounding = half-even, exponent = <...> : !fx.tensor<?x6x24x24, 8b, exp = tensor>
    fx.yield (%2)
  } : !fx.tensor<?x6x24x24, 8b, exp = tensor>
  fx.output (%conv)
}

A mini-batch of training is an `fx.training` (fx_training.py) with kernels of gradients (fx_gradients.py), updates
(fx_update.py) and the steps that the host computes in floating point (fx_host.py).
"""

from __future__ import annotations

from xdsl.ir import Dialect

from binpoint.dialect.attributes import BitsAttr, ConstantAttr
from binpoint.dialect.block_attributes import BlocksAttr, PositionsAttr
from binpoint.dialect.fx_accumulate import ACCUMULATE_OPS
from binpoint.dialect.fx_attributes import (
    AcquiresAttr,
    ChannelAttr,
    ExponentAttr,
    OnOverflowAttr,
    OverflowAttr,
    PhaseAttr,
    ReciprocalsAttr,
    TermsAttr,
)
from binpoint.dialect.fx_gradients import GRADIENT_OPS
from binpoint.dialect.fx_host import HOST_OPS
from binpoint.dialect.fx_program import PROGRAM_OPS
from binpoint.dialect.fx_training import TRAINING_OPS
from binpoint.dialect.fx_types import AccumulatorType, FixedTensorType
from binpoint.dialect.fx_update import UPDATE_OPS
from binpoint.dialect.fx_values import VALUE_OPS
from binpoint.dialect.policies import GranularityAttr, PolicyAttr, RoundingAttr

FX = Dialect(
    "fx",
    [*PROGRAM_OPS, *ACCUMULATE_OPS, *VALUE_OPS, *TRAINING_OPS, *GRADIENT_OPS, *HOST_OPS, *UPDATE_OPS],
    [
        FixedTensorType,
        AccumulatorType,
        GranularityAttr,
        PolicyAttr,
        BlocksAttr,
        PositionsAttr,
        RoundingAttr,
        BitsAttr,
        ConstantAttr,
        OnOverflowAttr,
        OverflowAttr,
        AcquiresAttr,
        ReciprocalsAttr,
        ChannelAttr,
        ExponentAttr,
        PhaseAttr,
        TermsAttr,
    ],
)
"""The dialect, to be registered in an xDSL context."""

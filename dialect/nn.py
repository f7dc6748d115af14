"""The nn dialect: a network as layers over real numbers, before any of it is fixed point.

Feature maps are `tensor<?x16x28x28xf32>`: images (the batch is a run-time size), channels, height, width; a vector
has height and width 1. Parameters are static tensors, named as in the network file, or expressions over them.

    nn.network @tiny numeric = <exponent = tensor, rounding = half-even, ...> {
      %image = nn.input "image" scale = 1/255 : tensor<?x1x28x28xf32>
      %conv.weight = nn.parameter "conv.weight" : tensor<6x1x5x5xf32>
      %conv = nn.conv2d "conv" (%image, %conv.weight) kernel = 5x5 : tensor<?x6x24x24xf32>
      nn.output (%conv)
    }
"""

from __future__ import annotations

from xdsl.ir import Dialect

from binpoint.dialect.attributes import SHARED_ATTRIBUTES
from binpoint.dialect.nn_layers import LAYER_OPS
from binpoint.dialect.nn_network import NetworkOp, OutputOp
from binpoint.dialect.nn_parameters import PARAMETER_OPS
from binpoint.dialect.policies import NumericAttr

NN = Dialect("nn", [NetworkOp, OutputOp, *PARAMETER_OPS, *LAYER_OPS], [*SHARED_ATTRIBUTES, NumericAttr])
"""The dialect, to be registered in an xDSL context."""

"""The network operation of the nn dialect and what leaves it."""

from __future__ import annotations

from xdsl.dialects.builtin import Float32Type, TensorType
from xdsl.irdl import irdl_op_definition, prop_def, region_def, traits_def, var_operand_def
from xdsl.traits import HasParent, IsolatedFromAbove, IsTerminator
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.assembly import ReadableOp, verify_names
from binpoint.dialect.attributes import NameAttr
from binpoint.dialect.nn_types import feature_map_shape
from binpoint.dialect.policies import NumericAttr


@irdl_op_definition
class NetworkOp(ReadableOp):
    """A network: inputs, parameters and layers in data-flow order, and the policy of its numbers.

    nn.network @lenet numeric = <exponent = tensor, ...> { ... }
    """

    name = "nn.network"
    symbol = prop_def(NameAttr)
    numeric = prop_def(NumericAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove())

    def verify_(self) -> None:
        """Layers, inputs and parameters have names of their own."""
        verify_names(self.body.block.ops)


@irdl_op_definition
class OutputOp(ReadableOp):
    """What leaves the network: `nn.output (%fc2)`."""

    name = "nn.output"
    values = var_operand_def(TensorType[Float32Type])
    traits = traits_def(IsTerminator(), HasParent(NetworkOp))

    def verify_(self) -> None:
        """At least one feature map leaves."""
        if not self.values:
            raise VerifyException("a network has at least one output")
        for value in self.values:
            feature_map_shape(value)

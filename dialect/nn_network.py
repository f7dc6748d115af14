"""The network operation of the nn dialect and what leaves it."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import Float32Type, TensorType
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, region_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsolatedFromAbove, IsTerminator
from xdsl.utils.exceptions import VerifyException

from binpoint.dialect.assembly import ReadableOp, location_here
from binpoint.dialect.attributes import NameAttr
from binpoint.dialect.nn_types import feature_map_shape
from binpoint.dialect.policies import NumericAttr


@irdl_op_definition
class NetworkOp(IRDLOperation):
    """A network: inputs, parameters and layers in data-flow order, and the policy of its numbers.

    nn.network @lenet numeric = <exponent = tensor, ...> { ... }
    """

    name = "nn.network"
    symbol = prop_def(NameAttr)
    numeric = prop_def(NumericAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove())

    def print(self, printer: Printer) -> None:
        """Write everything after the operation's name."""
        printer.print_string(" ")
        printer.print_symbol_name(self.symbol.data)
        printer.print_string(" numeric = ")
        self.numeric.print_value(printer)
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_empty_block=False)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read everything after the operation's name. Raises ParseError."""
        location = location_here(parser)
        symbol = NameAttr(parser.parse_symbol_name().data)
        parser.parse_keyword("numeric")
        parser.parse_punctuation("=")
        numeric = NumericAttr.new(NumericAttr.parse_value(parser))
        attributes = parser.parse_optional_attr_dict_with_keyword()
        region = parser.parse_region()
        return cls.create(
            properties={"symbol": symbol, "numeric": numeric},
            attributes={} if attributes is None else attributes.data,
            regions=[region],
            location=location,
        )

    def verify_(self) -> None:
        """Layers, inputs and parameters have names of their own; the last operation is the output."""
        names: set[str] = set()
        for op in self.body.block.ops:
            label = op.properties.get("label")
            if not isinstance(label, NameAttr):
                continue
            if label.data in names:
                raise VerifyException(f'the name "{label.data}" is taken')
            names.add(label.data)


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

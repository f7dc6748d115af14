"""One custom assembly format for every operation of both dialects.

    %result = dialect.name "heading" (%a, %b) property = value, flag { ... } : result-type

The types of operands are not repeated: they are those of the operands' definitions, which come first. A property
that has its default value is left out. Properties are `ValueAttr`s, or `UnitAttr`s that print as a bare word; names
(`NameAttr`) that every operation of a kind has are the headings, which print first and without the property's name.
The heading `symbol` prints as @symbol: it names what holds a whole network.
"""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Iterable
from typing import Self, cast

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, OptPropertyDef
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.lexer import Span

from binpoint.dialect.attributes import NameAttr, ValueAttr
from binpoint.support.diagnostics import Location, did_you_mean

Properties = dict[str, Attribute]

SYMBOL = "symbol"
"""The heading that prints as @symbol."""


class ReadableOp(IRDLOperation, ABC):
    """An operation in the common format."""

    def print(self, printer: Printer) -> None:
        """Write everything after the operation's name."""
        _print_headings(self, printer)
        if type(self).get_irdl_definition().operands:
            _print_operands(self, printer)
        _print_properties(self, printer)
        for region in self.regions:
            printer.print_string(" ")
            printer.print_region(region, print_empty_block=False)
        if self.results:
            printer.print_string(" : ")
            printer.print_list(self.result_types, printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read everything after the operation's name. Raises ParseError."""
        location = location_here(parser)
        properties = _parse_headings(cls, parser)
        definition = cls.get_irdl_definition()
        operands = _parse_operands(parser) if definition.operands else []
        named, attributes = _parse_properties(cls, parser)
        regions = [parser.parse_region() for _ in definition.regions]
        return cls.create(
            operands=operands,
            regions=regions,
            result_types=_parse_result_types(parser) if definition.results else [],
            properties=properties | named,
            attributes=attributes,
            location=location,
        )


def verify_names(ops: Iterable[Operation]) -> None:
    """Operations that have a label have one of their own. Raises VerifyException."""
    names: set[str] = set()
    for op in ops:
        label = op.properties.get("label")
        if isinstance(label, NameAttr):
            if label.data in names:
                raise VerifyException(f'the name "{label.data}" is taken')
            names.add(label.data)


def location_here(parser: Parser) -> FileLineColLoc:
    """The place of the token before it in the text: errors of the verifier point there."""
    place = Span(parser.pos, parser.pos, parser.lexer.input).get_location()
    return FileLineColLoc(StringAttr(place.file), IntAttr(place.line), IntAttr(place.col))


def to_attribute(location: Location | None) -> FileLineColLoc | None:
    """A diagnostic's location as an operation's; None where there is none."""
    if location is None or location.line is None:
        return None
    return FileLineColLoc(StringAttr(location.file), IntAttr(location.line), IntAttr(location.column or 1))


def location_of(op: Operation) -> Location | None:
    """Where the operation was written: in a network file or in IR text; None where it is not known."""
    place = op.location
    if not isinstance(place, FileLineColLoc):
        return None
    return Location(place.filename.data, place.line.data, place.column.data)


def value_name(name: str) -> str:
    """A name of the network file as the name of an SSA value: a hint for readers, not an identity.

    The printer takes a final _1 for a number of its own, so it becomes .1.
    """
    name = re.sub(r"_([0-9]+)(?=\.|$)", r".\1", re.sub(r"[^A-Za-z0-9_$.-]", "_", name))
    return name if re.match(r"[A-Za-z_$.-]", name) else f"_{name}"


def _print_headings(op: ReadableOp, printer: Printer) -> None:
    """Write the names that come first."""
    for name in _headings(type(op)):
        printer.print_string(" ")
        heading = op.properties[name]
        assert isinstance(heading, NameAttr)
        if name == SYMBOL:
            printer.print_symbol_name(heading.data)
        else:
            heading.print_value(printer)


def _parse_headings(cls: type[ReadableOp], parser: Parser) -> Properties:
    """Read the names that come first."""
    return {
        name: NameAttr(parser.parse_symbol_name().data if name == SYMBOL else NameAttr.parse_value(parser))
        for name in _headings(cls)
    }


def _print_operands(op: Operation, printer: Printer) -> None:
    """Write the operands in parentheses."""
    printer.print_string(" ")
    with printer.in_parens():
        printer.print_list(op.operands, printer.print_ssa_value)


def _parse_operands(parser: Parser) -> list[SSAValue]:
    """Read operands in parentheses."""
    return parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_operand(parser))


def _parse_operand(parser: Parser) -> SSAValue:
    """Read one operand, which must have been defined before; its type is that of its definition."""
    operand = parser.parse_unresolved_operand()
    values = parser.ssa_values.get(operand.operand_name, ())
    if operand.index >= len(values):
        hint = did_you_mean(operand.operand_name, parser.ssa_values)
        message = f"%{operand.operand_name} is not defined before its use"
        parser.raise_error(message if hint is None else f"{message}; {hint}", operand.span)
    return values[operand.index]


def _print_properties(op: ReadableOp, printer: Printer) -> None:
    """Write the named properties that differ from their defaults, then other attributes."""
    headings, separator = _headings(type(op)), " "
    for name, definition in type(op).get_irdl_definition().properties.items():
        value = op.properties.get(name)
        if value is None or value == definition.default_value or name in headings:
            continue
        printer.print_string(f"{separator}{name}")
        if not isinstance(value, UnitAttr):
            printer.print_string(" = ")
            _value(value).print_value(printer)
        separator = ", "
    printer.print_op_attributes(op.attributes, print_keyword=True)


def _parse_properties(cls: type[ReadableOp], parser: Parser) -> tuple[Properties, Properties]:
    """Read the named properties and the other attributes."""
    definition, headings = cls.get_irdl_definition(), _headings(cls)
    names = [name for name in definition.properties if name not in headings]
    properties: Properties = {}
    while (name := parser.parse_optional_keyword_in(names)) is not None:
        if name in properties:
            parser.raise_error(f'the property "{name}" is given twice')
        properties[name] = _parse_value(cls, name, parser)
        if parser.parse_optional_punctuation(",") is None:
            break
    attributes = parser.parse_optional_attr_dict_with_keyword()
    if definition.results or definition.regions:
        _refuse_unknown(parser, names)
    return properties, {} if attributes is None else dict(attributes.data)


def _parse_result_types(parser: Parser) -> list[Attribute]:
    """Read `: type`, or `: type, type` of an operation with several results."""
    parser.parse_punctuation(":", " before the type of the result")
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)


def _refuse_unknown(parser: Parser, names: list[str]) -> None:
    """Raise a helpful error where another property seems to follow."""
    position = parser.pos
    word = parser.parse_optional_identifier()
    if word is None:
        return
    if word in names:
        parser.raise_error(f'expected a "," before the property "{word}"', position)
    hint = did_you_mean(word, names)
    expected = f"one of {', '.join(names)}" if names else "this operation has none"
    parser.raise_error(f'unknown property "{word}": {hint or expected}', position)


def _parse_value(cls: type[ReadableOp], name: str, parser: Parser) -> Attribute:
    attribute = _attribute_class(cls, name)
    if attribute is UnitAttr:
        return UnitAttr()
    parser.parse_punctuation("=", f' after the property "{name}"')
    value_class = cast(type[ValueAttr[object]], attribute)
    return value_class.new(value_class.parse_value(parser))


def _headings(cls: type[ReadableOp]) -> list[str]:
    return [
        name
        for name, definition in cls.get_irdl_definition().properties.items()
        if _attribute_class(cls, name) is NameAttr and not isinstance(definition, OptPropertyDef)
    ]


def _attribute_class(cls: type[ReadableOp], name: str) -> type[Attribute]:
    """The one class that a property's constraint allows."""
    bases = cls.get_irdl_definition().properties[name].constr.get_bases()
    if bases is None or len(bases) != 1:
        raise ValueError(f"{cls.name}: the property {name} has no single attribute class")
    return next(iter(bases))


def _value(attribute: Attribute) -> ValueAttr[object]:
    if not isinstance(attribute, ValueAttr):
        raise ValueError(f"{attribute} has no bare text")
    return attribute

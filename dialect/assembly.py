"""One custom assembly format for every operation of both dialects.

    %result = dialect.name "heading" (%a, %b) property = value, flag : result-type

The types of operands are not repeated: they are those of the operands' definitions, which come first. A property
that has its default value is left out. Properties are `ValueAttr`s, or `UnitAttr`s that print as a bare word; names
(`NameAttr`) are the headings, which print first and without the property's name.
"""

from __future__ import annotations

import re
from abc import ABC
from typing import Self, cast

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.lexer import Span

from binpoint.dialect.attributes import NameAttr, ValueAttr
from binpoint.support.diagnostics import Location, did_you_mean

Properties = dict[str, Attribute]


class ReadableOp(IRDLOperation, ABC):
    """An operation without regions in the common format."""

    def print(self, printer: Printer) -> None:
        """Write everything after the operation's name."""
        print_headings(self, printer)
        if type(self).get_irdl_definition().operands:
            print_operands(self, printer)
        print_properties(self, printer)
        if self.results:
            printer.print_string(" : ")
            printer.print_list(self.result_types, printer.print_attribute)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Read everything after the operation's name. Raises ParseError."""
        location = location_here(parser)
        properties = parse_headings(cls, parser)
        definition = cls.get_irdl_definition()
        operands = parse_operands(parser) if definition.operands else []
        named, attributes = parse_properties(cls, parser)
        return cls.create(
            operands=operands,
            result_types=parse_result_types(parser) if definition.results else [],
            properties=properties | named,
            attributes=attributes,
            location=location,
        )


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


def print_headings(op: ReadableOp, printer: Printer) -> None:
    """Write the names that come first."""
    for name in _headings(type(op)):
        printer.print_string(" ")
        _value(op.properties[name]).print_value(printer)


def parse_headings(cls: type[ReadableOp], parser: Parser) -> Properties:
    """Read the names that come first."""
    return {name: _parse_value(cls, name, parser) for name in _headings(cls)}


def print_operands(op: Operation, printer: Printer) -> None:
    """Write the operands in parentheses."""
    printer.print_string(" ")
    with printer.in_parens():
        printer.print_list(op.operands, printer.print_ssa_value)


def parse_operands(parser: Parser) -> list[SSAValue]:
    """Read operands in parentheses."""
    return parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: parse_operand(parser))


def parse_operand(parser: Parser) -> SSAValue:
    """Read one operand, which must have been defined before; its type is that of its definition."""
    operand = parser.parse_unresolved_operand()
    values = parser.ssa_values.get(operand.operand_name, ())
    if operand.index >= len(values):
        hint = did_you_mean(operand.operand_name, parser.ssa_values)
        message = f"%{operand.operand_name} is not defined before its use"
        parser.raise_error(message if hint is None else f"{message}; {hint}", operand.span)
    return values[operand.index]


def print_properties(op: ReadableOp, printer: Printer) -> None:
    """Write the named properties that differ from their defaults, then other attributes."""
    separator = " "
    for name, definition in type(op).get_irdl_definition().properties.items():
        value = op.properties.get(name)
        if value is None or value == definition.default_value or isinstance(value, NameAttr):
            continue
        printer.print_string(f"{separator}{name}")
        if not isinstance(value, UnitAttr):
            printer.print_string(" = ")
            _value(value).print_value(printer)
        separator = ", "
    printer.print_op_attributes(op.attributes, print_keyword=True)


def parse_properties(cls: type[ReadableOp], parser: Parser) -> tuple[Properties, Properties]:
    """Read the named properties and the other attributes."""
    headings = _headings(cls)
    names = [name for name in cls.get_irdl_definition().properties if name not in headings]
    properties: Properties = {}
    while (name := parser.parse_optional_keyword_in(names)) is not None:
        if name in properties:
            parser.raise_error(f'the property "{name}" is given twice')
        properties[name] = _parse_value(cls, name, parser)
        if parser.parse_optional_punctuation(",") is None:
            break
    attributes = parser.parse_optional_attr_dict_with_keyword()
    if cls.get_irdl_definition().results:
        _refuse_unknown(parser, names)
    return properties, {} if attributes is None else dict(attributes.data)


def parse_result_types(parser: Parser) -> list[Attribute]:
    """Read `: type`, or `: type, type` of an operation with several results."""
    parser.parse_punctuation(":", " before the type of the result")
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)


def _refuse_unknown(parser: Parser, names: list[str]) -> None:
    """Raise a helpful error where another property seems to follow."""
    position = parser.pos
    word = parser.parse_optional_identifier()
    if word is None:
        return
    hint = did_you_mean(word, names)
    expected = f"one of {', '.join(names)}" if names else "this operation has none"
    parser.raise_error(f'unknown property "{word}": {hint or expected}', position)


def _parse_value(cls: type[ReadableOp], name: str, parser: Parser) -> Attribute:
    attribute = _attribute_class(cls, name)
    if attribute is UnitAttr:
        return UnitAttr()
    if attribute is not NameAttr:
        parser.parse_punctuation("=", f' after the property "{name}"')
    value_class = cast(type[ValueAttr[object]], attribute)
    return value_class.new(value_class.parse_value(parser))


def _headings(cls: type[ReadableOp]) -> list[str]:
    return [name for name in cls.get_irdl_definition().properties if _attribute_class(cls, name) is NameAttr]


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

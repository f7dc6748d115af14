"""IR as text: the context that knows both dialects, the printer, the parser with its errors as diagnostics."""

from __future__ import annotations

import re
from io import StringIO

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.ir import Dialect, Operation
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from binpoint.dialect.assembly import location_of
from binpoint.support.diagnostics import Diagnostic, Location, UserError, did_you_mean, user_error

_STRINGS = re.compile(r'//[^\n]*|"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*"|"')
"""Comments, whole strings and what is left over: a lone quotation mark."""

_LONG_NUMBER = re.compile(r"[0-9]{1000}")

_UNREGISTERED = re.compile(r"Operation (\S+) is not registered")


def make_context() -> Context:
    """An xDSL context with the builtin, nn and fx dialects; the two of ours load when they are first met."""
    context = Context()
    context.load_dialect(Builtin)
    context.register_dialect("nn", _nn)
    context.register_dialect("fx", _fx)
    return context


def print_module(module: ModuleOp) -> str:
    """The module as text, one final newline; `parse_module` reads it back exactly."""
    stream = StringIO()
    Printer(stream).print_op(module)
    return stream.getvalue() + "\n"


def parse_module(text: str, file: str) -> ModuleOp:
    """The verified module of an IR text.

    Args:
        text: the IR.
        file: its name, for errors.

    Raises:
        UserError: the text does not parse or does not verify; with the place of each fault.
    """
    _check_tokens(text, file)
    context = make_context()
    parser: Parser | None = None
    try:
        parser = Parser(context, text, file)
        module = parser.parse_module()
    except ParseError as error:
        raise _error(error.msg, text, file, error.span.start, _operation_hint(error.msg, context)) from None
    except VerifyException as error:
        # An attribute that is refused once it has been read: the parser stands right behind it.
        raise _error(str(error), text, file, 0 if parser is None else parser.pos) from None
    except RecursionError:
        raise _error("the IR is nested too deeply", text, file, 0) from None
    verify_module(module, text, file)
    return module


def _check_tokens(text: str, file: str) -> None:
    """Refuse an unterminated string, on which the lexer takes exponential time, and numbers that Python refuses."""
    number = _LONG_NUMBER.search(text)
    if number is not None:
        raise _error("the number is too long", text, file, number.start())
    for match in _STRINGS.finditer(text):
        if match.group() == '"':
            raise _error("the string is not terminated, or has an invalid escape", text, file, match.start())


def _error(message: str, text: str, file: str, position: int, hint: str | None = None) -> UserError:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return user_error("invalid-ir", message, location=_with_line(text, Location(file, line, column)), hint=hint)


def _operation_hint(message: str, context: Context) -> str | None:
    match = _UNREGISTERED.fullmatch(message)
    if match is None:
        return None
    for dialect in list(context.registered_dialect_names):
        context.get_dialect(dialect)  # loads it
    return did_you_mean(match.group(1), [op.name for op in context.loaded_ops])


def verify_module(module: ModuleOp, text: str | None = None, file: str | None = None) -> None:
    """Check every operation.

    Args:
        module: the module.
        text: what it was read from, for excerpts; None where it was made.
        file: the text's name.

    Raises:
        UserError: with every operation that does not verify, those of a region before the one that holds it.
    """
    diagnostics = []
    faulty: set[Operation] = set()
    # From the inside out: an operation may rely on those in its regions, so it is skipped where one is faulty.
    for op in module.walk(region_first=True):
        fault = None if op in faulty else _fault(op)
        if fault is not None or op in faulty:
            faulty.add(op.parent_op() or module)
        if fault is not None:
            location = location_of(op) or (None if file is None else Location(file))
            if location is not None and text is not None:
                location = _with_line(text, location)
            diagnostics.append(Diagnostic("invalid-ir", f"{op.name}: {fault}", location))
    if diagnostics:
        raise UserError(*diagnostics)


def _fault(op: Operation) -> str | None:
    """What is wrong with one operation, its regions left out."""
    try:
        op.verify(verify_nested_ops=False)
    except VerifyException as error:
        return str(error)
    if any(block.is_empty for region in op.regions for block in region.blocks) and not isinstance(op, ModuleOp):
        return "a block is empty"
    return None


def _with_line(text: str, location: Location) -> Location:
    """The location with its line of the text, for the excerpt."""
    lines = text.split("\n")
    if location.line is None or location.line > len(lines):
        return location
    return Location(location.file, location.line, location.column, 1, lines[location.line - 1])


def _nn() -> Dialect:
    from binpoint.dialect.nn import NN

    return NN


def _fx() -> Dialect:
    from binpoint.dialect.fx import FX

    return FX

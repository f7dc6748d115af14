"""`binpoint opt`: run single passes over a file of IR and print the result."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

STDIN = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("file", nargs="?", metavar="FILE", help="a file of IR, or - for standard input")
    parser.add_argument(
        "-p",
        "--passes",
        default="",
        metavar="PASSES",
        help="what to run, in order: 'strip-loss,lower-nn-to-fx{accumulator-bits=32}'; none only checks and prints",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the IR here instead of printing it")
    parser.add_argument("--list-passes", action="store_true", help="list the passes with their options")


def run(arguments: argparse.Namespace) -> int:
    """Parse, verify, run the passes, print."""
    from binpoint.compiler.pass_pipeline import parse_passes
    from binpoint.compiler.pass_runner import run_passes
    from binpoint.dialect.text import parse_module, print_module
    from binpoint.support.diagnostics import user_error
    from binpoint.support.files import read_text, write_atomically

    if arguments.list_passes:
        _list_passes()
        return 0
    if arguments.file is None:
        raise user_error("no-file", "there is no file to read", expected="binpoint opt FILE, or - for standard input")
    passes = parse_passes(arguments.passes)
    if arguments.file == STDIN:
        text, name = _read_standard_input(), "<stdin>"
    else:
        text, name = read_text(Path(arguments.file), "file of IR"), arguments.file
    module = parse_module(text, name)
    run_passes(module, passes)
    if arguments.output is None:
        sys.stdout.write(print_module(module))
    else:
        write_atomically(arguments.output, print_module(module))
    return 0


def _read_standard_input() -> str:
    from binpoint.support.diagnostics import Location, user_error

    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        place, found = Location("<stdin>"), f"byte 0x{error.object[error.start]:02x} at offset {error.start}"
        raise user_error("not-text", "the IR is not UTF-8 text", location=place, found=found) from None


def _list_passes() -> None:
    from binpoint.compiler.pass_pipeline import describe_passes

    for usage, summary in describe_passes():
        print(f"{usage}\n    {summary}")

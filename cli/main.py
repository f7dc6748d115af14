"""The entry point: picks the verb, imports only that verb's file, turns user errors into exit code 2."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from binpoint.support.version import VERSION

if TYPE_CHECKING:
    import argparse

    from binpoint.support.diagnostics import UserError

VERBS = {
    "import": "turn an ONNX model or a Darknet network into a .bp network and its weights",
    "check": "check a network, alone or against a target",
    "compile": "compile a network for a target into a .bpz artifact",
    "train": "train a network in dynamic fixed point on a target",
    "run": "run an artifact on data, bit-exactly, and report accuracy and exponents",
    "inspect": "print what is in an artifact",
    "schedule": "print, export, draw or check the schedule of a network on a target",
    "explain": "say which PE computes what, when, and why a PE is idle",
    "targets": "list, show or check target descriptions",
    "opt": "run single passes over a file of IR",
}
"""Each verb is one file of this package with `add_arguments(parser)` and `run(arguments) -> exit code`."""

MODULES = {"import": "import_"}
"""File names of verbs that are Python keywords."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 1 a check failed, 2 bad input, 130 interrupted."""
    _prepare_streams()
    _stop_in_order()
    try:
        return _guarded(argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _guarded(argv: Sequence[str] | None) -> int:
    """Run one command, and print what goes wrong. Imports wait until here, where an interrupt is no traceback."""
    from binpoint.support.diagnostics import UserError, user_error

    try:
        code = _run(sys.argv[1:] if argv is None else list(argv))
        _flush()
    except UserError as error:
        return _fail(error)
    except MemoryError as error:
        hint = "a smaller batch or a smaller network takes less"
        return _fail(user_error("out-of-memory", "there is not enough memory", found=str(error) or None, hint=hint))
    except BrokenPipeError:
        # The reader (head, less) has gone: not an error.
        _discard_output()
        return 0
    except OSError as error:
        # Files of the user have errors of their own; what is left is standard output on a full disk, and the like.
        _discard_output()
        return _fail(user_error("system-error", "the system refused to read or write", found=error))
    return code


def _prepare_streams() -> None:
    """Make standard output and error fit to print on: one that the shell has closed swallows what it is given."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  they stay open to the end
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may hold what the terminal's encoding has not


def _stop_in_order() -> None:
    """Clean up before `kill` or the end of the terminal stops the process, as at Ctrl-C: no file is left half written.

    The exit code is the one that a shell gives to a process that a signal has ended, 128 + the signal's number.
    """

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():  # only there can signals be handled
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores the end of the terminal
                signal.signal(number, stop)


def _run(words: list[str]) -> int:
    verb = next((word for word in words if not word.startswith("-")), None)
    parser = _parser(verb)
    try:
        arguments = parser.parse_args(words)
    except SystemExit:
        _flush()  # what --help and --version have printed
        raise
    if arguments.verb is None:
        parser.print_help()
        return 2
    return int(_verb(arguments.verb).run(arguments))


def _fail(error: UserError) -> int:
    """Print the diagnostics below what has been printed before."""
    try:
        _flush()
    except OSError:
        _discard_output()
    print("\n\n".join(str(diagnostic) for diagnostic in error.diagnostics), file=sys.stderr)
    return 2


def _flush() -> None:
    """Write out what is buffered here, where a failure is handled."""
    sys.stdout.flush()


def _discard_output() -> None:
    """Keep Python from writing what is still buffered into a broken standard output when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(verb: str | None) -> argparse.ArgumentParser:
    from binpoint.cli.parser import Parser

    parser = Parser(
        prog="binpoint",
        description="Compile a neural network onto a described PE array, in fixed point whose binary point moves.",
    )
    parser.add_argument("--version", action="version", version=f"binpoint {VERSION}")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, summary in VERBS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == verb:
            _verb(name).add_arguments(subparser)
    return parser


def _verb(name: str) -> Any:
    return importlib.import_module(f"binpoint.cli.{MODULES.get(name, name)}")

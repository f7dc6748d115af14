"""A parser of command lines whose errors are diagnostics like all others."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from binpoint.support.diagnostics import Diagnostic, Location, UserError, did_you_mean


@dataclass(frozen=True)
class Fault:
    """A message that argparse gives as text alone, and what a diagnostic says for it: templates over its groups."""

    pattern: str
    code: str
    message: str
    found: str | None = None
    expected: str | None = None


FAULTS = (
    Fault(
        "the following arguments are required: (.*)", "missing-argument", "something is missing here", expected="{0}"
    ),
    Fault(
        "one of the arguments (.*) is required", "missing-argument", "something is missing here", expected="one of {0}"
    ),
    Fault("argument (.*?): expected (.*)", "missing-value", "{0} needs a value", expected="{1}"),
    Fault("argument (.*?): ignored explicit argument '(.*)'", "unexpected-value", "{0} takes no value", found="{1}"),
    Fault(
        "argument (.*?): not allowed with argument (.*)",
        "contradicting-options",
        "two options exclude each other",
        found="{1} and {0}",
        expected="one of them",
    ),
    Fault(
        "ambiguous option: (.*?) could match (.*)",
        "ambiguous-option",
        "this is short for several options",
        found="{0}",
        expected="one of {1}",
    ),
)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser, also of each verb, that raises a UserError where the command line is wrong.

    The `type` of an option says in its ArgumentTypeError what it expects: "a whole number, at least 1".
    """

    def parse_known_args(  # type: ignore[override]  # one signature in place of argparse's overloads
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the words, of which all must be known. Raises UserError."""
        if self._subparsers is None and args is not None:
            self._refuse_unknown(args)
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            raise UserError(*map(self._unexpected, rest))
        return known, rest

    def error(self, message: str) -> NoReturn:
        """What argparse has found wrong, as a UserError."""
        for fault in FAULTS:
            match = re.fullmatch(fault.pattern, message, re.DOTALL)
            if match is not None:
                found, expected = (each and each.format(*match.groups()) for each in (fault.found, fault.expected))
                raise UserError(self._diagnostic(fault.code, fault.message.format(*match.groups()), found, expected))
        raise UserError(self._diagnostic("wrong-usage", message))

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        """Before argparse misses what a misspelt option was to give: every long option that there is none of."""
        options = words[: words.index("--")] if "--" in words else words
        names = [word.partition("=")[0] for word in options if word.startswith("--") and " " not in word]
        unknown = [name for name in names if not any(each.startswith(name) for each in self._option_string_actions)]
        if unknown:
            raise UserError(*map(self._unexpected, unknown))

    def _unexpected(self, word: str) -> Diagnostic:
        if not word.startswith("-"):
            return self._diagnostic("unexpected-argument", "this is one argument too many", word)
        hint = did_you_mean(word, self._option_string_actions)
        return self._diagnostic("unknown-option", "there is no such option", word, hint=hint)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """The value of an option's text, which its type converts."""
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            expected = "a whole number" if action.type is int else error.message
            message = f"wrong value of {_name(action)}"
            raise UserError(self._diagnostic("wrong-value", message, arg_string, expected)) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is none of an option's choices, or no verb."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        verb = isinstance(action, argparse._SubParsersAction)
        message = f"there is no such {_name(action).lower()}" if verb else f"wrong value of {_name(action)}"
        hint = did_you_mean(str(value), choices)
        raise UserError(self._diagnostic("unknown-choice", message, str(value), ", ".join(choices), hint))

    def _diagnostic(
        self, code: str, message: str, found: str | None = None, expected: str | None = None, hint: str | None = None
    ) -> Diagnostic:
        return Diagnostic(
            code, message, Location(self.prog), found, expected, hint or f"{self.prog} --help lists what it takes"
        )


def _name(action: argparse.Action) -> str:
    """How the help calls an option or an argument."""
    return "/".join(action.option_strings) or str(action.metavar or action.dest)

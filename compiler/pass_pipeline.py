"""Passes as the command line writes them: `strip-loss,lower-nn-to-fx{accumulator-bits=32}`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from typing import get_type_hints

from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError
from xdsl.utils.hints import type_repr

from binpoint.compiler.pass_registry import ALL_PASSES, pass_class
from binpoint.support.diagnostics import Collector, Location, UserError, did_you_mean, user_error

OPTION = "--passes"


def parse_passes(text: str) -> list[ModulePass]:
    """The passes of a pipeline, with their options.

    Raises:
        UserError: with every unknown pass and option; or the place where the text is no pipeline.
    """
    try:
        specs = list(parse_pipeline(text))
    except (ArgSpecParseError, ValueError) as error:  # ValueError: a number of more digits than Python converts
        too_long = not isinstance(error, ArgSpecParseError)
        message = "a number is too long" if too_long else str(error).rstrip().splitlines()[-1].strip()
        expected = "passes such as strip-loss,lower-nn-to-fx{accumulator-bits=32 target=dlu2048}"
        place = Location(OPTION)
        raise user_error("bad-pipeline", message, location=place, found=text, expected=expected) from None
    collector = Collector()
    passes = []
    for spec in specs:
        with collector.catch():
            passes.append(_make(spec))
    collector.raise_any()
    return passes


def describe_passes() -> Iterator[tuple[str, str]]:
    """Every pass: how it is called, with its options at their defaults, and what it does in one sentence."""
    for name in ALL_PASSES:
        found = pass_class(name)
        summary = (inspect.getdoc(found) or "").split("\n")[0]
        options = " ".join(f"{_option_name(option.name)}={_default(option.default)}" for option in fields(found))
        yield f"{name}{{{options}}}" if options else name, summary


def _make(spec: ArgSpec) -> ModulePass:
    place = Location(OPTION)
    if spec.name not in ALL_PASSES:
        raise user_error(
            "unknown-pass",
            f'there is no pass "{spec.name}"',
            location=place,
            found=spec.name,
            expected=f"one of {', '.join(ALL_PASSES)}",
            hint=did_you_mean(spec.name, ALL_PASSES),
        )
    found = pass_class(spec.name)
    options = [_option_name(option.name) for option in fields(found)]
    for option in spec.parameters:
        if _option_name(option) not in options:
            raise _unknown_option(spec.name, option, options)
    try:
        return found.from_spec(spec)
    except (TypeError, ValueError) as error:
        message = f"{spec.name}: {error}"
        raise user_error("bad-option", message, location=place, expected=_expected(found)) from None


def _unknown_option(name: str, option: str, options: list[str]) -> UserError:
    return user_error(
        "unknown-option",
        f'{name} has no option "{option}"',
        location=Location(OPTION),
        found=option,
        expected=f"one of {', '.join(options)}" if options else "no options",
        hint=did_you_mean(option, options),
    )


def _expected(found: type[ModulePass]) -> str:
    """The options with their types."""
    hints = get_type_hints(found)
    return ", ".join(f"{_option_name(option.name)} of type {type_repr(hints[option.name])}" for option in fields(found))


def _option_name(name: str) -> str:
    return name.replace("_", "-")


def _default(value: object) -> str:
    """A default as an option's value would be written."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower()

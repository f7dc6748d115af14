"""`binpoint targets`: list the shipped PE arrays, show one, or check a description."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from binpoint.support.target import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of the verb."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="the shipped targets", description="List the shipped targets.")
    show = actions.add_parser("show", help="one target's description", description="Print a target's description.")
    check = actions.add_parser("check", help="check descriptions", description="Check target descriptions.")
    show.add_argument("target", metavar="NAME", help="a shipped target or a .toml file")
    check.add_argument("target", nargs="+", metavar="FILE", help="a .toml file or a shipped target")
    for action in (listing, show, check):
        action.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Do one of the actions."""
    return {"list": _list, "show": _show, "check": _check}[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    from binpoint.cli.output import print_json, print_table
    from binpoint.support.target_file import load_target, shipped_targets

    targets = [load_target(name) for name in shipped_targets()]
    if arguments.json:
        print_json([_facts(target) for target in targets])
        return 0
    rows = [(each.name, each.pes, _statistics(each), each.allocation.strategy, each.description) for each in targets]
    print_table(None, ("target", "PEs", "statistics", "allocation", ""), rows)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from binpoint.cli.output import print_json
    from binpoint.support.target_file import load_target, target_text

    target = load_target(arguments.target)
    if arguments.json:
        print_json(_facts(target))
    else:
        print(target_text(arguments.target), end="")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from binpoint.cli.output import print_json
    from binpoint.support.diagnostics import Collector
    from binpoint.support.target_file import load_target

    collector = Collector()
    targets = []
    for name in arguments.target:
        with collector.catch():
            targets.append((name, load_target(name)))
    if arguments.json and not collector.diagnostics:
        print_json([{"file": name, **_facts(target), "notes": target.notes()} for name, target in targets])
    for name, target in [] if arguments.json else targets:
        rows, columns = target.grid
        array = (
            f"{target.pes} PEs ({rows} x {columns}), statistics in {_statistics(target)}, {target.allocation.strategy}"
        )
        print(f"{name}: good: {target.name}, {array}")
        for note in target.notes():
            print(f"  note: {note}")
    collector.raise_any()
    return 0


def _statistics(target: Target) -> str:
    """Which PEs have a statistics circuit, in a few words."""
    spacing = target.statistics_spacing
    if spacing == 1:
        return "every PE"
    return f"{len(target.statistics_pes)} PEs" if spacing is None else f"1 PE of {spacing}"


def _facts(target: Target) -> dict[str, Any]:
    """A target as its file says it."""
    import tomllib

    from binpoint.support.target_file import print_target

    return tomllib.loads(print_target(target))

"""Options that `schedule` and `explain` share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from binpoint.compiler.planning import Plan


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """The network, the target, the batch and an edited schedule."""
    parser.add_argument("network", type=Path, metavar="NET", help="a .bp network")
    parser.add_argument("-t", "--target", required=True, help="a shipped target (see `targets list`) or a .toml file")
    parser.add_argument("--batch", type=count, metavar="N", help="images of a mini-batch (default 64)")
    parser.add_argument("--use", type=Path, metavar="FILE", help="check and obey an edited schedule (from --json FILE)")


def make_plan(arguments: argparse.Namespace) -> Plan:
    """The plan that the options ask for. Raises UserError."""
    from binpoint.compiler.planning import plan_network

    return plan_network(arguments.network, arguments.target, arguments.batch, arguments.use)


def count(text: str) -> int:
    """An option's value as a whole number, at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value

"""Options that `schedule` and `explain` share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from binpoint.cli.set_option import add_set_argument

if TYPE_CHECKING:
    from binpoint.compiler.planning import Plan


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """The network, the target, changes to both, the batch and an edited schedule."""
    parser.add_argument("network", type=Path, metavar="NET", help="a .bp network")
    parser.add_argument("-t", "--target", required=True, help="a shipped target (see `targets list`) or a .toml file")
    add_set_argument(parser)
    parser.add_argument("--batch", type=count, metavar="N", help="images of a mini-batch (default 64)")
    parser.add_argument(
        "--mini-batch",
        type=number,
        default=0,
        metavar="B",
        help='which mini-batch, from 0: with rotation = "continuous" each begins one PE further (default 0)',
    )
    parser.add_argument("--use", type=Path, metavar="FILE", help="check and obey an edited schedule (from --json FILE)")
    parser.add_argument(
        "--training", action="store_true", help="a mini-batch of training (SGD without momentum): gradients, updates"
    )


def make_plan(arguments: argparse.Namespace) -> Plan:
    """The plan that the options ask for. Raises UserError."""
    from binpoint.compiler.planning import plan_network

    return plan_network(
        arguments.network,
        arguments.target,
        arguments.batch,
        arguments.use,
        arguments.mini_batch,
        arguments.training,
        arguments.set,
    )


def count(text: str) -> int:
    """An option's value as a whole number, at least 1."""
    return _whole(text, least=1)


def number(text: str) -> int:
    """An option's value as a whole number, at least 0."""
    return _whole(text, least=0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"a whole number, at least {least}")
    return value

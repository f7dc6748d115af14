"""`--set KEY=VALUE`, the same in every verb that has it."""

from __future__ import annotations

import argparse


def add_set_argument(parser: argparse._ActionsContainer) -> None:
    """The option; `compiler.settings.parse_settings` reads what it gathers in `arguments.set`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="numeric.activations=16, layer.conv1.rounding=floor or target.array.pes=256; may be repeated",
    )

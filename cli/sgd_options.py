"""The options of stochastic gradient descent that the compiler needs to know: shared by `train` and `compile`."""

from __future__ import annotations

import argparse
from fractions import Fraction

from binpoint.cli.schedule_options import number
from binpoint.support.number_text import parse_number

LARGEST_SCALE = 255
"""The greatest power of two of the loss: the width of the range of exponents, -128 to 127."""


def add_sgd_arguments(container: argparse._ActionsContainer) -> None:
    """--momentum, --weight-decay and --loss-scale."""
    container.add_argument("--momentum", type=below_one, default=Fraction(0), metavar="M", help="of SGD (default 0)")
    container.add_argument(
        "--weight-decay", type=below_one, default=Fraction(0), metavar="D", help="of weights, not of biases (default 0)"
    )
    container.add_argument(
        "--loss-scale", type=scale, default=0, metavar="K", help="multiply the loss by 2^K: moves exponents alone"
    )


def scale(text: str) -> int:
    """An option's value as a power of two that the range of exponents can make up for."""
    value = number(text)
    if value > LARGEST_SCALE:
        raise argparse.ArgumentTypeError(f"a whole number, at most {LARGEST_SCALE}")
    return value


def below_one(text: str) -> Fraction:
    """An option's value as an exact number, at least 0 and below 1: 0.9 or 9/10."""
    expected = "a number such as 0.9, at least 0 and below 1"
    try:
        value = parse_number(text)
    except ValueError:
        raise argparse.ArgumentTypeError(expected) from None
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(expected)
    return value

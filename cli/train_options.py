"""The options of `train`: what they mean and what contradicts."""

from __future__ import annotations

import argparse
from collections import Counter
from fractions import Fraction
from pathlib import Path

from binpoint.cli.backend_options import add_backend_arguments
from binpoint.cli.schedule_options import count, number
from binpoint.cli.sgd_options import add_sgd_arguments
from binpoint.support.number_text import parse_number

FIXED_POINT_OPTIONS = {
    "trace": None,
    "backend": "te",
    "statistics": "circuits",
    "parameter_statistics": "thinned",
}
"""Options that say how fixed point is computed, and their defaults."""

RATE_LIMIT = 2**128
"""Learning rates lie below: float32, the yardstick, has no larger numbers."""


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """All of them."""
    parser.add_argument("network", type=Path, metavar="NET", help="a .bp network")
    parser.add_argument("-t", "--target", required=True, help="a shipped target (see `targets list`) or a .toml file")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.bpz", help="the artifact of the trained network")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="numeric.gradients=16, layer.conv1.rounding=stochastic or target.allocation.rotation=continuous",
    )
    _add_data(parser.add_argument_group("data"))
    _add_optimiser(parser.add_argument_group("learning"))
    _add_machine(parser.add_argument_group("what computes"))
    _add_files(parser.add_argument_group("logs and checkpoints"))


def _add_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data", required=True, metavar="DATA", help="mnist:DIR (training set), a .npz file, or a folder of images"
    )
    group.add_argument(
        "--test", metavar="DATA", help="evaluated after each epoch (default: the test set of mnist:DIR, else none)"
    )
    group.add_argument("--limit", type=count, metavar="N", help="train on the first N images alone")
    group.add_argument("--test-limit", type=count, metavar="N", help="test on the first N images alone")
    group.add_argument("--batch", type=count, default=64, metavar="B", help="images of a mini-batch (default 64)")
    group.add_argument(
        "--seed", type=number, default=0, metavar="S", help="first weights, data order, rounding (default 0)"
    )


def _add_optimiser(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--epochs", type=count, metavar="E", help="ends training (default 1, or as --steps needs)")
    group.add_argument("--steps", type=count, metavar="N", help="ends training after N mini-batches")
    group.add_argument("--target-accuracy", type=_share, metavar="A", help="ends training, such as 0.988 or 98.8%%")
    group.add_argument(
        "--lr", type=_positive, default=Fraction(1, 20), metavar="L", help="learning rate (default 0.05)"
    )
    group.add_argument(
        "--lr-schedule", default="constant", metavar="SCHEDULE", help="constant, linear, cosine or step:EPOCHS:FACTOR"
    )
    add_sgd_arguments(group)
    group.add_argument(
        "--weights", type=Path, metavar="FILE", help="first parameters (default: as the network names, else drawn)"
    )


def _add_machine(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--float", action="store_true", help="train in float32 instead: the yardstick")
    add_backend_arguments(group)
    group.add_argument(
        "--statistics",
        choices=("circuits", "instructions"),
        default="circuits",
        help="statistics PEs have circuits (default), or count by instructions; the numbers are the same",
    )
    group.add_argument(
        "--parameter-statistics",
        choices=("thinned", "all"),
        default="thinned",
        help="updated parameters are seen by the statistics PEs alone (default), or counted by every PE",
    )


def _add_files(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--json", type=Path, metavar="LOG", help="write every step and decision, a JSON object a line")
    group.add_argument(
        "--log-decisions",
        choices=("all", "changes"),
        default="all",
        help="log every decision about an exponent (default), or those that move it",
    )
    group.add_argument("--trace", type=Path, metavar="FILE", help="write every message between host and accelerator")
    group.add_argument("--checkpoint", type=Path, metavar="DIR", help="keep a checkpoint here")
    group.add_argument(
        "--checkpoint-every", type=count, default=200, metavar="N", help="mini-batches, and each epoch (default 200)"
    )
    group.add_argument("--resume", action="store_true", help="go on from the checkpoint, where there is one")


def check_options(arguments: argparse.Namespace) -> None:
    """Refuse what contradicts itself or cannot be written, all at once, before anything is read."""
    from binpoint.support.diagnostics import Collector, Diagnostic, Location
    from binpoint.support.files import check_writable

    collector = Collector()

    def refuse(message: str, found: str, hint: str | None = None) -> None:
        collector.add(Diagnostic("contradicting-options", message, found=found, hint=hint))

    if arguments.resume and arguments.checkpoint is None:
        refuse("there is no checkpoint to go on from", "--resume without --checkpoint", "add --checkpoint DIR")
    if arguments.threads is not None and arguments.backend == "oracle":
        refuse("the oracle has one thread", "--backend oracle --threads", "leave --threads away, or use --backend te")
    if arguments.float:
        for option, default in FIXED_POINT_OPTIONS.items():
            if getattr(arguments, option) != default:
                name = f"--{option.replace('_', '-')}"
                refuse(f"{name} says how fixed point is computed", f"--float {name}", f"leave --float or {name} away")
    inputs = [path for path in (arguments.network, Path(arguments.target), arguments.weights) if path is not None]
    outputs = [path for path in (arguments.output, arguments.json, arguments.trace) if path is not None]
    for path in outputs:
        with collector.catch():
            check_writable(path, inputs)
    places = Counter(path.resolve() for path in outputs)
    for path in (each for each, times in places.items() if times > 1):
        collector.add(Diagnostic("same-file", "two outputs are one file", Location(str(path)), hint="name two files"))
    collector.raise_any()


def _fraction(text: str) -> Fraction | None:
    """A number as it is written: 0.05, 5e-2, 1/20 or 5%; None for what is none."""
    try:
        value = parse_number(text.removesuffix("%"))
    except ValueError:
        return None
    return value / 100 if text.endswith("%") else value


def _positive(text: str) -> Fraction:
    """A number above 0."""
    value = _fraction(text)
    if value is None or not 0 < value < RATE_LIMIT:
        raise argparse.ArgumentTypeError("a number such as 0.05, above 0 and below 2^128, which float32 ends at")
    return value


def _share(text: str) -> Fraction:
    """A share of a whole: above 0, at most 1."""
    value = _fraction(text)
    if value is None or not 0 < value <= 1:
        raise argparse.ArgumentTypeError("a share such as 0.988 or 98.8%, above 0 and at most 1")
    return value

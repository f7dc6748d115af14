"""`binpoint targets`: list the shipped PE arrays, show one, or check a description."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from binpoint.cli.schedule_options import count

if TYPE_CHECKING:
    from binpoint.support.target import Target

DEFAULT_MAP = (16, 448, 448)
"""The picture of JP7819764B2 fig. 2, in as many channels as block16 has PEs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of the verb."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="the shipped targets", description="List the shipped targets.")
    show = actions.add_parser("show", help="one target's description", description="Print a target's description.")
    check = actions.add_parser("check", help="check descriptions", description="Check target descriptions.")
    show.add_argument("target", metavar="NAME", help="a shipped target or a .toml file")
    check.add_argument("target", nargs="+", metavar="FILE", help="a .toml file or a shipped target")
    hardware = actions.add_parser(
        "hardware",
        help="buffers, shifters and cycles of exponents of blocks",
        description="What exponents of blocks cost in hardware, target beside target.",
    )
    hardware.add_argument("target", nargs="+", metavar="NAME", help="a shipped target or a .toml file, with [blocks]")
    hardware.add_argument("--map", type=_shape, default=DEFAULT_MAP, metavar="CxHxW", help="of results (16x448x448)")
    hardware.add_argument("--inputs", type=count, metavar="C", help="input channels (default: as many as results have)")
    hardware.add_argument("--bits", type=count, default=8, metavar="B", help="of a result (default 8)")
    hardware.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="target.blocks.sharing=channel or target.blocks.candidates=4, for all; may be repeated",
    )
    for action in (listing, show, check, hardware):
        action.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Do one of the actions."""
    return {"list": _list, "show": _show, "check": _check, "hardware": _hardware}[arguments.action](arguments)


def _shape(text: str) -> tuple[int, int, int]:
    """An option's value as CxHxW."""
    try:
        channels, height, width = (count(part) for part in text.split("x"))
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError("channels, height and width, such as 16x448x448") from None
    return channels, height, width


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


def _hardware(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from binpoint.cli.output import print_json, print_table
    from binpoint.compiler.settings import apply_to_target, parse_settings
    from binpoint.scheduling.block_hardware import BlockWork, block_hardware
    from binpoint.support.diagnostics import Collector, user_error
    from binpoint.support.target import REGISTER_BITS
    from binpoint.support.target_file import load_target

    settings = parse_settings(arguments.set)
    collector = Collector()
    work = BlockWork(arguments.map, arguments.inputs or arguments.map[0], arguments.bits)
    columns = []
    for name in arguments.target:
        with collector.catch():
            target = apply_to_target(load_target(name), settings)
            if target.blocks is None:
                message, hint = f'the target "{target.name}" knows one exponent a tensor', "it needs a [blocks] section"
                raise user_error("no-blocks", message, found=name, expected="exponents of blocks", hint=hint)
            least = REGISTER_BITS[0]
            if not least <= arguments.bits <= target.register_bits:
                message = f"{arguments.bits}-bit results do not fit the registers of {target.name}"
                expected = f"{least} to {target.register_bits} bits"
                raise user_error("wide-operand", message, found=f"--bits {arguments.bits}", expected=expected)
            hardware = block_hardware(target, work)
            method = str(target.blocks.policy.method)
            facts = {**asdict(hardware), "shifters": hardware.shifters}
            columns.append({"target": target.name, "pes": target.pes, "method": method, **facts})
    collector.raise_any()
    if arguments.json:
        figures = {"map": list(work.map), "input_channels": work.input_channels, "bits": work.bits}
        print_json({**figures, "targets": columns})
        return 0
    rows = [(_words(key), *(_figure(column[key]) for column in columns)) for key in columns[0] if key != "target"]
    shape = "x".join(map(str, work.map))
    title = f"{work.bits}-bit results of {shape} from {work.input_channels} channels; of one PE where nothing is said"
    print_table(title, ("", *(str(column["target"]) for column in columns)), rows)
    return 0


def _words(key: str) -> str:
    """The name of a figure: delay_buffer_bits_array is "delay buffer bits (whole array)"."""
    text = key.removesuffix("_array").removesuffix("_frame").removesuffix("_block").replace("_", " ")
    for suffix, words in (("_array", " (whole array)"), ("_frame", " (a frame)"), ("_block", " (a block)")):
        text += words if key.endswith(suffix) else ""
    return "PEs" if key == "pes" else text


def _figure(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


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

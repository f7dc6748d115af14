"""`binpoint explain`: one sentence about a PE, an (image, channel) pair, or the idle PEs of a layer."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from binpoint.cli.schedule_options import add_plan_arguments, make_plan

if TYPE_CHECKING:
    from binpoint.scheduling.explain import Answer, Explainer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    add_plan_arguments(parser)
    parser.add_argument("--layer", required=True, help="the layer to ask about")
    questions = parser.add_argument_group("questions", "one of: a PE, an image and a channel, the idle PEs")
    questions.add_argument("--pe", type=int, metavar="P", help="what does PE P compute, and when?")
    questions.add_argument("--image", type=int, metavar="N", help="who computes image N ...")
    questions.add_argument("--channel", type=int, metavar="C", help="... and output channel C?")
    questions.add_argument("--idle", action="store_true", help="which PEs are idle, and why?")
    parser.add_argument("--json", action="store_true", help="the sentence and its facts as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Answer one question."""
    from binpoint.cli.output import print_json
    from binpoint.scheduling.explain import Explainer
    from binpoint.scheduling.workload import select_workloads

    _check_question(arguments)
    plan = make_plan(arguments)
    (workload,) = select_workloads(plan.workloads, [arguments.layer])
    layer = next(layer for layer in plan.schedule.layers if layer.layer == workload.layer)
    answer = _answer(Explainer(layer, plan.target, workload.statistics, exact=workload.exact), arguments)
    if arguments.json:
        print_json({"layer": workload.layer, "answer": answer.sentence, **answer.facts})
    else:
        print(answer.sentence)
    return 0


def _check_question(arguments: argparse.Namespace) -> None:
    from binpoint.support.diagnostics import user_error

    asked = {
        "--pe": arguments.pe is not None,
        "--image": arguments.image is not None,
        "--channel": arguments.channel is not None,
        "--idle": arguments.idle,
    }
    options = [option for option, given in asked.items() if given]
    if options not in (["--pe"], ["--image", "--channel"], ["--idle"]):
        raise user_error(
            "one-question",
            "explain answers one question at a time",
            found=" ".join(options) or "no question",
            expected="--pe P, or --image N --channel C, or --idle",
        )


def _answer(explainer: Explainer, arguments: argparse.Namespace) -> Answer:
    schedule = explainer.schedule
    if arguments.idle:
        return explainer.idle()
    if arguments.pe is not None:
        _check_range(f"{explainer.target.name} has no PE {arguments.pe}", arguments.pe, schedule.pes)
        return explainer.pe(arguments.pe)
    _check_range(f"a mini-batch has no image {arguments.image}", arguments.image, schedule.images)
    _check_range(f"{schedule.layer} has no channel {arguments.channel}", arguments.channel, schedule.channels)
    return explainer.pair(arguments.image, arguments.channel)


def _check_range(message: str, value: int, end: int) -> None:
    from binpoint.support.diagnostics import user_error

    if not 0 <= value < end:
        raise user_error("out-of-range", message, found=value, expected=f"0 to {end - 1}")

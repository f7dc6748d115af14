"""`binpoint compile --training`: what one mini-batch of training computes, as IR; no artifact."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from binpoint.compiler.network import NetworkGraph
    from binpoint.compiler.pass_runner import Timing, Watcher
    from binpoint.compiler.training_pipeline import TrainingCompilation
    from binpoint.support.target import Target

UNUSED = ("weights", "use", "emit")
"""Options of `compile` that mean nothing to training."""


def check_training_options(arguments: argparse.Namespace) -> None:
    """Refuse options that mean nothing with, or without, --training. Raises UserError."""
    from binpoint.support.diagnostics import user_error

    if not arguments.training:
        given = [name for name in ("momentum", "weight_decay", "loss_scale") if getattr(arguments, name)]
        if given:
            option = f"--{given[0].replace('_', '-')}"
            raise user_error("needs-training", f"{option} is an option of training", hint=f"--training {option} ...")
        return
    given = [name for name in UNUSED if getattr(arguments, name)]
    if given:
        message = f"--{given[0]} means nothing to --training"
        raise user_error("not-for-training", message, expected="-o FILE.mlir, --dump-dir or --print-ir-after-all")


def compile_for_training(
    arguments: argparse.Namespace, network: NetworkGraph, target: Target, watch: Watcher | None
) -> TrainingCompilation:
    """Compile, and write the IR where it is asked for. Raises UserError."""
    from binpoint.compiler.pipeline import DEFAULT_BATCH
    from binpoint.compiler.training_pipeline import TrainingOptions, compile_training
    from binpoint.support.files import write_atomically

    batch = arguments.batch or DEFAULT_BATCH
    options = TrainingOptions(batch, arguments.momentum, arguments.weight_decay, arguments.loss_scale, watch)
    compilation = compile_training(network, target, options)
    if arguments.output is not None:
        write_atomically(arguments.output, compilation.ir)
    return compilation


def training_facts(compilation: TrainingCompilation, timings: Sequence[Timing], output: Path | None) -> dict[str, Any]:
    """The result as one JSON document."""
    from math import prod

    from binpoint.backends.kernel import Reshape
    from binpoint.backends.training_program import KernelStep, Phase
    from binpoint.cli.compile_report import proof_facts, stage_seconds

    program = compilation.program
    # A reshape is computed by no PE.
    kernels = [
        step
        for step in program.steps
        if isinstance(step, KernelStep) and not isinstance(step.call.spec.operation, Reshape)
    ]
    counts = {str(phase): sum(step.phase is phase for step in kernels) for phase in (Phase.FORWARD, Phase.BACKWARD)}
    proofs = {proof.kernel: proof for proof in compilation.proofs}
    return {
        "network": program.name,
        "target": compilation.target.name,
        "batch": program.batch,
        "logits": program.logits,
        "kernels": [
            {
                "name": step.call.spec.name,
                "phase": str(step.phase),
                "layers": list(step.call.fused),
                **proof_facts(proofs.get(step.call.spec.name)),
            }
            for step in kernels
        ],
        "kernels_per_phase": counts,
        "host_steps": [type(step).__name__ for step in program.steps if _on_host(step)],
        "parameters": sum(prod(parameter.shape) for parameter in program.parameters),
        "warnings": [f"{each.message} ({each.found}): those exponents cannot follow" for each in compilation.missing],
        "seconds": stage_seconds(timings),
        "ir": None if output is None else str(output),
    }


def _on_host(step: object) -> bool:
    from binpoint.backends.training_program import BatchNormBackwardStep, BatchNormForwardStep, LossStep

    return isinstance(step, LossStep | BatchNormForwardStep | BatchNormBackwardStep)


def print_training_report(report: dict[str, Any]) -> None:
    """The summary on standard output."""
    from binpoint.cli.compile_report import overflow_sentence

    counts, host_steps = report["kernels_per_phase"], len(report["host_steps"])
    steps = "1 step" if host_steps == 1 else f"{host_steps} steps"
    print(
        f"{report['network']} for training on {report['target']}: {counts['forward']} kernels forward, "
        f"{counts['backward']} backward, {report['batch']} images a mini-batch"
    )
    print(f"{report['parameters']:,} parameters are trained; {steps} on the host in float64")
    print(overflow_sentence([kernel for kernel in report["kernels"] if "needed_bits" in kernel]))
    times = ", ".join(f"{stage} {seconds * 1e3:.0f} ms" for stage, seconds in report["seconds"].items())
    print(f"{sum(report['seconds'].values()) * 1e3:.0f} ms: {times}")
    if report["ir"] is not None:
        print(f"wrote {report['ir']}")
